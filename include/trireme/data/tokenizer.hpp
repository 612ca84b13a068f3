#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::data {

/// Converts documents, which arrive in pieces, to token ids in bounded memory. Not thread-safe. The
/// tokenizer must outlive the encoder.
class Encoder {
 public:
  virtual ~Encoder() = default;
  /// Reads the next bytes of the document, and appends the ids that no later byte can change.
  virtual void feed(std::string_view bytes, std::vector<std::int32_t>& out) = 0;
  /// Ends the document: appends the remaining ids, without an end-of-document token.
  virtual void finish(std::vector<std::int32_t>& out) = 0;
};

/// Converts the ids of documents to text, in pieces. Not thread-safe. The tokenizer must outlive
/// the decoder.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Appends the text of the next ids; text may be held until further ids arrive.
  virtual void feed(std::span<const std::int32_t> ids, std::string& out) = 0;
  /// Ends the last document, and appends its remaining text.
  virtual void finish(std::string& out) = 0;
};

struct EncodeOptions {
  /// Whether the names of special tokens in a text ("<|endoftext|>") are encoded as these tokens.
  /// Otherwise the names are ordinary text, so that a text cannot end its document.
  bool special_tokens = false;
};

/// Converts text to token ids and back. Const calls are thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Identifies the tokenizer: equal names give equal ids. "bytes", or the kind of the model
  /// ("bpe-", "unigram-", "wordpiece-") and a checksum.
  virtual const std::string& name() const = 0;
  virtual std::int64_t vocabulary() const = 0;
  /// The id that ends every document; it has no text.
  virtual std::int32_t end_of_document() const = 0;
  /// The names of the special tokens, and their ids.
  virtual std::vector<std::pair<std::string, std::int32_t>> special_tokens() const { return {}; }
  /// The ids that the tokenizer's file puts before a text, such as Llama's <s>. `trireme tokenize`
  /// does not add these ids.
  const std::vector<std::int32_t>& before_text() const { return before_text_; }
  void set_before_text(std::vector<std::int32_t> ids) { before_text_ = std::move(ids); }
  /// Id of the special token with this name; -1 if there is no such token.
  std::int32_t special_token(std::string_view name) const;
  virtual std::unique_ptr<Encoder> encoder(const EncodeOptions& options) const = 0;
  /// Appends the text of `ids` to `out`; end-of-document ids have no text. Error for an id outside
  /// the vocabulary.
  virtual void decode(std::span<const std::int32_t> ids, std::string& out) const = 0;
  /// A decoder whose text for all pieces together equals decode() of all ids.
  virtual std::unique_ptr<Decoder> decoder() const;
  /// Number of bytes of text that an id adds within a document.
  virtual std::int64_t text_bytes(std::int32_t id) const;

  /// Appends the text by which `ids` continue the document `before`. This text can differ from
  /// decode(ids): many tokenizers omit a space before a document's first word.
  void decode_after(std::span<const std::int32_t> before, std::span<const std::int32_t> ids,
                    std::string& out) const;
  /// Appends the ids of one whole document to `out`, without an end-of-document token.
  void encode(std::string_view document, std::vector<std::int32_t>& out,
              const EncodeOptions& options = {}) const;

 private:
  std::vector<std::int32_t> before_text_;
};

/// Path of a tokenizer, and the token that ends documents.
struct TokenizerSource {
  /// "bytes" (257 ids: the 256 byte values, and 256 for the end of a document), or the path of a
  /// Hugging Face tokenizer.json (docs/tokenizers.md), or of a folder with a tokenizer.json, or
  /// with GPT-2's vocab.json and merges.txt.
  std::string path = "bytes";
  /// The special token that ends documents. "": the first of "<|endoftext|>", "<|end_of_text|>",
  /// "</s>", "<eos>" and "[SEP]" that the tokenizer has. Must be "" for the tokenizer "bytes".
  std::string end_of_document = {};
};

/// Names of the files of a tokenizer in a folder.
inline constexpr std::array<const char*, 3> tokenizer_file_names{"tokenizer.json", "vocab.json",
                                                                 "merges.txt"};

/// Contents of the tokenizer's files by file name; empty for "bytes". UsageError if there is no
/// tokenizer at this path.
std::map<std::string, std::string> tokenizer_files(const std::string& path);

/// UsageError if the tokenizer does not exist or needs a feature that is not implemented.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerSource& source);
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& path);

}  // namespace trireme::data
