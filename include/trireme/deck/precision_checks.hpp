#pragma once

#include <trireme/deck/deck.hpp>

#include <string>
#include <vector>

namespace trireme::deck {

/// Keys of [precision] that contradict the type that is computed with, or the model: one sentence
/// each, with the places of both.
std::vector<std::string> precision_mistakes(const Deck& deck);

}  // namespace trireme::deck
