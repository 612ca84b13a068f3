#pragma once

#include <trireme/deck/deck.hpp>

#include <string>
#include <vector>

namespace trireme::deck {

/// Keys of [adapter] that contradict one another or the model: one message each, with the places.
std::vector<std::string> adapter_mistakes(const Deck& deck);

}  // namespace trireme::deck
