#pragma once

#include <trireme/data/json_node.hpp>

#include <cstdint>
#include <vector>

namespace trireme::data {

/// The ids that a tokenizer.json's `post_processor` puts before a text. UsageError for a type that
/// Hugging Face's tokenizers does not have.
std::vector<std::int32_t> ids_before_text(const JsonNode& post_processor);

}  // namespace trireme::data
