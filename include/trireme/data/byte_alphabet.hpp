#pragma once

#include <trireme/base/utf8.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace trireme::data {

/// Byte-level vocabularies write one printable character per byte (Radford et al. 2019, GPT-2's
/// encoder): '!' to '~', U+00A1 to U+00AC and U+00AE to U+00FF represent the bytes of the same
/// value; the other 68 bytes, in ascending order, are U+0100 and following, so that a space is 'Ġ'.

/// The character that represents a byte, as a code point.
char32_t character_of_byte(unsigned char byte);
/// The characters that represent bytes, in UTF-8.
std::string characters_of_bytes(std::string_view bytes);
/// Inverse of characters_of_bytes(); std::nullopt for other characters.
std::optional<std::string> bytes_of_characters(std::string_view characters);

}  // namespace trireme::data
