#pragma once

#include <trireme/data/json_node.hpp>
#include <trireme/data/text_step.hpp>

#include <memory>
#include <string>

namespace trireme::data {

/// The steps of `normalizer` of a tokenizer.json; null: none. UsageError for other types.
TextSteps make_normalizer(const JsonNode& node);

/// NFC, NFD, NFKC, NFKD (Unicode TR 15).
enum class NormalForm { nfc, nfd, nfkc, nfkd };
std::unique_ptr<TextStep> make_normal_form(NormalForm form);

/// Removes white space at the ends of the text.
std::unique_ptr<TextStep> make_strip(bool left, bool right);
/// Puts `prefix` before a text that is not empty.
std::unique_ptr<TextStep> make_prepend(std::string prefix);
/// Replaces every match of a literal or of a pattern of word_splitter.hpp.
std::unique_ptr<TextStep> make_replace(std::string literal, std::string content);
std::unique_ptr<TextStep> make_replace_pattern(const std::string& pattern, std::string content,
                                               const std::string& where);

/// SentencePiece's rules in `precompiled_charsmap`. UsageError if they are damaged.
std::unique_ptr<TextStep> make_precompiled(const JsonNode& charsmap);

}  // namespace trireme::data
