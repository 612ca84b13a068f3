#include <trireme/commands/report/markup.hpp>

#include <trireme/base/text.hpp>

#include <cstdint>

namespace trireme::commands {
namespace {

/// Number of bytes of the UTF-8 character at the front (RFC 3629); 0 if it is not valid.
std::size_t character_bytes(std::string_view s) {
  const auto byte = [&](std::size_t i) {
    return i < s.size() ? static_cast<unsigned char>(s[i]) : 0U;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t bytes = lead >= 0xF5 ? 0 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || bytes == 0) return 0;
  std::uint32_t code = lead & (0xFFU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  const bool no_character = (code & 0xFFFE) == 0xFFFE;  // noncharacters; XML forbids U+FFFE, U+FFFF
  return overlong || surrogate || no_character || code > 0x10FFFF ? 0 : bytes;
}

}  // namespace

std::string escaped(std::string_view raw) {
  std::string out;
  while (!raw.empty()) {
    const std::size_t bytes = character_bytes(raw);
    const char c = raw.front();
    if (bytes == 0)
      out += "\xEF\xBF\xBD";
    else if (bytes > 1)
      out += raw.substr(0, bytes);
    else if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F ? ' ' : c;
    raw.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

std::string html_table(std::string_view caption, const std::vector<std::string>& head,
                       const std::vector<std::vector<std::string>>& rows, int numbers) {
  const auto right = [&](std::size_t column) {
    return static_cast<int>(column) >= numbers ? " class=\"number\"" : "";
  };
  std::string out =
      text("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"", escaped(caption),
           "\"><table><caption>", escaped(caption), "</caption><thead><tr>");
  for (std::size_t c = 0; c < head.size(); ++c)
    out += text("<th scope=\"col\"", right(c), ">", escaped(head[c]), "</th>");
  out += "</tr></thead><tbody>\n";
  for (const auto& row : rows) {
    out += "<tr>";
    for (std::size_t c = 0; c < row.size(); ++c)
      out += text("<td", right(c), " data-label=\"", escaped(head[c]), "\">", escaped(row[c]),
                  "</td>");
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

}  // namespace trireme::commands
