#pragma once

#include <trireme/data/chat_lines.hpp>
#include <trireme/data/json_lines.hpp>
#include <trireme/data/token_source.hpp>
#include <trireme/data/tokenizer.hpp>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace trireme::data {

/// A document of which only some tokens count in the loss. Includes its end-of-document token.
struct CountedTokens {
  std::vector<std::int32_t> ids;
  /// Lengths of consecutive runs of tokens, and whether each run counts.
  std::vector<std::pair<std::int64_t, bool>> runs;
  std::int64_t text_bytes = 0;
};

/// Tokens of JSON lines, and the tokens that count:
///
///   {"text"}                       all tokens
///   {"prompt", "completion"}       the completion and the end of the document
///   {"messages": [{"role", "content"}, ...], "tools"}   the assistant's answers whose loss weight
///   is not 0, and the tokens that end them
class InstructionEncoder {
 public:
  /// `special_tokens`: whether names of special tokens in texts become these tokens. UsageError
  /// unless the tokenizer has the special tokens of the format. The tokenizer must outlive this
  /// object.
  InstructionEncoder(const Tokenizer& tokenizer, ChatFormat format, bool special_tokens);

  /// The tokens of a line; no ids if the line has no text. UsageError with the line's place.
  CountedTokens encode(const JsonLine& line);

 private:
  std::vector<std::int32_t> ids_of(std::string_view text, bool special_tokens);
  CountedTokens encode_text(const JsonLine& line);
  CountedTokens encode_completion(const JsonLine& line);
  CountedTokens encode_messages(const JsonLine& line);

  const Tokenizer& tokenizer_;
  ChatFormat format_;
  bool special_tokens_;
  std::unique_ptr<Encoder> plain_;    ///< treats names of special tokens as text
  std::unique_ptr<Encoder> special_;  ///< encodes them as special tokens
};

/// UsageError unless the tokenizer has the format's special tokens, with or without the tokens for
/// tools.
void expect_special_tokens(const Tokenizer& tokenizer, ChatFormat format, bool tools);

/// The texts of a line for training a tokenizer: a conversation's texts between its special tokens,
/// or the text of any other line.
std::vector<std::string> texts_of(const JsonLine& line, ChatFormat format);

/// An example of a line, for messages.
extern const char* const instruction_form;

/// The special tokens that end counted parts of documents, such as <|im_end|> of chats, without the
/// end of the document: a model that was trained on the file ends its answers with them. Reads the
/// first documents of a file with a mask; empty for a file without a mask.
std::set<std::int64_t> answer_ends(const TokenSource& tokens, const Tokenizer& tokenizer);

}  // namespace trireme::data
