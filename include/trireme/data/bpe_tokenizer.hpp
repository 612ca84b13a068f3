#pragma once

#include <trireme/data/bpe_merges.hpp>
#include <trireme/data/bpe_model.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/data/word_splitter.hpp>

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace trireme::data {

/// Byte-level BPE: patterns split text into words, and the bytes of each word are merged.
class BpeTokenizer final : public Tokenizer {
 public:
  /// `end_of_document` as in TokenizerSource; errors name `where`, the file of the model.
  BpeTokenizer(BpeModel model, const std::string& end_of_document, const std::string& where);

  const std::string& name() const override { return name_; }
  std::int64_t vocabulary() const override { return std::ssize(model_.tokens); }
  std::int32_t end_of_document() const override { return end_of_document_; }
  std::vector<std::pair<std::string, std::int32_t>> special_tokens() const override {
    return data::special_tokens(model_.added);
  }
  std::unique_ptr<Encoder> encoder(const EncodeOptions& options) const override;
  void decode(std::span<const std::int32_t> ids, std::string& out) const override;

  const BpeModel& model() const { return model_; }
  /// Appends the ids of one word; for encoders.
  void encode_word(std::string_view word, std::vector<std::int32_t>& out) const;
  const std::vector<std::unique_ptr<WordPattern>>& patterns() const { return patterns_; }

 private:
  BpeModel model_;
  std::string where_;
  std::string name_;
  std::int32_t end_of_document_ = 0;
  BpeMerges merges_;
  std::array<std::int32_t, 256> id_of_byte_;  // -1: none
  std::vector<std::unique_ptr<WordPattern>> patterns_;
  std::unordered_map<std::string_view, std::int32_t> whole_words_;  // empty without ignore_merges
};

}  // namespace trireme::data
