#include <trireme/base/printable.hpp>

#include <algorithm>

namespace trireme {
namespace {

/// Bytes of the UTF-8 character at the beginning of the text; 0 for invalid bytes and control
/// characters. Overlong forms do not matter to terminals.
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
