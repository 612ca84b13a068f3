#pragma once

#include <trireme/data/text_step.hpp>

#include <memory>
#include <string>

namespace trireme::data {

/// Treatment of the matches of a splitting pattern.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Splits words at matches of a literal, a pattern of word_splitter.hpp, or characters with a
/// property. `invert`: the text between matches takes the part of the matches.
std::unique_ptr<TextStep> make_split(std::string literal, SplitBehavior behavior, bool invert);
std::unique_ptr<TextStep> make_split_pattern(const std::string& pattern, const std::string& where,
                                             SplitBehavior behavior, bool invert);
std::unique_ptr<TextStep> make_split_characters(bool (*matches)(char32_t), SplitBehavior behavior);

/// Runs of \w and runs of other characters; white space is removed.
std::unique_ptr<TextStep> make_whitespace();

}  // namespace trireme::data
