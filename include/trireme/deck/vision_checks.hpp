#pragma once

#include <trireme/deck/deck.hpp>

#include <string>
#include <vector>

namespace trireme::deck {

/// Messages about keys of [vision] that contradict one another, the model, or parts of the deck
/// that do not support images.
std::vector<std::string> vision_mistakes(const Deck& deck);

}  // namespace trireme::deck
