#pragma once

#include <trireme/data/text_step.hpp>

#include <memory>
#include <string>

namespace trireme::data {

/// Removes white space at the ends of the text.
std::unique_ptr<TextStep> make_strip(bool left, bool right);
/// Puts `prefix` before a text that is not empty.
std::unique_ptr<TextStep> make_prepend(std::string prefix);
/// Replaces every match of a literal or of a pattern of word_splitter.hpp.
std::unique_ptr<TextStep> make_replace(std::string literal, std::string content);
std::unique_ptr<TextStep> make_replace_pattern(const std::string& pattern, std::string content,
                                               const std::string& where);

}  // namespace trireme::data
