#pragma once

#include <trireme/data/token_file.hpp>
#include <trireme/deck/deck.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::commands {

/// Sets model.vocabulary from the token file where the deck is silent, and holds both against each
/// other where it is not. `tokens` may be null if the file does not exist; then the deck must say
/// it. The deck's tokenizer must be known, and the file's.
void resolve_vocabulary(deck::Deck& deck, const data::TokenFile* tokens);

/// The deck as `ranks` ranks would run it, without MPI; 0: as many as its axes multiply to. The
/// token file need not exist if the deck names the vocabulary.
deck::Deck deck_for_ranks(const std::string& path, const std::vector<std::string>& overrides,
                          std::int64_t ranks);

/// The file of a deck key; the error for a missing one names the key, its place and the remedy.
data::TokenFile open_token_file(const deck::Deck& deck, const std::string& key);

/// Bytes of text per token id, to count bits per byte.
std::vector<std::int32_t> bytes_of_token(const std::string& tokenizer, std::int64_t vocabulary);

}  // namespace trireme::commands
