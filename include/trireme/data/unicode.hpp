#pragma once

#include <trireme/data/text_step.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::data {

/// The character at `at` in a well-formed UTF-8 text. Moves `at` to the character's end.
inline char32_t next_character(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[i]));
  };
  const char32_t first = byte(at);
  if (first < 0x80) return ++at, first;
  if (first < 0xE0) {
    at += 2;
    return (first & 0x1F) << 6 | (byte(at - 1) & 0x3F);
  }
  if (first < 0xF0) {
    at += 3;
    return (first & 0xF) << 12 | (byte(at - 2) & 0x3F) << 6 | (byte(at - 1) & 0x3F);
  }
  at += 4;
  return (first & 7) << 18 | (byte(at - 3) & 0x3F) << 12 | (byte(at - 2) & 0x3F) << 6 |
         (byte(at - 1) & 0x3F);
}

/// Removes and returns the last character of a well-formed text that is not empty.
char32_t take_last_character(std::string_view& text);

/// Beginning of the character that contains byte `at`.
inline std::size_t character_begin(std::string_view text, std::size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

void append_character(char32_t c, std::string& out);
std::string utf8_of(char32_t c);

/// The functions below use ICU's Unicode version, unless a comment names another version.

/// Property White_Space.
bool is_white_space(char32_t c);
/// White space in Python: White_Space and the separators U+001C to U+001F.
inline bool is_space(char32_t c) {
  return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}
/// \w of Unicode Technical Standard 18: Alphabetic, M, Nd, Pc, Join_Control.
bool is_word_character(char32_t c);
/// Category P of Unicode 8, and ASCII's other punctuation ($ + < = > ^ ` | ~).
bool is_punctuation(char32_t c);
/// Category N.
bool is_numeric(char32_t c);
/// Categories Cc and Cf of Unicode 8, and Co.
bool is_control(char32_t c);
/// Category Mn of Unicode 8.
bool is_nonspacing_mark(char32_t c);
/// Category M of Unicode 9.
bool is_mark(char32_t c);
/// Appends the context-free lower case of a character; U+0130 gives two characters.
void append_lower_case(char32_t c, std::string& out);

/// End of the extended grapheme cluster (Unicode Standard Annex 29) that begins at `at`.
std::size_t grapheme_end(std::string_view text, std::size_t at);

/// ICU's Unicode version, for example "15.0".
std::string unicode_version();

/// A step that maps each character to any number of characters, independently of its neighbours.
std::unique_ptr<TextStep> make_character_map(void (*map)(char32_t, std::string&));
void lower_case(char32_t c, std::string& out);
void without_marks(char32_t c, std::string& out);             // for StripAccents
void without_nonspacing_marks(char32_t c, std::string& out);  // for BertNormalizer
void clean_for_bert(char32_t c, std::string& out);
void separate_ideographs(char32_t c, std::string& out);
void clean_for_nmt(char32_t c, std::string& out);
/// Appends the characters that represent the bytes of `c` (characters_of_bytes()).
void to_byte_characters(char32_t c, std::string& out);

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
