// Parses a text without building values; the message describes the text where the parser stopped.
#include <trireme/base/json_mistake.hpp>

#include <trireme/base/text.hpp>
#include <trireme/base/utf8.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

namespace trireme {
namespace {

using Json = nlohmann::json;

/// Records where the parser stopped, the last token, and whether it is a number that is too large.
class Watcher final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool key(string_t&) override { return true; }
  bool parse_error(std::size_t read, const std::string& last,
                   const Json::exception& error) override {
    read_bytes = read;
    token = last;
    number_is_too_large = dynamic_cast<const Json::out_of_range*>(&error) != nullptr;
    return false;
  }

  std::size_t read_bytes = 0;
  std::string token;
  bool number_is_too_large = false;
};

struct Mistake {
  std::size_t at = 0;
  std::string what;
};

/// NaN, Infinity or -Infinity, which JSON does not have, at the position or one byte before it.
std::optional<Mistake> name_of_no_number(std::string_view content, std::size_t at) {
  for (const std::string_view name : {"NaN", "-Infinity", "Infinity"})
    for (std::size_t begin = at - std::min<std::size_t>(at, 1); begin <= at; ++begin)
      if (content.substr(begin).starts_with(name))
        return Mistake{begin, text(name, " is not a JSON number; write null or a number")};
  return {};
}

/// A lone surrogate, such as "\ud83d", that begins at most 12 bytes before `at`.
std::optional<Mistake> lone_surrogate(std::string_view content, std::size_t at) {
  const std::size_t first = at - std::min<std::size_t>(at, 12);
  for (std::size_t begin = first; begin < at; ++begin) {
    const std::string_view escape = content.substr(begin, 6);
    if (escape.size() < 6 || !(escape.starts_with("\\ud") || escape.starts_with("\\uD"))) continue;
    if (std::string_view("89abcdefABCDEF").find(escape[3]) == std::string_view::npos) continue;
    return Mistake{begin, text(escape, " is half of a character (a lone surrogate)")};
  }
  return {};
}

Mistake find(std::string_view content, const Watcher& parser) {
  const std::size_t at = parser.read_bytes > 0 ? parser.read_bytes - 1 : 0;
  if (parser.number_is_too_large) {
    const std::size_t begin = content.rfind(parser.token, at);
    return {begin == std::string_view::npos ? at : begin,
            text("the number ", parser.token, " is too large")};
  }
  if (at >= content.size()) return {content.size(), "the text ends within a value"};
  if (auto name = name_of_no_number(content, at)) return *name;
  if (auto half = lone_surrogate(content, at)) return *half;
  if (static_cast<unsigned char>(content[at]) < 0x20)
    return {at, "a string contains a control character; write \\n, \\t or \\u00XX"};
  std::size_t end = at + 1;  // end of the character
  while (end < content.size() && (content[end] & 0xC0) == 0x80) ++end;
  return {at, text("unexpected '", printable(content.substr(at, end - at)), "'")};
}

}  // namespace

std::string json_mistake(std::string_view content) {
  Watcher parser;
  if (Json::sax_parse(content, &parser)) return "";
  const auto [at, what] = find(content, parser);
  const std::string_view before = content.substr(0, at);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::string_view of_line = before.substr(before.rfind('\n') + 1);
  const auto column =
      1 + std::count_if(of_line.begin(), of_line.end(), [](char c) { return (c & 0xC0) != 0x80; });
  const bool several = content.find('\n') != std::string_view::npos;
  return text(several ? text("line ", line, ", ") : "", "column ", column, ": ", what);
}

}  // namespace trireme
