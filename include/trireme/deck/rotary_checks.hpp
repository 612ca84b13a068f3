#pragma once

#include <trireme/deck/deck.hpp>

#include <string>
#include <vector>

namespace trireme::deck {

/// Heads that cannot be rotated, and keys of rotary positions for longer sequences that are missing
/// or contradict one another.
std::vector<std::string> rotary_mistakes(const Deck& deck);

}  // namespace trireme::deck
