#pragma once

#include <trireme/data/added_tokens.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::data {

/// Two neighbouring tokens that become one. Earlier merges of the list have priority.
struct BpeMerge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t result = 0;
};

/// A byte-level BPE tokenizer (Sennrich et al. 2016; Radford et al. 2019).
struct BpeModel {
  /// The bytes of each id; "" for an unused id.
  std::vector<std::string> tokens;
  std::vector<BpeMerge> merges;
  std::vector<AddedToken> added;
  /// Regular expressions that split a text into words; each splits the words of the previous one.
  /// Text between matches is a word too. Empty: the text is one word.
  std::vector<std::string> patterns;
  bool add_prefix_space = false;  ///< a blank is put before a text that does not begin with one
  bool ignore_merges = false;     ///< a word that is a token becomes that token without merges
};

/// GPT-2's pattern: English contractions; runs of letters, of digits, of other characters, each
/// with the blank before it; runs of white space.
inline constexpr char gpt2_pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Whether a tokenizer.json is a BPE on bytes without a normalizer, whose words are found by
/// splitting patterns alone. Other tokenizers are read by pipeline_tokenizer.hpp.
bool is_byte_level(const nlohmann::json& json);

/// Reads such a tokenizer.json; errors name `path`.
BpeModel read_byte_level_bpe(const nlohmann::json& json, const std::string& path);
BpeModel parse_tokenizer_json(const std::string& json, const std::string& path);
/// Reads GPT-2's `vocab.json` and `merges.txt` of a folder.
BpeModel read_bpe_folder(const std::string& folder);

/// A tokenizer.json for Hugging Face's tokenizers. The model's only pattern must be GPT-2's.
std::string tokenizer_json(const BpeModel& model);

}  // namespace trireme::data
