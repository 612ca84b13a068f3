#pragma once

#include <trireme/deck/deck.hpp>

#include <string>
#include <vector>

namespace trireme::deck {

/// Keys of [precision] that contradict precision.compute or the model: one message each, with the
/// places of both.
std::vector<std::string> precision_mistakes(const Deck& deck);

}  // namespace trireme::deck
