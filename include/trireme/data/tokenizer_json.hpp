#pragma once

#include <trireme/data/json_node.hpp>
#include <trireme/data/tokenizer.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme::data {

/// Whether a tokenizer.json is a byte-level BPE (Radford et al. 2019): it has no normalizer, and
/// patterns alone split its text into words, whose bytes are merged.
bool is_byte_level(const JsonNode& top);

/// The tokenizer of a byte-level tokenizer.json. `end_of_document` as in TokenizerSource; errors
/// name `path`.
std::unique_ptr<Tokenizer> make_byte_level_tokenizer(const JsonNode& top,
                                                     const std::string& end_of_document,
                                                     const std::string& path);

/// The tokenizer of GPT-2's vocab.json and merges.txt in a folder.
std::unique_ptr<Tokenizer> read_bpe_folder(const std::string& folder,
                                           const std::string& end_of_document);

/// The tokenizer of any other supported tokenizer.json. Errors name `path`.
std::unique_ptr<Tokenizer> make_pipeline_tokenizer(const JsonNode& top,
                                                   const std::string& end_of_document,
                                                   const std::string& path);

/// The tokenizer of any supported tokenizer.json with this content. Errors name `path`.
std::unique_ptr<Tokenizer> parse_tokenizer(const std::string& content, const std::string& path,
                                           const std::string& end_of_document);

/// The ids that a tokenizer.json's `post_processor` puts before a text; none for a null node.
/// UsageError for a type that Hugging Face's `tokenizers` library does not have.
std::vector<std::int32_t> ids_before_text(const JsonNode& post_processor);

}  // namespace trireme::data
