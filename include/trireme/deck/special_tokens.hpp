#pragma once

#include <trireme/deck/deck.hpp>

#include <string>
#include <vector>

namespace trireme::deck {

/// Mistakes in the special tokens of a bert deck whose vocabulary is known: they must be three
/// different ids of the vocabulary.
std::vector<std::string> mistakes_of_special_tokens(const Deck& deck);

/// Throws a UsageError unless bert's special tokens are three different ids of the vocabulary,
/// which must be resolved from the token file.
void check_special_tokens(const Deck& deck);

}  // namespace trireme::deck
