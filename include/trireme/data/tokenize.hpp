#pragma once

#include <trireme/data/chat.hpp>
#include <trireme/data/image_lines.hpp>
#include <trireme/io/image_resize.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trireme::data {

/// Format of the input files.
enum class TextFormat : std::uint8_t {
  by_name,  ///< .jsonl and .jsonl.gz: JSON lines; others: text
  text,
  jsonl  ///< each line is a document (InstructionEncoder)
};

/// How images are read and stored.
struct TokenizeImages {
  std::int64_t size = 0;  ///< pixels per side
  io::ImageFit fit = io::ImageFit::crop;
  ImageText text = {};
};

/// The options of `trireme tokenize`.
struct TokenizeOptions {
  /// Files, folders (all files below a folder, sorted by path), or "-" for standard input.
  std::vector<std::string> inputs = {};
  std::string output = {};
  std::string tokenizer = "bytes";   ///< see TokenizerSource
  std::string end_of_document = {};  ///< see TokenizerSource
  bool special_tokens = false;       ///< see EncodeOptions
  /// Vocabulary size of a BPE that is trained on the training documents and written to `tokenizer`,
  /// or to tokenizer.json beside the output if `tokenizer` is "bytes"; 0: no training.
  std::int64_t train_bpe = 0;
  std::string document_separator = {};  ///< "": every file is one document
  std::string validation_output = {};   ///< path of the validation file; "": none
  double validation_fraction = 0;       ///< fraction of the documents for validation
  std::uint64_t seed = 0;               ///< seed for the choice of validation documents
  TextFormat format = TextFormat::by_name;
  ChatFormat chat = ChatFormat::none;         ///< chat format of messages in JSON lines
  std::optional<TokenizeImages> images = {};  ///< without, lines with images are errors
};

struct TokenizeCounts {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t text_bytes = 0;
  std::int64_t counted = 0;  ///< tokens that count in the loss
  std::int64_t images = 0;
};

struct TokenizeSummary {
  std::int64_t files = 0;
  std::string tokenizer = {};  ///< path of the tokenizer, or "bytes"
  std::int64_t vocabulary = 0;
  TokenizeCounts train;
  TokenizeCounts validation;
  /// Description of the validation text if it is the end of the text; "" otherwise.
  std::string end_held_out = {};
  std::vector<std::string> binary = {};  ///< files with zero bytes near their beginning
};

/// Called with the number of bytes of text read so far.
using TokenizeProgress = std::function<void(std::int64_t)>;

/// Writes the training file and, if requested, the validation file, each complete or not at all.
/// Drops empty documents and numbers the others. The seed and the number of a document determine
/// its file. If one file would be empty, the validation file can get the end of the text instead
/// (TokenizeSummary::end_held_out).
TokenizeSummary tokenize(const TokenizeOptions& options, const TokenizeProgress& progress);

/// The files in `inputs` and in its folders, in order. Skips `outputs` in folders. UsageError for a
/// missing path, a folder without files, or an input that is also an output.
std::vector<std::string> input_files(const std::vector<std::string>& inputs,
                                     const std::vector<std::string>& outputs);

/// Whether document `number` is chosen for validation: at random, with probability `fraction`.
bool chosen_for_validation(std::uint64_t seed, std::int64_t number, double fraction);

}  // namespace trireme::data
