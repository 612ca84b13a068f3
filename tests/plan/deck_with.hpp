#pragma once

#include <trireme/deck/deck.hpp>

#include <string>
#include <vector>

namespace trireme::testing {

/// A small deck, "a.toml". `keys` begin in line 16 and start with their own section.
inline deck::Deck deck_with(const std::string& keys,
                            const std::vector<std::string>& overrides = {}) {
  const std::string before = R"([run]
steps = 20
[model]
layers = 2
hidden = 64
heads = 4
sequence = 64
vocabulary = 257
[batch]
global = 8
micro = 2
[optimizer]
learning_rate = 3e-3
[data]
train = "data/tiny.h5"
)";
  return deck::parse_deck(before + keys + "\n", "a.toml", overrides);
}

}  // namespace trireme::testing
