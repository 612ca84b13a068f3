#pragma once

#include <trireme/data/json_node.hpp>
#include <trireme/data/tokenizer.hpp>

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme::data {

/// A tokenizer.json with any supported normalizer, pre-tokenizer, model and decoder. Errors name
/// `path`. `end_of_document` as in TokenizerSource.
std::unique_ptr<Tokenizer> make_pipeline_tokenizer(const nlohmann::json& json,
                                                   const std::string& end_of_document,
                                                   const std::string& path);

/// The tokenizer of the text of any tokenizer.json.
std::unique_ptr<Tokenizer> parse_tokenizer(const std::string& content, const std::string& path,
                                           const std::string& end_of_document);

/// The ids that a tokenizer.json's `post_processor` puts before a text. UsageError for a type that
/// Hugging Face's tokenizers does not have.
std::vector<std::int32_t> ids_before_text(const JsonNode& post_processor);

}  // namespace trireme::data
