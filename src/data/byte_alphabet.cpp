#include <trireme/data/byte_alphabet.hpp>

#include <array>

namespace trireme::data {
namespace {

constexpr char32_t first_substitute = 0x100;
constexpr std::size_t characters = 0x100 + 68;

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

struct Tables {
  std::array<char32_t, 256> character{};
  std::array<int, characters> byte{};  // byte of each character; -1: none

  constexpr Tables() {
    byte.fill(-1);
    char32_t next = first_substitute;
    for (unsigned b = 0; b < 256; ++b) {
      character[b] = stands_for_itself(b) ? char32_t{b} : next++;
      byte[character[b]] = static_cast<int>(b);
    }
  }
};
constexpr Tables tables;

}  // namespace

char32_t character_of_byte(unsigned char byte) {
  return tables.character[byte];
}

std::string characters_of_bytes(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    const char32_t c = tables.character[static_cast<unsigned char>(byte)];
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else {  // all are below U+0800
      out += static_cast<char>(0xC0 | (c >> 6));
      out += static_cast<char>(0x80 | (c & 0x3F));
    }
  }
  return out;
}

std::optional<std::string> bytes_of_characters(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t c = static_cast<unsigned char>(text[i]);
    if (c >= 0x80) {
      if ((c & 0xE0) != 0xC0 || i + 1 == text.size()) return std::nullopt;
      c = (c & 0x1F) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3F);
    }
    if (c >= characters || tables.byte[c] < 0) return std::nullopt;
    out += static_cast<char>(tables.byte[c]);
  }
  return out;
}

}  // namespace trireme::data
