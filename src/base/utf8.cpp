// Validates UTF-8, skipping eight ASCII bytes at a time, and escapes control characters.
#include <trireme/base/utf8.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace trireme {
namespace {

/// The continuation bytes that a first byte requires: their number, and the range of the first
/// continuation byte. `count` is 0 if no character of several bytes begins with the byte.
struct Follow {
  unsigned count;
  unsigned char low;
  unsigned char high;
};

Follow follow(unsigned char first) {
  if (first < 0xC2) return {0, 0, 0};
  if (first < 0xE0) return {1, 0x80, 0xBF};
  if (first < 0xF0)
    return {2, static_cast<unsigned char>(first == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(first == 0xED ? 0x9F : 0xBF)};
  if (first < 0xF5)
    return {3, static_cast<unsigned char>(first == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(first == 0xF4 ? 0x8F : 0xBF)};
  return {0, 0, 0};
}

bool eight_ascii(const char* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return (word & 0x8080808080808080u) == 0;
}

}  // namespace

Utf8Run utf8_run(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (text.size() - at >= 8 && eight_ascii(text.data() + at)) {
      at += 8;
      continue;
    }
    const auto first = static_cast<unsigned char>(text[at]);
    if (first < 0x80) {
      ++at;
      continue;
    }
    const Follow f = follow(first);
    if (f.count == 0) return {at, false};
    for (unsigned i = 1; i <= f.count; ++i) {
      if (at + i == text.size()) return {at, true};
      const auto byte = static_cast<unsigned char>(text[at + i]);
      if (byte < (i == 1 ? f.low : 0x80) || byte > (i == 1 ? f.high : 0xBF)) return {at, false};
    }
    at += f.count + 1;
  }
  return {at, false};
}

namespace {

/// Number of bytes of the UTF-8 character at the beginning of the text; 0 for invalid bytes and
/// control characters. Accepts overlong forms of three or four bytes.
std::size_t shown_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7F ? 1 : 0;
  const std::size_t size = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  return byte(0) == 0xC2 && byte(1) < 0xA0 ? 0 : size;  // U+0080 to U+009F are control characters
}

}  // namespace

std::string printable(std::string_view text, bool lines) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string out;
  while (!text.empty()) {
    std::size_t size = shown_character(text);
    if (text[0] == '\t' || (lines && text[0] == '\n')) size = 1;
    if (size == 0) {
      const auto byte = static_cast<unsigned char>(text[0]);
      out += {'\\', 'x', digits[byte / 16], digits[byte % 16]};
    }
    out += text.substr(0, size);
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out;
}

}  // namespace trireme
