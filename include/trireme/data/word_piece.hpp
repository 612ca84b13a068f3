#pragma once

#include <trireme/data/token_model.hpp>

#include <memory>

namespace trireme::data {

/// A model of type WordPiece. The names must outlive it.
std::unique_ptr<TokenModel> make_word_piece_model(const JsonNode& node, TokenNames& names);

}  // namespace trireme::data
