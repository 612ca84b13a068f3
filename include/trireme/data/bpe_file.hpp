#pragma once

#include <trireme/data/bpe_model.hpp>

#include <string>

namespace trireme::data {

/// Reads a `tokenizer.json` of Hugging Face's tokenizers, or the one in a folder, or GPT-2's
/// `vocab.json` and `merges.txt` in a folder. UsageError for a file that is none, and for what it
/// asks for and is not implemented: with the key, its value and what is supported.
BpeModel read_bpe(const std::string& path);

/// The same from a tokenizer.json's text; errors name `path`.
BpeModel parse_tokenizer_json(const std::string& json, const std::string& path);

/// A tokenizer.json that Hugging Face's tokenizers reads, for a model whose only pattern is
/// GPT-2's.
std::string tokenizer_json(const BpeModel& model);

}  // namespace trireme::data
