// Reads the images of JSON lines and marks their places in the texts of prompts and conversations.
#include <trireme/data/image_lines.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace trireme::data {
namespace {

bool has_value(const JsonLine& line, const char* key) {
  return line.has(key) && !line.json()[key].is_null() &&
         !(line.json()[key].is_array() && line.json()[key].empty());
}

[[noreturn]] void refuse_count(const JsonLine& line, std::int64_t images, std::int64_t marks,
                               const ImageText& form) {
  throw UsageError(text(line.where(), ": has ", images, images == 1 ? " image" : " images",
                        ", but ", form.token, " ", marks, marks == 1 ? " time" : " times",
                        " in its texts; write it once for each image, or for none"));
}

void expect_path(const JsonLine& line, const std::string& path) {
  const bool address = path.find("://") != path.npos || path.starts_with("data:");
  if (address)
    throw UsageError(text(line.where(), ": names the image ", path.substr(0, 60),
                          ", but only files are read; download it and write its path"));
  if (path.empty() || path.find('\0') != path.npos)
    throw UsageError(text(line.where(),
                          ": names an image by an empty path, or by one with a zero "
                          "byte; write the path of a file"));
}

/// Calls use(part, is_mark) for the parts of a text between marks, and for the marks.
template <class Use>
void for_each_part(std::string_view words, std::string_view mark, const Use& use) {
  while (true) {
    const std::size_t found = words.find(mark);
    use(words.substr(0, found), false);
    if (found == words.npos) return;
    use(mark, true);
    words.remove_prefix(found + mark.size());
  }
}

}  // namespace

bool has_images(const JsonLine& line) {
  return has_value(line, "image") || has_value(line, "images");
}

std::vector<std::string> images_of(const JsonLine& line) {
  if (!has_images(line)) return {};
  if (has_value(line, "image") && has_value(line, "images"))
    line.refuse("has both \"image\" and \"images\"; keep one");
  std::vector<std::string> paths;
  if (has_value(line, "images"))
    paths = line.strings("images");
  else if (line.json()["image"].is_string())
    paths = {line.string("image")};
  else
    line.refuse("image", "the path of a file");
  for (const auto& path : paths) expect_path(line, path);
  return paths;
}

std::int64_t marks_in(std::string_view words, const ImageText& images) {
  std::int64_t marks = 0;
  for_each_part(words, images.token,
                [&](std::string_view, bool is_mark) { marks += is_mark ? 1 : 0; });
  return marks;
}

std::string with_marks_replaced(std::string_view words, const ImageText& images,
                                std::string_view replacement) {
  std::string out;
  for_each_part(words, images.token,
                [&](std::string_view part, bool is_mark) { out += is_mark ? replacement : part; });
  return out;
}

std::string marked(const JsonLine& line, std::string prompt, std::int64_t count,
                   const ImageText& images) {
  const std::int64_t marks = marks_in(prompt, images);
  if (marks == count) return prompt;
  if (marks > 0) refuse_count(line, count, marks, images);
  std::string before;
  for (std::int64_t i = 0; i < count; ++i) before += images.token;
  return before + prompt;
}

std::vector<std::string> mark_chat(const JsonLine& line, Chat& chat, const ImageText& images) {
  std::vector<std::string> listed = images_of(line);
  std::vector<std::string> paths;
  auto next = listed.begin();
  for (const std::string& path : chat.images) {  // of parts of messages
    if (path.empty() && next == listed.end())
      throw UsageError(text(line.where(),
                            ": has a part {\"type\": \"image\"} without a path, but "
                            "no further image in \"images\"; write {\"type\": "
                            "\"image\", \"image\": \"PATH\"}"));
    if (!path.empty()) expect_path(line, path);
    paths.push_back(path.empty() ? *next++ : path);
  }
  std::int64_t marks = 0;
  for (const ChatMessage& message : chat.messages) marks += marks_in(message.content, images);
  const bool has_parts = !chat.images.empty();
  if (has_parts && next != listed.end())
    throw UsageError(text(line.where(), ": has ", listed.size(), " images in \"images\", but ",
                          std::distance(listed.begin(), next),
                          " parts {\"type\": \"image\"} without a path; write one for each"));
  if (!has_parts) paths = std::move(listed);
  if (marks == std::ssize(paths)) return paths;
  if (marks > 0) refuse_count(line, std::ssize(paths), marks, images);
  const auto user = std::ranges::find(chat.messages, "user", &ChatMessage::role);
  if (user == chat.messages.end())
    throw UsageError(text(line.where(),
                          ": has images, but no message of role 'user' before which "
                          "they could stand; mark their places with ",
                          images.token));
  user->content = marked(line, user->content, std::ssize(paths), images);
  return paths;
}

Conversation with_surroundings(const Conversation& from, const ImageText& images) {
  const std::string_view words = from.text;
  const auto moved = [&](std::size_t at) {
    const auto marks = static_cast<std::size_t>(marks_in(words.substr(0, at), images));
    return at + marks * (images.begin.size() + images.end.size());
  };
  Conversation to{with_marks_replaced(words, images, images.begin + images.token + images.end), {}};
  for (const auto& [begin, end] : from.answers) to.answers.emplace_back(moved(begin), moved(end));
  return to;
}

}  // namespace trireme::data
