#pragma once

#include <trireme/deck/deck.hpp>
#include <trireme/deck/table.hpp>

#include <string>
#include <vector>

namespace trireme::deck {

/// A key that two decks give different values. Values are written as in a deck: strings in quotes.
struct Difference {
  std::string section;
  std::string name;
  std::string stored;
  std::string current;
  std::string place;  ///< of the current value: Deck::where
  Effect effect = Effect::none;

  std::string full_name() const { return section + "." + name; }
};

/// The keys whose values differ, in the key table's order. Paths are compared as they are written.
std::vector<Difference> differences(const Deck& stored, const Deck& current);

}  // namespace trireme::deck
