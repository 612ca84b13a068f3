#pragma once

#include <trireme/data/text_step.hpp>

#include <memory>
#include <string>

namespace trireme::data {

/// A step that maps each character to any number of characters, without context.
std::unique_ptr<TextStep> make_character_map(void (*map)(char32_t, std::string&));
void lower_case(char32_t c, std::string& out);
void without_marks(char32_t c, std::string& out);             // StripAccents
void without_nonspacing_marks(char32_t c, std::string& out);  // BertNormalizer
void clean_for_bert(char32_t c, std::string& out);
void separate_ideographs(char32_t c, std::string& out);
void clean_for_nmt(char32_t c, std::string& out);
/// Appends the characters that stand for the bytes of `c` (utf8.hpp).
void to_byte_characters(char32_t c, std::string& out);

}  // namespace trireme::data
