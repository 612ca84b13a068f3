#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>

namespace trireme::train {

/// One computation of numbers that several replicas compute, or the same one repeatedly.
struct Voice {
  int replica = 0;
  std::uint64_t value = 0;  ///< hash of the result
};

/// Whether all voices have the same value.
bool unanimous(std::span<const Voice> voices);

/// Replicas that have given different values.
std::set<int> contradicting(std::span<const Voice> voices);

/// The right value: the one of most replicas that are not in `doubted`, then of most replicas, then
/// of most voices. Empty if that does not decide: two replicas that each repeat their own value.
std::optional<std::uint64_t> agreed_value(std::span<const Voice> voices,
                                          const std::set<int>& doubted);

}  // namespace trireme::train
