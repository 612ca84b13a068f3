#pragma once

#include <trireme/data/chat_lines.hpp>
#include <trireme/data/image_lines.hpp>
#include <trireme/data/json_lines.hpp>
#include <trireme/data/token_source.hpp>
#include <trireme/data/tokenizer.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace trireme::data {

/// Tokens of a document with its end-of-document token, and which of them count in the loss.
struct CountedTokens {
  std::vector<std::int32_t> ids;
  /// Lengths of consecutive runs of tokens, and whether each run counts.
  std::vector<std::pair<std::int64_t, bool>> runs;
  std::int64_t text_bytes = 0;
  std::vector<std::string> images = {};  ///< paths as written in the line, in order
};

/// Converts JSON lines to tokens. Tokens that count in the loss, by the form of the line:
///
///   {"text"}                       all tokens
///   {"prompt", "completion"}       the completion and the end of the document
///   {"source", "target"}           the target and its end; an end of the document follows both
///   {"messages": [{"role", "content"}, ...], "tools"}   the assistant's answers whose loss weight
///   is not 0, and the tokens that end them
///
/// With images, lines of all forms but {"source", "target"} may have "image" or "images", and
/// messages image parts. Image tokens do not count.
class InstructionEncoder {
 public:
  /// `special_tokens`: encodes names of special tokens in texts as these tokens; otherwise the
  /// names are text, and an error in conversations. UsageError as for expect_special_tokens(), and
  /// unless the tokenizer has the images' token. The tokenizer must outlive this object.
  InstructionEncoder(const Tokenizer& tokenizer, ChatFormat format, bool special_tokens,
                     const std::optional<ImageText>& images = std::nullopt);

  /// Tokens of a line; no tokens if the line has no text. UsageError with the line's place if the
  /// line is invalid.
  CountedTokens encode(const JsonLine& line);

 private:
  std::vector<std::int32_t> ids_of(std::string_view text, bool special_tokens);
  CountedTokens encode_form(const JsonLine& line);
  std::int64_t bytes_without_marks(const CountedTokens& document, const std::string& words) const;
  CountedTokens encode_text(const JsonLine& line);
  CountedTokens encode_completion(const JsonLine& line);
  CountedTokens encode_pair(const JsonLine& line);
  CountedTokens encode_messages(const JsonLine& line);
  /// Marks the images of a line in its text and writes their surroundings. Returns the paths.
  std::vector<std::string> place_images(const JsonLine& line, std::string& words) const;
  void expect_plain_text(const JsonLine& line, const std::string& words) const;
  void expect_no_mark(const JsonLine& line, const char* key) const;
  /// Replaces each image token by its copies, which do not count.
  void copy_image_tokens(const JsonLine& line, CountedTokens& document) const;

  const Tokenizer& tokenizer_;
  ChatFormat format_;
  bool special_tokens_;
  std::optional<ImageText> images_;
  std::int32_t image_id_ = -1;
  std::unique_ptr<Encoder> plain_;    ///< treats names of special tokens as text
  std::unique_ptr<Encoder> special_;  ///< encodes names of special tokens as these tokens
};

/// UsageError unless the tokenizer has the format's special tokens. `tools`: also the special
/// tokens for tools.
void expect_special_tokens(const Tokenizer& tokenizer, ChatFormat format, bool tools);

/// Texts of a line, for training a tokenizer: of a conversation, the texts between its special
/// tokens; of any other line, one text, or with images the texts between them.
std::vector<std::string> texts_of(const JsonLine& line, ChatFormat format,
                                  const std::optional<ImageText>& images = std::nullopt);

/// An example of a line, for messages.
extern const char* const instruction_form;

/// Ids of the special tokens that end counted parts of documents, such as <|im_end|>, without the
/// end-of-document token. Reads at most 256 documents and 2^20 tokens. Empty if the file
/// has no mask.
std::set<std::int64_t> answer_ends(const TokenSource& tokens, const Tokenizer& tokenizer);

}  // namespace trireme::data
