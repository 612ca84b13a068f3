#pragma once

#include <trireme/data/tokenizer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

/// Converts the tokens that continue a document to text, one token at a time, up to a stop text.
/// The tokenizer must outlive the object.
class TextStream {
 public:
  /// `before`: ids of the document so far. `stops`: texts that end the stream; they are not output.
  TextStream(const Tokenizer& tokenizer, std::span<const std::int32_t> before,
             std::vector<std::string> stops);

  /// Adds the next token. Appends the known text to `out`: the text before a stop text, if there is
  /// one; otherwise all but the last n − 1 bytes, where n is the length of the longest stop text.
  /// Returns false after a stop text.
  bool feed(std::int32_t id, std::string& out);
  /// Ends the stream and appends the remaining text. Returns false after a stop text.
  bool finish(std::string& out);

 private:
  std::string decoded(std::size_t end) const;
  void decode(bool all);
  bool release(bool all, std::string& out);

  const Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  std::size_t longest_ = 0;        ///< bytes of the longest stop text
  std::vector<std::int32_t> ids_;  ///< the last ids whose text is known, then newer ids
  std::size_t read_ = 0;           ///< number of ids in ids_ whose text is known
  std::string text_;               ///< known text that has not been output
  bool stopped_ = false;
};

}  // namespace trireme::data
