#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::data {

/// The result of validating a text from some place on.
struct Utf8Run {
  std::size_t valid = 0;    ///< bytes of whole characters
  bool incomplete = false;  ///< the text ends within the next character
};

/// Well-formed UTF-8 (Unicode, table 3-7: no overlong forms, no surrogates, up to U+10FFFF) at the
/// beginning of `text`. Unless all bytes are valid or the rest is incomplete, byte
/// `valid` is in no character.
Utf8Run utf8_run(std::string_view text);

/// Byte-level vocabularies write one printable character per byte (Radford et al. 2019,
/// GPT-2's encoder): '!' to '~', U+00A1 to U+00AC and U+00AE to U+00FF stand for the bytes of the
/// same number, U+0100 and on for the other 68 in ascending order, so that a blank is 'Ġ'.

/// The character of a byte, as a code point.
char32_t character_of_byte(unsigned char byte);
/// The characters of bytes, in UTF-8.
std::string characters_of_bytes(std::string_view bytes);
/// The bytes of characters in UTF-8; nothing if a character stands for no byte.
std::optional<std::string> bytes_of_characters(std::string_view characters);

}  // namespace trireme::data
