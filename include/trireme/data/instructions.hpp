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

/// A document whose tokens count in the loss in part. Its end-of-document token is among them.
struct CountedTokens {
  std::vector<std::int32_t> ids;
  /// Consecutive runs of tokens: how many, and whether they count.
  std::vector<std::pair<std::int64_t, bool>> runs;
  std::int64_t text_bytes = 0;
};

/// Tokens of JSON lines:
///
///   {"text"}                       all count
///   {"prompt", "completion"}       those of the completion and the end of the document count
///   {"messages": [{"role", "content"}, ...], "tools"}   the assistant's answers whose loss weight
///   is not 0, and the tokens that end them
class InstructionEncoder {
 public:
  /// `special_tokens`: their names in texts are encoded as these tokens. UsageError unless the
  /// tokenizer has the special tokens of the format. The tokenizer must outlive this.
  InstructionEncoder(const Tokenizer& tokenizer, ChatFormat format, bool special_tokens);

  /// Without ids if the line has no text. UsageError with the line's place.
  CountedTokens encode(const JsonLine& line);

 private:
  std::vector<std::int32_t> ids_of(std::string_view text, bool special_tokens);
  CountedTokens encode_text(const JsonLine& line);
  CountedTokens encode_completion(const JsonLine& line);
  CountedTokens encode_messages(const JsonLine& line);

  const Tokenizer& tokenizer_;
  ChatFormat format_;
  bool special_tokens_;
  std::unique_ptr<Encoder> plain_;    ///< names of special tokens are text
  std::unique_ptr<Encoder> special_;  ///< they are tokens
};

/// UsageError unless the tokenizer has the special tokens of the format, with or without those of
/// tools.
void expect_special_tokens(const Tokenizer& tokenizer, ChatFormat format, bool tools);

/// The texts of a line for training a tokenizer: those between the special tokens of a
/// conversation, and the text of another line.
std::vector<std::string> texts_of(const JsonLine& line, ChatFormat format);

/// An example of a line, for messages.
extern const char* const instruction_form;

/// The special tokens with which parts that count in the loss end, such as <|im_end|> of chats,
/// without the end of the document: a model that was trained on the file ends its answers with
/// them. Reads the first documents of a file with a mask; none for a file without one.
std::set<std::int64_t> answer_ends(const TokenSource& tokens, const Tokenizer& tokenizer);

}  // namespace trireme::data
