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

/// Messages about keys that cannot be combined with 2bw, which overlaps two steps with separate
/// weights.
std::vector<std::string> overlap_mistakes(const Deck& deck);

/// Messages about keys that cannot be combined with replicas that divide gradients or weights.
std::vector<std::string> sharding_mistakes(const Deck& deck);

/// Messages about keys that cannot be combined with an estimate of the gradient noise scale, which
/// needs the gradient of each replica's first micro-batch.
std::vector<std::string> noise_mistakes(const Deck& deck);

/// Messages about values and combinations that local training does not support.
std::vector<std::string> local_mistakes(const Deck& deck);

/// Sets parallel.data from the number of ranks if it is 0. Checks that tensor · context · pipeline
/// · data (with servers, data + servers) is the number of ranks, that micro · data divides every
/// global batch, and the conditions on workers, shard groups and the size of a step that depend on
/// data. Throws a UsageError with all factors and the values that fit.
void resolve_parallel(Deck& deck, std::int64_t ranks);

}  // namespace trireme::deck
