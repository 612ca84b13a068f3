#pragma once

#include <trireme/deck/deck.hpp>

#include <string>
#include <vector>

namespace trireme::deck {

/// What is wrong with the special tokens of a bert deck whose vocabulary is known: each must be an
/// id of it, and no two may be the same.
std::vector<std::string> mistakes_of_special_tokens(const Deck& deck);

/// That bert's special tokens are three different ids of a vocabulary which the token file has made
/// known. UsageError if not.
void check_special_tokens(const Deck& deck);

}  // namespace trireme::deck
