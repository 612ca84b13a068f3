#pragma once

#include <trireme/data/tokenizer.hpp>

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>

namespace trireme::data {

/// A tokenizer.json with any supported normalizer, pre-tokenizer, model and decoder. Errors name
/// `path`. `end_of_document` as in TokenizerSource.
std::unique_ptr<Tokenizer> make_pipeline_tokenizer(const nlohmann::json& json,
                                                   const std::string& end_of_document,
                                                   const std::string& path);

/// The tokenizer of the text of any tokenizer.json.
std::unique_ptr<Tokenizer> parse_tokenizer(const std::string& content, const std::string& path,
                                           const std::string& end_of_document);

}  // namespace trireme::data
