#pragma once

#include <trireme/data/chat.hpp>
#include <trireme/data/json_lines.hpp>
#include <trireme/data/tokenizer.hpp>

#include <initializer_list>
#include <string>
#include <string_view>

/// Conversations in JSON lines. docs/token_files.md lists the members that lines may have.
namespace trireme::data {

/// The conversation of a line {"messages": [{"role", "content"}, ...], "tools": [...]}. A content
/// may be a list of parts {"type": "text", "text"} and {"type": "image", "image": path}, which
/// becomes one text with `image_mark` for each image. UsageError with the line's place for any
/// other line, and for images if `image_mark` is "".
Chat chat_of(const JsonLine& line, std::string_view image_mark = {});

/// UsageError for a member that has a value and is neither in `read` nor a description of the data,
/// and for a loss weight other than 1 or true.
void expect_known_members(const JsonLine& line, std::initializer_list<std::string_view> read);
/// UsageError for a loss weight of the line other than 1 or true.
void expect_full_weight(const JsonLine& line);

/// UsageError if a text of the conversation contains the name of a special token, which could end
/// the turn. The message begins with `where` and ends with `remedy`.
void expect_plain(const Chat& chat, const Tokenizer& tokenizer, const std::string& where,
                  const std::string& remedy);

}  // namespace trireme::data
