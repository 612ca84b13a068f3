#pragma once

#include <trireme/data/tokenizer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

/// The text that continues a document, token by token, up to a stop text. The tokenizer must
/// outlive it.
class TextStream {
 public:
  /// `before`: the document's ids so far. `stops`: texts that end this one and are not part of it.
  TextStream(const Tokenizer& tokenizer, std::span<const std::int32_t> before,
             std::vector<std::string> stops);

  /// The next token. Appends the text that is known by now to `out`: whole characters, and nothing
  /// that may begin a stop text. False if a stop text has come.
  bool feed(std::int32_t id, std::string& out);
  /// No more tokens come: appends the rest. False if a stop text has come.
  bool finish(std::string& out);

 private:
  std::string decoded(std::size_t end) const;
  void decode(bool all);
  bool release(bool all, std::string& out);

  const Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  std::size_t longest_ = 0;        ///< bytes of a stop text
  std::vector<std::int32_t> ids_;  ///< the last ones with a text, and those after them
  std::size_t read_ = 0;           ///< the number of the former
  std::string text_;               ///< known, and not appended to `out`
  bool stopped_ = false;
};

}  // namespace trireme::data
