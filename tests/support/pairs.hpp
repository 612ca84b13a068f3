#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

namespace trireme::testing {

/// Values of the options of a test case, and the case's cost.
struct Combination {
  std::vector<std::int64_t> values;  ///< as many in all cases
  int cost = 1;
};

/// Cases in which every pair of values of two options appears that appears in some case, greedily
/// by the number of new pairs per cost. The choice depends on the arguments alone. Most faults show
/// with one or two options (Kuhn, Wallace and Gallo 2004). `apart`: two options whose pairs need
/// not appear.
inline std::vector<bool> cover_pairs(const std::vector<Combination>& cases,
                                     std::pair<std::size_t, std::size_t> apart = {0, 0}) {
  // Values as consecutive numbers over all options: a pair is an element of a table.
  std::map<std::pair<std::size_t, std::int64_t>, std::size_t> numbers;
  std::vector<std::vector<std::size_t>> numbered;
  for (const Combination& each : cases) {
    std::vector<std::size_t>& values = numbered.emplace_back();
    for (std::size_t option = 0; option < each.values.size(); ++option)
      values.push_back(
          numbers.try_emplace({option, each.values[option]}, numbers.size()).first->second);
  }
  const std::size_t size = numbers.size();
  std::vector<char> covered(size * size, 0);
  const auto new_pairs = [&](std::size_t i, bool cover) {
    int found = 0;
    const std::vector<std::size_t>& values = numbered[i];
    for (std::size_t a = 0; a < values.size(); ++a)
      for (std::size_t b = a + 1; b < values.size(); ++b) {
        if (std::pair(a, b) == apart) continue;
        char& pair = covered[values[a] * size + values[b]];
        found += pair == 0 ? 1 : 0;
        if (cover) pair = 1;
      }
    return found;
  };
  // Gains only fall: a case whose gain is still that of its entry is the best one.
  using Entry = std::tuple<double, std::int64_t, int>;  // gain per cost, minus the index, gain
  std::priority_queue<Entry> best;
  const auto consider = [&](std::size_t i) {
    if (const int gain = new_pairs(i, false); gain > 0)
      best.emplace(static_cast<double>(gain) / cases[i].cost, -static_cast<std::int64_t>(i), gain);
  };
  for (std::size_t i = 0; i < cases.size(); ++i) consider(i);
  std::vector<bool> picked(cases.size(), false);
  while (!best.empty()) {
    const auto [rate, minus, gain] = best.top();
    best.pop();
    const auto i = static_cast<std::size_t>(-minus);
    if (new_pairs(i, false) == gain) {
      new_pairs(i, true);
      picked[i] = true;
    } else {
      consider(i);
    }
  }
  return picked;
}

}  // namespace trireme::testing
