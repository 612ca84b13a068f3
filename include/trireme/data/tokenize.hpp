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
  /// Files, folders (all files below a folder, sorted by path), or "-" for standard input.
  std::vector<std::string> inputs = {};
  std::string output = {};
  std::string tokenizer = "bytes";   ///< see TokenizerSource
  std::string end_of_document = {};  ///< see TokenizerSource
  bool special_tokens = false;       ///< see EncodeOptions
  /// Vocabulary size of a BPE that is first trained on the training documents and written to the
  /// path `tokenizer`, or to tokenizer.json beside the output if `tokenizer` is "bytes". 0: no
  /// training.
  std::int64_t train_bpe = 0;
  std::string document_separator = {};  ///< "": every file is one document
  std::string validation_output = {};   ///< path of the validation file; "": none
  double validation_fraction = 0;       ///< fraction of the documents for validation
  std::uint64_t seed = 0;               ///< seed for the choice of validation documents
  TextFormat format = TextFormat::by_name;
  ChatFormat chat = ChatFormat::none;  ///< chat format of messages in JSON lines
};

struct TokenizeCounts {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t text_bytes = 0;
  std::int64_t counted = 0;  ///< tokens that count in the loss
};

struct TokenizeSummary {
  std::int64_t files = 0;
  std::string tokenizer = {};  ///< path of the tokenizer, or "bytes"
  std::int64_t vocabulary = 0;
  TokenizeCounts train;
  TokenizeCounts validation;
  /// Description of the validation text if it was held out at the end; "" otherwise.
  std::string end_held_out = {};
  std::vector<std::string> binary = {};  ///< files with zero bytes near their beginning
};

/// Called with the number of bytes of text read so far.
using TokenizeProgress = std::function<void(std::int64_t)>;

/// Writes the training file and, if requested, the validation file. Drops empty documents and
/// numbers the others. The seed and the number of a document determine its file. If each file or
/// line is a document and one of the two files would be empty, the validation file gets the last
/// `validation_fraction` of the text or lines instead, unless the inputs include standard input or
/// both text and JSON lines. Files appear complete or not at all.
TokenizeSummary tokenize(const TokenizeOptions& options, const TokenizeProgress& progress);

/// The files of `inputs` in order; the files of a folder without the files of `outputs`. UsageError
/// for a missing path, a folder without files, or an input that is also an output.
std::vector<std::string> input_files(const std::vector<std::string>& inputs,
                                     const std::vector<std::string>& outputs);

/// Whether document `number` is chosen for validation: at random, with probability `fraction`.
bool chosen_for_validation(std::uint64_t seed, std::int64_t number, double fraction);

}  // namespace trireme::data
