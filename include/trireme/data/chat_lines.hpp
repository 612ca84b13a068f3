#pragma once

#include <trireme/data/chat.hpp>
#include <trireme/data/json_lines.hpp>
#include <trireme/data/tokenizer.hpp>

#include <initializer_list>
#include <string>
#include <string_view>

/// Conversations in JSON lines. Each member of a line or message is read, or ignored because it
/// only describes the data (docs/token_files.md lists these members), or rejected.
namespace trireme::data {

/// The conversation of a line {"messages": [{"role", "content"}, ...], "tools": [...]}. UsageError
/// with the line's place.
Chat chat_of(const JsonLine& line);

/// UsageError for a member of the line that is neither in `read` nor a description of the data, and
/// for a loss weight other than 1.
void expect_known_members(const JsonLine& line, std::initializer_list<std::string_view> read);
/// UsageError for a loss weight of the line other than 1.
void expect_full_weight(const JsonLine& line);

/// UsageError that begins with `where` if a text of the conversation contains the name of a special
/// token, which could end the text's turn. `remedy` ends the message.
void expect_plain(const Chat& chat, const Tokenizer& tokenizer, const std::string& where,
                  const std::string& remedy);

}  // namespace trireme::data
