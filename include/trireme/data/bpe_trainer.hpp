#pragma once

#include <trireme/data/added_tokens.hpp>
#include <trireme/data/bpe_merges.hpp>
#include <trireme/data/word_splitter.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme::data {

/// A byte-level BPE that splits text into words by GPT-2's pattern.
struct BpeModel {
  std::vector<std::string> tokens;  ///< the bytes of each id
  std::vector<BpeMerge> merges;
  std::vector<AddedToken> added;
};

/// Text of the model's tokenizer.json.
std::string tokenizer_json(const BpeModel& model);

/// Learns a byte-level BPE from texts: counts the words that GPT-2's pattern finds, then repeatedly
/// merges the most frequent pair of neighbours (Sennrich et al. 2016), of equally frequent pairs
/// the pair with the lowest ids.
class BpeTrainer {
 public:
  BpeTrainer();

  /// Counts the words in the next piece of the current text.
  void feed(std::string_view bytes);
  void end_document();

  /// A model of `vocabulary` ids: "<|endoftext|>" (id 0), the special tokens `special`, the 256
  /// bytes, and merged tokens; fewer ids if no pair remains. UsageError if `vocabulary` is too
  /// small for the ids before the merged tokens, or more than 2^24.
  BpeModel train(std::int64_t vocabulary, std::span<const std::string_view> special = {}) const;

 private:
  void count(std::string_view word);

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const {
      return std::hash<std::string_view>()(word);
    }
  };
  std::vector<std::unique_ptr<WordPattern>> patterns_;
  WordSplitter splitter_;
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> counts_;
};

}  // namespace trireme::data
