#pragma once

#include <trireme/data/json_node.hpp>
#include <trireme/data/literal_splitter.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trireme {
class Checksum;
}

namespace trireme::data {

struct EncodeOptions;
class TokenNames;

/// A token that is found in the text before splitting and merging, as in Hugging Face's
/// `added_tokens`.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;      ///< encoded only if EncodeOptions asks for it
  bool normalized = false;   ///< matched in normalized text, after the other tokens
  bool lstrip = false;       ///< includes the white space before it
  bool rstrip = false;       ///< includes the white space after it
  bool single_word = false;  ///< matches only where no word character is adjacent
};

/// Reads `added_tokens` of a tokenizer.json; null: none. Skips tokens without content.
std::vector<AddedToken> read_added_tokens(const JsonNode& node);

/// Names by id of the model's tokens and of `added`. UsageError, which names `node`, if an id has
/// two names, a token of the model has another id, or an id is so large that it wastes memory.
std::vector<std::string> names_with(const TokenNames& names, const std::vector<AddedToken>& added,
                                    const JsonNode& node);

/// The tokens to match whose flag `normalized` has this value.
std::vector<LiteralSplitter::Literal> literals_of(const std::vector<AddedToken>& added,
                                                  const EncodeOptions& options, bool normalized);

/// Names and ids of the special tokens, as in Tokenizer::special_tokens().
std::vector<std::pair<std::string, std::int32_t>> special_tokens(
    const std::vector<AddedToken>& added);

/// Adds all properties that ids depend on to the digest.
void add_to(Checksum& sum, const std::vector<AddedToken>& added);

/// The id of the token that ends documents, as in TokenizerSource; UsageError naming `where` if
/// there is none.
std::int32_t find_end_of_document(const std::vector<AddedToken>& added, const std::string& wanted,
                                  const std::string& where);

}  // namespace trireme::data
