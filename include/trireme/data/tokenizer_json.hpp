#pragma once

#include <trireme/data/tokenizer.hpp>

#include <memory>
#include <string>

namespace trireme::data {

/// The tokenizer of GPT-2's vocab.json and merges.txt in a folder. `end_of_document` as in
/// TokenizerSource.
std::unique_ptr<Tokenizer> read_bpe_folder(const std::string& folder,
                                           const std::string& end_of_document);

/// The tokenizer of a tokenizer.json with this content. Errors name `path`. `end_of_document` as in
/// TokenizerSource.
std::unique_ptr<Tokenizer> parse_tokenizer(const std::string& content, const std::string& path,
                                           const std::string& end_of_document);

}  // namespace trireme::data
