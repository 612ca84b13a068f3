#pragma once

#include <trireme/data/chat.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trireme::data {

/// Format of the input files.
enum class TextFormat : std::uint8_t {
  by_name,  ///< .jsonl and .jsonl.gz: JSON lines; others: text
  text,
  jsonl  ///< each line is a document (InstructionEncoder)
};

/// The options of `trireme tokenize`.
struct TokenizeOptions {
  std::vector<std::string> inputs =
      {};  ///< files, folders (all files below, sorted by path) or "-"
  std::string output = {};
  std::string tokenizer = "bytes";   ///< see TokenizerSource
  std::string end_of_document = {};  ///< see TokenizerSource
  bool special_tokens = false;       ///< see EncodeOptions
  /// Vocabulary of a BPE that is first trained on the training documents and written to
  /// `tokenizer`, or to tokenizer.json beside the output if `tokenizer` is "bytes". 0: none.
  std::int64_t train_bpe = 0;
  std::string document_separator = {};  ///< "": every file is one document
  std::string validation_output = {};   ///< "": none
  double validation_fraction = 0;       ///< fraction of the documents
  std::uint64_t seed = 0;               ///< seed for the choice of validation documents
  TextFormat format = TextFormat::by_name;
  ChatFormat chat = ChatFormat::none;  ///< chat format of messages in JSON lines
};

struct TokenizedPart {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t text_bytes = 0;
  std::int64_t counted = 0;  ///< tokens that count in the loss
};

struct TokenizeSummary {
  std::int64_t files = 0;
  std::string tokenizer = {};  ///< path of the tokenizer, or "bytes"
  std::int64_t vocabulary = 0;
  TokenizedPart train;
  TokenizedPart validation;
  std::string end_held_out = {};  ///< name of the validation file's part of the inputs, if its
                                  ///< documents were not chosen at random
};

/// Called with the bytes of text read so far, every 256 KiB.
using TokenizeProgress = std::function<void(std::int64_t)>;

/// Writes the token file(s). Drops empty documents and numbers the others; a document's number and
/// the seed alone decide its file. If each file or JSON line is a document and one of the token
/// files would be empty, the validation file gets the last `validation_fraction` of the text, from
/// a line end on, or of the lines. Files appear complete or not at all.
TokenizeSummary tokenize(const TokenizeOptions& options, const TokenizeProgress& progress);

/// The files of `inputs` in order; folders are listed without the files of `outputs`. UsageError
/// for a missing path or a folder without files.
std::vector<std::string> input_files(const std::vector<std::string>& inputs,
                                     const std::vector<std::string>& outputs);

/// Whether document `number` is a validation document.
bool chosen_for_validation(std::uint64_t seed, std::int64_t number, double fraction);

}  // namespace trireme::data
