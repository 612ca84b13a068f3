// The table of models of a tokenizer.json.
#include <trireme/data/token_model.hpp>

#include <trireme/data/bpe_words.hpp>
#include <trireme/data/unigram.hpp>
#include <trireme/data/word_piece.hpp>

#include <array>

namespace trireme::data {
namespace {

using Build = std::unique_ptr<TokenModel> (*)(const JsonNode&, TokenNames&);

constexpr std::array<JsonPart<Build>, 3> models{{
    {"BPE", make_bpe_model},
    {"Unigram", make_unigram_model},
    {"WordPiece", make_word_piece_model},
}};

}  // namespace

std::unique_ptr<TokenModel> make_model(const JsonNode& node, TokenNames& names) {
  return part_of_type(node, models).build(node, names);
}

void add_model_type(nlohmann::json& top) {
  const auto found = top.find("model");
  if (found == top.end() || !found->is_object() || found->contains("type")) return;
  const auto has = [&](const char* key, auto test) {
    const auto member = found->find(key);
    return member != found->end() && test(*member);
  };
  const auto object = [](const auto& json) { return json.is_object(); };
  const auto list = [](const auto& json) { return json.is_array(); };
  const auto word = [](const auto& json) { return json.is_string(); };
  const auto count = [](const auto& json) { return json.is_number_integer(); };
  if (has("vocab", object) && has("merges", list))
    (*found)["type"] = "BPE";
  else if (has("vocab", object) && has("unk_token", word) &&
           has("continuing_subword_prefix", word) && has("max_input_chars_per_word", count))
    (*found)["type"] = "WordPiece";
  else if (has("vocab", object) && has("unk_token", word))
    (*found)["type"] = "WordLevel";
  else if (has("vocab", list))
    (*found)["type"] = "Unigram";
}

void read_token_object(const JsonNode& node, TokenNames& names) {
  if (!node.json.is_object()) node.refuse("an object of tokens and ids");
  for (const auto& [token, id] : node.json.items())
    names.add(token, JsonNode{id, node.path + "." + token}.id(), node.path);
}

}  // namespace trireme::data
