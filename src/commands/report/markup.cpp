// Markup of reports: escaped text, tables, and images as bitmaps inside the page.
#include <trireme/commands/report/markup.hpp>

#include <trireme/base/text.hpp>

#include <algorithm>
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

std::string base64(std::string_view bytes) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8 | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i)
      out += i <= count ? digits[group >> (18 - 6 * i) & 63] : '=';
  }
  return out;
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

std::string bitmap_url(const io::Image& image) {
  const auto little_endian = [](std::string& out, std::int64_t value, int bytes) {
    for (; bytes > 0; --bytes, value >>= 8) out += static_cast<char>(value & 0xFF);
  };
  const std::int64_t row_bytes = (image.width * 3 + 3) / 4 * 4;
  std::string file = "BM";
  little_endian(file, 54 + row_bytes * image.height, 4);
  little_endian(file, 0, 4);
  little_endian(file, 54, 4);  // offset of the pixels
  little_endian(file, 40, 4);  // bytes of the following header
  little_endian(file, image.width, 4);
  little_endian(file, image.height, 4);
  little_endian(file, 1, 2);
  little_endian(file, 24, 2);                        // bits of a pixel
  little_endian(file, 0, 4);                         // no compression
  little_endian(file, row_bytes * image.height, 4);  // bytes of the pixels
  little_endian(file, 2835, 4);                      // pixels per metre
  little_endian(file, 2835, 4);
  little_endian(file, 0, 8);  // no palette
  for (std::int64_t y = image.height - 1; y >= 0; --y) {
    for (std::int64_t x = 0; x < image.width; ++x)
      for (const std::int64_t colour : {2, 1, 0})
        file += static_cast<char>(
            image.pixels[static_cast<std::size_t>((y * image.width + x) * 3 + colour)]);
    file.append(static_cast<std::size_t>(row_bytes - image.width * 3), '\0');
  }
  return "data:image/bmp;base64," + base64(file);
}

std::string html_table(std::string_view caption, const std::vector<std::string>& head,
                       const std::vector<std::vector<std::string>>& rows, int numbers,
                       std::size_t marked_up) {
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
      out += text("<td", right(c), " data-label=\"", escaped(head[c]), "\">",
                  c == marked_up ? row[c] : escaped(row[c]), "</td>");
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

}  // namespace trireme::commands
