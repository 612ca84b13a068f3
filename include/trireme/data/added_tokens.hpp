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

/// A token that is found in the text before splitting and merging (Hugging Face's `added_tokens`).
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;      ///< encoded only with EncodeOptions::special_tokens
  bool normalized = false;   ///< matched in normalized text, after the tokens without this flag
  bool lstrip = false;       ///< a match includes the white space before the token
  bool rstrip = false;       ///< a match includes the white space after the token
  bool single_word = false;  ///< matches only where no word character is adjacent
};

/// Reads `added_tokens` of a tokenizer.json. Skips tokens with empty content.
std::vector<AddedToken> read_added_tokens(const JsonNode& node);

/// Names of the model's tokens and of the added tokens, indexed by id; "" for an unused id.
/// UsageError that names `node` if an id is too large or has two names, or if a token has two ids.
std::vector<std::string> names_with(const TokenNames& names, const std::vector<AddedToken>& added,
                                    const JsonNode& node);

/// The added tokens with this value of the flag `normalized`, as literals. Special tokens are
/// ignored literals unless options.special_tokens is set.
std::vector<LiteralSplitter::Literal> literals_of(const std::vector<AddedToken>& added,
                                                  const EncodeOptions& options, bool normalized);

/// Names and ids of the special tokens in `added`, for Tokenizer::special_tokens().
std::vector<std::pair<std::string, std::int32_t>> special_tokens(
    const std::vector<AddedToken>& added);

/// Adds to the digest all properties of the added tokens on which ids depend.
void add_to(Checksum& sum, const std::vector<AddedToken>& added);

/// Id of the special token that ends documents; UsageError that names `where` without such a token.
/// `wanted`: TokenizerSource::end_of_document.
std::int32_t find_end_of_document(const std::vector<AddedToken>& added, const std::string& wanted,
                                  const std::string& where);

}  // namespace trireme::data
