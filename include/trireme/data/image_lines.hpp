#pragma once

#include <trireme/data/chat.hpp>
#include <trireme/data/json_lines.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Images of JSON lines, and the places of images in texts. docs/token_files.md describes the
/// lines.
namespace trireme::data {

/// How images stand in texts. The name `token` in a text marks the place of an image. There, the
/// document has the tokens of `begin`, `copies` times the token, and the tokens of `end`.
struct ImageText {
  std::string token = "<image>";  ///< name of a special token of the tokenizer
  std::int64_t copies = 0;
  std::string begin = {};  ///< text, in which names of special tokens are these tokens
  std::string end = {};    ///< the same
};

/// Whether the line has a member "image" or "images" with a value.
bool has_images(const JsonLine& line);
/// Paths of the member "image" or "images", as written; empty without both. UsageError for both,
/// for other values, and for addresses (https://..., data:...).
std::vector<std::string> images_of(const JsonLine& line);

/// Number of marks in a text.
std::int64_t marks_in(std::string_view text, const ImageText& images);
/// The text with each mark replaced.
std::string with_marks_replaced(std::string_view text, const ImageText& images,
                                std::string_view replacement);

/// The text of a prompt with one mark for each of `count` images: before the text if it has no
/// marks. UsageError for another number of marks.
std::string marked(const JsonLine& line, std::string prompt, std::int64_t count,
                   const ImageText& images);
/// The same for a conversation. Images without marks stand before the first message of the user.
/// Returns the paths: of the parts of messages, where they have one, and of the line.
std::vector<std::string> mark_chat(const JsonLine& line, Chat& chat, const ImageText& images);

/// Writes `begin` and `end` around the marks of a conversation.
Conversation with_surroundings(const Conversation& conversation, const ImageText& images);

}  // namespace trireme::data
