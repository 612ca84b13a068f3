#pragma once

#include <trireme/data/decode_steps.hpp>
#include <trireme/data/tokenizer.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::data {

/// The parts of a tokenizer that decoders use.
struct TokenTexts {
  std::vector<std::string> names;  ///< name of each id; "" for an unused id
  DecodeSteps steps;
  std::int32_t end_of_document = 0;
  std::string where;  ///< path of the tokenizer's file, for errors
};

/// Decodes documents. A long document is decoded in parts if all steps allow it. `texts` must
/// outlive the decoder.
class DocumentDecoder final : public Decoder {
 public:
  explicit DocumentDecoder(const TokenTexts& texts);
  void feed(std::span<const std::int32_t> ids, std::string& out) override;
  void finish(std::string& out) override;

 private:
  /// Decodes and removes the first `count` tokens of tokens_. `last`: they end the document.
  void decode(std::size_t count, bool last, std::string& out);

  const TokenTexts& texts_;
  bool in_parts_ = true;
  bool first_ = true;  // no part of the document has been decoded yet
  std::vector<std::string> tokens_;
};

}  // namespace trireme::data
