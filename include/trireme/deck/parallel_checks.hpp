#pragma once

#include <trireme/deck/deck.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::deck {

/// Keys that parameter servers cannot be combined with, and keys that need them.
std::vector<std::string> server_mistakes(const Deck& deck);

/// Reason why the global batch cannot grow by [batch] ramp_start, ramp_increment and ramp_samples,
/// with values that fit; empty if it can. Every size must be a multiple of micro · `data`, as
/// `global` must already be; of micro if data is 0 (not yet known).
std::string ramp_mistake(const Deck& deck, std::int64_t data);

/// Keys that 2bw cannot be combined with: it overlaps two steps, which have separate weights.
std::vector<std::string> overlap_mistakes(const Deck& deck);

/// Keys that cannot be combined with replicas that divide gradients or weights.
std::vector<std::string> sharding_mistakes(const Deck& deck);

/// Keys that hide the gradient of a replica's first micro-batch, which an estimate of the gradient
/// noise scale needs.
std::vector<std::string> noise_mistakes(const Deck& deck);

/// Values and combinations that local training does not support.
std::vector<std::string> local_mistakes(const Deck& deck);

/// Sets parallel.data from the number of ranks if it is 0. Checks that tensor · pipeline · data is
/// the number of ranks and that micro · data divides every global batch. Throws a UsageError with
/// all factors and the values that fit.
void resolve_parallel(Deck& deck, std::int64_t ranks);

}  // namespace trireme::deck
