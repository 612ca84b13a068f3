#pragma once

#include <trireme/deck/deck.hpp>

#include <string>
#include <vector>

namespace trireme::deck {

/// Keys that 2bw cannot be combined with: it computes two steps at a time, with weights of their
/// own.
std::vector<std::string> overlap_mistakes(const Deck& deck);

/// Keys that cannot be combined with replicas that divide gradients or weights.
std::vector<std::string> sharding_mistakes(const Deck& deck);

/// Keys with which the gradient of a replica's first micro-batch is not known, for an estimate of
/// the gradient noise scale.
std::vector<std::string> noise_mistakes(const Deck& deck);

/// Values and combinations that local training cannot have.
std::vector<std::string> local_mistakes(const Deck& deck);

}  // namespace trireme::deck
