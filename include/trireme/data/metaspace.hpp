#pragma once

#include <trireme/data/json_node.hpp>
#include <trireme/data/text_step.hpp>

#include <memory>

namespace trireme::data {

/// Where Metaspace puts a replacement before a text that does not begin with one.
enum class PrependScheme { always, first, never };
/// Replaces blanks, and splits before each replacement. `first`: only at the document's beginning.
std::unique_ptr<TextStep> make_metaspace(char32_t replacement, PrependScheme scheme, bool split);
/// The scheme of a Metaspace pre-tokenizer or decoder.
PrependScheme read_prepend_scheme(const JsonNode& node);

/// Puts a blank before a word that does not begin with one.
std::unique_ptr<TextStep> make_prefix_space();

}  // namespace trireme::data
