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

std::set<int> contradicting(std::span<const Voice> voices) {
  std::map<int, std::uint64_t> value_of;  // by replica
  std::set<int> found;
  for (const Voice& voice : voices)
    if (value_of.emplace(voice.replica, voice.value).first->second != voice.value)
      found.insert(voice.replica);
  return found;
}

std::optional<std::uint64_t> agreed_value(std::span<const Voice> voices,
                                          const std::set<int>& doubted) {
  std::map<std::uint64_t, std::set<int>> replicas_of;  // by value
  for (const Voice& voice : voices) replicas_of[voice.value].insert(voice.replica);
  // Weight of a value: replicas that are not doubted, replicas, voices.
  std::map<std::uint64_t, std::array<std::ptrdiff_t, 3>> weights;
  for (const auto& [value, replicas] : replicas_of)
    weights[value] = {
        std::ranges::count_if(replicas, [&](int replica) { return !doubted.contains(replica); }),
        std::ssize(replicas),
        std::ranges::count_if(voices, [&](const Voice& v) { return v.value == value; })};
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto most = std::ranges::max_element(weights, less);
  if (most == weights.end()) return std::nullopt;
  const auto same = [&](const auto& weight) { return weight.second == most->second; };
  if (std::ranges::count_if(weights, same) > 1) return std::nullopt;
  return most->first;
}

}  // namespace trireme::train
