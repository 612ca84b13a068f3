#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme::data {

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
