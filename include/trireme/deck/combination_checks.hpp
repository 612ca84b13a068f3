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

}  // namespace trireme::deck
