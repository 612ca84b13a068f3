#pragma once

#include <trireme/deck/deck.hpp>

#include <string>
#include <vector>

namespace trireme::deck {

/// Contradictions between properties of the model, each with its remedy.
std::vector<std::string> property_mistakes(const Deck& deck);

}  // namespace trireme::deck
