#pragma once

#include <trireme/data/json_node.hpp>
#include <trireme/data/text_step.hpp>

#include <memory>
#include <string>
#include <vector>

namespace trireme::data {

/// A decoder of a tokenizer.json. Thread-safe.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  /// Changes the tokens of a part of a document. `edge`: whether the part is the first or the last.
  virtual void run(std::vector<std::string>& tokens, Edge edge) const = 0;
  /// Whether a document can be decoded in parts, cut where is_cut() allows. `fused`: an earlier
  /// step has merged all tokens into one.
  virtual bool works_in_parts(bool fused) const { return !fused; }
  virtual bool fuses() const { return false; }
};

using DecodeSteps = std::vector<std::unique_ptr<DecodeStep>>;

/// The steps of `decoder` of a tokenizer.json; null: joins the tokens with spaces.
DecodeSteps make_decode_steps(const JsonNode& node);

/// Whether the token is one of "<0x00>" to "<0xFF>".
bool is_byte_token(const std::string& token);

/// Whether a part of a document may end between two tokens; false between bytes of one character.
bool is_cut(const std::string& left, const std::string& right);

}  // namespace trireme::data
