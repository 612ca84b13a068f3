#include <trireme/deck/choices.hpp>

#include <trireme/base/text.hpp>

#include <algorithm>

namespace trireme::deck {

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d != n / d) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::string choices(const std::vector<std::int64_t>& candidates, std::int64_t wanted) {
  constexpr std::ptrdiff_t most = 6;
  const auto above = std::ranges::lower_bound(candidates, wanted);
  auto first = above - std::min(most / 2, above - candidates.begin());
  const auto last = first + std::min(most, candidates.end() - first);
  first = last - std::min(most, last - candidates.begin());
  std::string out;
  for (auto it = first; it != last; ++it)
    out += text(it == first ? "" : it + 1 == last ? " or " : ", ", *it);
  return out;
}

}  // namespace trireme::deck
