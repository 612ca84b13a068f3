#pragma once

#include <trireme/base/utf8.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace trireme::data {

/// Byte-level vocabularies write one printable character per byte (Radford et al. 2019, GPT-2's
/// encoder): '!' to '~', U+00A1 to U+00AC and U+00AE to U+00FF stand for the bytes of the same
/// value; the other 68 bytes, in ascending order, are U+0100 and following, so that a space is 'Ġ'.

/// The character of a byte, as a code point.
char32_t character_of_byte(unsigned char byte);
/// The characters of bytes, in UTF-8.
std::string characters_of_bytes(std::string_view bytes);
/// Bytes for characters in UTF-8; std::nullopt if a character stands for no byte.
std::optional<std::string> bytes_of_characters(std::string_view characters);

}  // namespace trireme::data
