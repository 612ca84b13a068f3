#pragma once

#include <trireme/data/json_node.hpp>
#include <trireme/data/text_step.hpp>
#include <trireme/data/token_names.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme {
class Checksum;
}

namespace trireme::data {

/// Converts words to ids. Not thread-safe. The model must outlive the encoder.
class WordEncoder {
 public:
  virtual ~WordEncoder() = default;
  /// Appends the ids that no later byte of the word can change, and returns the number of bytes
  /// consumed, like TextStep::run.
  virtual std::size_t run(std::string_view text, Edge edge, std::vector<std::int32_t>& out) = 0;
};

/// The `model` of a tokenizer.json. Thread-safe.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// "bpe", "unigram" or "wordpiece", the prefix of Tokenizer::name().
  virtual const char* kind() const = 0;
  virtual std::unique_ptr<WordEncoder> encoder() const = 0;
  /// Adds to the digest all properties on which ids depend, except the names of the tokens.
  virtual void add_to(Checksum& sum) const = 0;
};

/// Reads a model of type BPE, Unigram or WordPiece and adds its tokens to `names`, which must
/// outlive the model. A hidden name (TokenNames::hide) in a text is not encoded as its token.
std::unique_ptr<TokenModel> make_model(const JsonNode& node, TokenNames& names);

/// Adds `model.type` to a tokenizer.json if it is missing, as in files of the `tokenizers` library
/// before 0.9. The model's members determine the type.
void add_model_type(nlohmann::json& top);

/// Adds the tokens of a JSON object {name: id} to `names`.
void read_token_object(const JsonNode& node, TokenNames& names);
/// Calls use(left, right, node) with the names and the JSON node of each merge of a list.
template <class Use>
void read_merge_list(const JsonNode& node, const Use& use) {
  if (!node.json.is_array()) node.refuse("a list");
  for (std::size_t i = 0; i < node.json.size(); ++i) {
    const JsonNode merge = node[i];
    if (merge.json.is_string()) {
      const std::string& both = merge.string();
      if (both.starts_with("#version")) continue;
      const std::size_t blank = both.find(' ');
      if (blank == std::string::npos || both.find(' ', blank + 1) != std::string::npos)
        merge.refuse("two tokens with a space between them");
      use(both.substr(0, blank), both.substr(blank + 1), merge);
      continue;
    }
    if (!merge.json.is_array() || merge.json.size() != 2 || !merge.json[0].is_string() ||
        !merge.json[1].is_string())
      merge.refuse("two tokens");
    use(merge.json[0].get_ref<const std::string&>(), merge.json[1].get_ref<const std::string&>(),
        merge);
  }
}

}  // namespace trireme::data
