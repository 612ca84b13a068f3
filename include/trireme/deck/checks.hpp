#pragma once

#include <trireme/deck/deck.hpp>
#include <trireme/deck/diagnostics.hpp>

#include <cstdint>
#include <set>
#include <string>

namespace trireme::deck {

inline constexpr std::int64_t stages_limit = 4096;          ///< pipeline · chunks
inline constexpr std::int64_t micro_batches_limit = 65536;  ///< a step's program lists them all
inline constexpr std::int64_t passes_limit = 1 << 19;  ///< forward passes of one replica's step
inline constexpr std::int64_t ranks_limit = std::int64_t{1} << 20;

/// Checks conditions on several keys and the limits of this version. Skips the checks of keys in
/// `invalid` ("section.key"), which have already been reported.
void cross_check(const Deck& deck, const std::set<std::string>& invalid, Diagnostics& diagnostics);

/// Number of activations in the forward pass of one micro-batch.
double activations_of(const Config& config);

}  // namespace trireme::deck
