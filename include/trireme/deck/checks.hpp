#pragma once

#include <trireme/deck/deck.hpp>
#include <trireme/deck/diagnostics.hpp>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace trireme::deck {

inline constexpr std::int64_t stages_limit = 4096;  ///< pipeline · chunks
/// Limit of micro-batches per step, because a step's program lists all of them.
inline constexpr std::int64_t micro_batches_limit = 65536;
inline constexpr std::int64_t passes_limit = 1 << 19;  ///< forward passes in a step of a replica
inline constexpr std::int64_t ranks_limit = std::int64_t{1} << 20;

/// Checks conditions on several keys and adds mistakes to `diagnostics`. Skips the checks of keys
/// in `invalid` ("section.key").
void cross_check(const Deck& deck, const std::set<std::string>& invalid, Diagnostics& diagnostics);

/// Approximate number of activations that the forward pass of one micro-batch computes.
double activations_of(const Config& config);

// Valid values that an error message suggests in place of an invalid value.

/// All divisors of n >= 1, ascending.
std::vector<std::int64_t> divisors(std::int64_t n);

/// "1, 2, 5 or 10": at most six of the ascending `candidates`, around `wanted`.
std::string choices(const std::vector<std::int64_t>& candidates, std::int64_t wanted);

}  // namespace trireme::deck
