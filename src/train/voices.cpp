#include <trireme/train/voices.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace trireme::train {

bool unanimous(std::span<const Voice> voices) {
  return std::ranges::all_of(
      voices, [&](const Voice& voice) { return voice.value == voices.front().value; });
}

std::optional<std::uint64_t> agreed_value(std::span<const Voice> voices) {
  std::map<int, std::set<std::uint64_t>> values_of;  // by replica
  for (const Voice& voice : voices) values_of[voice.replica].insert(voice.value);
  // Weight of a value: consistent replicas, replicas, voices.
  std::map<std::uint64_t, std::array<int, 3>> weights;
  for (const auto& [replica, values] : values_of)
    for (const std::uint64_t value : values) {
      weights[value][0] += values.size() == 1 ? 1 : 0;
      weights[value][1] += 1;
    }
  for (const Voice& voice : voices) ++weights[voice.value][2];
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto most = std::ranges::max_element(weights, less);
  if (most == weights.end()) return std::nullopt;
  const auto same = [&](const auto& weight) { return weight.second == most->second; };
  if (std::ranges::count_if(weights, same) > 1) return std::nullopt;
  return most->first;
}

}  // namespace trireme::train
