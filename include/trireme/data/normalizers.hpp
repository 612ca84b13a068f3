#pragma once

#include <trireme/data/json_node.hpp>
#include <trireme/data/text_step.hpp>

namespace trireme::data {

/// The steps of `normalizer` of a tokenizer.json; null: none. UsageError for other types.
TextSteps make_normalizer(const JsonNode& node);

/// NFC, NFD, NFKC, NFKD (Unicode TR 15).
enum class NormalForm { nfc, nfd, nfkc, nfkd };
std::unique_ptr<TextStep> make_normal_form(NormalForm form);

/// One character to none, one or several, without context.
std::unique_ptr<TextStep> make_character_map(void (*map)(char32_t, std::string&));
void lower_case(char32_t c, std::string& out);
void without_marks(char32_t c, std::string& out);             // StripAccents
void without_nonspacing_marks(char32_t c, std::string& out);  // BertNormalizer
void clean_for_bert(char32_t c, std::string& out);
void separate_ideographs(char32_t c, std::string& out);
void clean_for_nmt(char32_t c, std::string& out);

/// Removes white space at the ends of the text.
std::unique_ptr<TextStep> make_strip(bool left, bool right);
/// Puts `prefix` before a text that is not empty.
std::unique_ptr<TextStep> make_prepend(std::string prefix);
/// Replaces every match of a literal or of a pattern of word_splitter.hpp.
std::unique_ptr<TextStep> make_replace(std::string literal, std::string content);
std::unique_ptr<TextStep> make_replace_pattern(const std::string& pattern, std::string content,
                                               const std::string& where);
/// Each character becomes the characters of its bytes (utf8.hpp).
std::unique_ptr<TextStep> make_byte_characters();
/// SentencePiece's rules in `precompiled_charsmap`.
std::unique_ptr<TextStep> make_precompiled(const JsonNode& charsmap);

}  // namespace trireme::data
