#pragma once

#include <trireme/data/json_node.hpp>
#include <trireme/data/text_step.hpp>

#include <memory>
#include <string>

namespace trireme::data {

/// The steps of a `pre_tokenizer` in a tokenizer.json; none for a null node.
TextSteps make_pre_tokenizer(const JsonNode& node);

/// Treatment of the matches of a splitting pattern.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// A step that splits words at the matches of a WordPattern. `invert`: matches and the text between
/// them exchange their roles.
std::unique_ptr<TextStep> make_split_pattern(const std::string& pattern, const std::string& where,
                                             SplitBehavior behavior, bool invert);

/// Words before which Metaspace puts its replacement character: all, a document's first, or none.
enum class PrependScheme { always, first, never };
/// The scheme of a Metaspace pre-tokenizer or decoder.
PrependScheme read_prepend_scheme(const JsonNode& node);

}  // namespace trireme::data
