#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trireme::data {

/// What `trireme tokenize` is asked for.
struct TokenizeOptions {
  std::vector<std::string> inputs =
      {};  ///< files, folders (all files below, sorted by path) or "-"
  std::string output = {};
  std::string tokenizer = "bytes";   ///< see TokenizerSource
  std::string end_of_document = {};  ///< the same
  bool special_tokens = false;       ///< see EncodeOptions
  /// Ids of a BPE that is learned from the documents for training first and written to `tokenizer`;
  /// if that is "bytes", to tokenizer.json beside the output. 0: none.
  std::int64_t train_bpe = 0;
  std::string document_separator = {};  ///< "": every file is one document
  std::string validation_output = {};   ///< "": none
  double validation_fraction = 0;       ///< of the documents
  std::uint64_t seed = 0;               ///< of the choice of documents for validation
};

struct TokenizedPart {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t text_bytes = 0;
};

struct TokenizeSummary {
  std::int64_t files = 0;
  std::string tokenizer = {};  ///< its path, or "bytes"
  std::int64_t vocabulary = 0;
  TokenizedPart train;
  TokenizedPart validation;
};

/// Called with the bytes of text read so far, every 256 KiB.
using TokenizeProgress = std::function<void(std::int64_t)>;

/// Writes the token file(s). Empty documents are dropped; the others are numbered through, and the
/// number and the seed alone decide which file a document goes to. Files appear whole or not at
/// all.
TokenizeSummary tokenize(const TokenizeOptions& options, const TokenizeProgress& progress);

/// The files that `inputs` mean, in order; those of `outputs` are left out where a folder holds
/// them. UsageError for a path that is not there and for a folder without files.
std::vector<std::string> input_files(const std::vector<std::string>& inputs,
                                     const std::vector<std::string>& outputs);

/// Whether document `number` is one for validation.
bool chosen_for_validation(std::uint64_t seed, std::int64_t number, double fraction);

}  // namespace trireme::data
