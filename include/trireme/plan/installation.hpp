#pragma once

#include <trireme/deck/deck.hpp>

namespace trireme::plan {

/// Throws a UsageError where the deck asks for what this installation lacks. Every command that
/// reads a deck for running it, or on its behalf, calls it first.
void expect_installation(const deck::Deck& deck);

}  // namespace trireme::plan
