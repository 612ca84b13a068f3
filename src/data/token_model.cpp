// The table of models of a tokenizer.json.
#include <trireme/data/token_model.hpp>

#include <trireme/data/bpe_words.hpp>
#include <trireme/data/unigram.hpp>
#include <trireme/data/word_piece.hpp>

#include <array>

namespace trireme::data {
namespace {

using Build = std::unique_ptr<TokenModel> (*)(const JsonNode&, TokenNames&);

constexpr std::array<JsonPart<Build>, 3> table{{
    {"BPE", make_bpe_model},
    {"Unigram", make_unigram_model},
    {"WordPiece", make_word_piece_model},
}};

}  // namespace

std::unique_ptr<TokenModel> make_model(const JsonNode& node, TokenNames& names) {
  return part_of_type(node, table).build(node, names);
}

void read_token_object(const JsonNode& node, TokenNames& names) {
  if (!node.json.is_object()) node.refuse("an object of tokens and ids");
  for (const auto& [token, id] : node.json.items())
    names.add(token, JsonNode{id, node.path + "." + token}.id(), node.path);
}

}  // namespace trireme::data
