#pragma once

#include <trireme/data/json_node.hpp>
#include <trireme/data/text_step.hpp>

namespace trireme::data {

/// The steps of `normalizer` of a tokenizer.json; null: none. UsageError for other types.
TextSteps make_normalizer(const JsonNode& node);

}  // namespace trireme::data
