#pragma once

#include <trireme/data/json_node.hpp>
#include <trireme/data/text_step.hpp>

#include <memory>

namespace trireme::data {

/// SentencePiece's rules in `precompiled_charsmap`. UsageError if they are damaged.
std::unique_ptr<TextStep> make_precompiled(const JsonNode& charsmap);

}  // namespace trireme::data
