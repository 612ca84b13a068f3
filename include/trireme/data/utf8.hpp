#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::data {

/// What the bytes of a text from some place on are.
struct Utf8Run {
  std::size_t valid = 0;    ///< bytes of whole characters
  bool incomplete = false;  ///< then a character begins that the text ends in
};

/// Well-formed UTF-8 (Unicode, table 3-7: no overlong forms, no surrogates, up to U+10FFFF) at the
/// beginning of `text`. If neither all of it is valid nor incomplete, byte `valid` is in no
/// character.
Utf8Run utf8_run(std::string_view text);

/// Byte-level vocabularies are written with one printable character per byte (Radford et al. 2019,
/// GPT-2's encoder): '!' to '~', U+00A1 to U+00AC and U+00AE to U+00FF stand for the bytes of the
/// same number, U+0100 and on for the other 68 in ascending order, so that a blank is 'Ġ'.

/// The character of a byte, as a code point.
char32_t character_of_byte(unsigned char byte);
/// The characters of bytes, in UTF-8.
std::string characters_of_bytes(std::string_view bytes);
/// The bytes that characters in UTF-8 stand for; nothing if one of them stands for none.
std::optional<std::string> bytes_of_characters(std::string_view characters);

}  // namespace trireme::data
