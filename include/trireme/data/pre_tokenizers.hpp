#pragma once

#include <trireme/data/json_node.hpp>
#include <trireme/data/text_step.hpp>

#include <memory>
#include <string>

namespace trireme::data {

/// The steps of `pre_tokenizer` of a tokenizer.json; null: none. UsageError for other types.
TextSteps make_pre_tokenizer(const JsonNode& node);

/// Treatment of the matches of a splitting pattern.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Splits words at matches of a pattern of word_splitter.hpp. `invert`: the text between matches
/// takes the part of the matches.
std::unique_ptr<TextStep> make_split_pattern(const std::string& pattern, const std::string& where,
                                             SplitBehavior behavior, bool invert);

/// Where Metaspace puts a replacement before a text that does not begin with one.
enum class PrependScheme { always, first, never };
/// The scheme of a Metaspace pre-tokenizer or decoder.
PrependScheme read_prepend_scheme(const JsonNode& node);

}  // namespace trireme::data
