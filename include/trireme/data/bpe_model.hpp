#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::data {

/// Two neighbouring tokens that become one; merges are listed with the most urgent first.
struct BpeMerge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t result = 0;
};

/// A token that is looked for in the text before anything is split or merged, as in Hugging Face's
/// `added_tokens`.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;     ///< only encoded where EncodeOptions asks for it
  bool normalized = false;  ///< looked for in what those without this have left
  bool strips = false;      ///< lstrip, rstrip or single_word, which are not implemented
};

/// What a byte-level BPE tokenizer is made of (Sennrich et al. 2016; Radford et al. 2019).
struct BpeModel {
  /// The bytes that each id stands for; "" for an id that nothing has.
  std::vector<std::string> tokens;
  std::vector<BpeMerge> merges;
  std::vector<AddedToken> added;
  /// Regular expressions that part a text into words, each parting the words of the one before;
  /// what one does not match is a word too. Empty: the text is one word.
  std::vector<std::string> patterns;
  bool add_prefix_space = false;  ///< a text that does not begin with a blank is given one
  bool ignore_merges = false;     ///< a word that is a token is that token, whatever merges say
};

/// GPT-2's: English contractions; runs of letters, of digits, of other characters, each with the
/// blank before it; runs of white space.
inline constexpr char gpt2_pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Reads a `tokenizer.json` of Hugging Face's tokenizers, or the one in a folder, or GPT-2's
/// `vocab.json` and `merges.txt` in a folder. UsageError for a file that is none, and for what it
/// asks for and is not implemented: with the key, its value and what is supported.
BpeModel read_bpe(const std::string& path);

/// The same from a tokenizer.json's text; errors name `path`.
BpeModel parse_tokenizer_json(const std::string& json, const std::string& path);

/// A tokenizer.json that Hugging Face's tokenizers reads, for a model whose only pattern is
/// GPT-2's.
std::string tokenizer_json(const BpeModel& model);

}  // namespace trireme::data
