#pragma once

#include <trireme/data/json_node.hpp>
#include <trireme/data/text_step.hpp>

#include <memory>
#include <string>
#include <vector>

namespace trireme::data {

/// A step of a tokenizer.json's decoder. Thread-safe.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  /// Transforms the tokens of a part of a document, whose position in the document is `edge`.
  virtual void run(std::vector<std::string>& tokens, Edge edge) const = 0;
  /// Whether a document may be decoded in parts, cut where is_cut() is true. `fused`: an earlier
  /// step has merged all tokens into one.
  virtual bool works_in_parts(bool fused) const { return !fused; }
  virtual bool fuses() const { return false; }
};

using DecodeSteps = std::vector<std::unique_ptr<DecodeStep>>;

/// The steps of a tokenizer.json's `decoder`; for a null node, a step that puts spaces between
/// tokens.
DecodeSteps make_decode_steps(const JsonNode& node);

/// Whether the token is one of "<0x00>" to "<0xFF>", with upper- or lower-case digits.
bool is_byte_token(const std::string& token);

/// Whether a part may end between two tokens: not between two byte tokens.
bool is_cut(const std::string& left, const std::string& right);

}  // namespace trireme::data
