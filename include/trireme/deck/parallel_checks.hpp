#pragma once

#include <trireme/deck/deck.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::deck {

/// Messages about keys that cannot be combined with parameter servers, and keys that need servers.
std::vector<std::string> server_mistakes(const Deck& deck);

/// Message about a ramp-up of the global batch that is not possible, with values that fit; "" if
/// the ramp-up is possible or there is none. Every size must be a multiple of micro · `data`, or of
/// micro if `data` is 0 (not yet known). [batch] global must be such a multiple already.
std::string ramp_mistake(const Deck& deck, std::int64_t data);

/// Whether the deck's keys other than those of the layout allow [parallel] expert > 1.
bool may_divide_experts(const Config& config);
/// Messages about [parallel] expert > 1. Each tensor rank of each replica needs an expert.
std::vector<std::string> expert_axis_mistakes(const Deck& deck);

/// Messages about keys that cannot be combined with the schedule 2bw.
std::vector<std::string> overlap_mistakes(const Deck& deck);

/// Messages about keys that cannot be combined with replicas that divide gradients or weights.
std::vector<std::string> sharding_mistakes(const Deck& deck);

/// Messages about keys that cannot be combined with gradient_noise_scale = true.
std::vector<std::string> noise_mistakes(const Deck& deck);

/// Messages about values and combinations that local training does not support.
std::vector<std::string> local_mistakes(const Deck& deck);

/// Sets parallel.data from the number of ranks if it is 0. Throws a UsageError with values that fit
/// if the product of the axes is not the number of ranks, if micro · data does not divide every
/// global batch, or if another condition on data does not hold.
void resolve_parallel(Deck& deck, std::int64_t ranks);

}  // namespace trireme::deck
