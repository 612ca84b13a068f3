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

/// Converts documents to token ids, one after the other, each in pieces, in bounded memory. Not
/// thread-safe: use one per thread. The tokenizer must outlive it.
class Encoder {
 public:
  virtual ~Encoder() = default;
  /// The next bytes of the document: appends the ids that no later byte can change.
  virtual void feed(std::string_view bytes, std::vector<std::int32_t>& out) = 0;
  /// Ends the document: appends the remaining ids, without an end-of-document token. The ids of all
  /// calls together do not depend on the pieces.
  virtual void finish(std::vector<std::int32_t>& out) = 0;
};

/// Converts the ids of documents to text, in pieces, in bounded memory. Not thread-safe. The
/// tokenizer must outlive it.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Appends the text of the next ids; it may hold text until it sees further ids.
  virtual void feed(std::span<const std::int32_t> ids, std::string& out) = 0;
  /// Ends the last document.
  virtual void finish(std::string& out) = 0;
};

/// Options for encoding texts.
struct EncodeOptions {
  /// Whether the names of special tokens in a text ("<|endoftext|>") are encoded as these tokens.
  /// Otherwise they are ordinary text, so that a text cannot end its document.
  bool special_tokens = false;
};

/// Converts text to token ids and back. Thread-safe: no call changes the object.
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
  /// The ids that the tokenizer's file puts before a text, such as Llama's <s>; documents do not
  /// have them.
  const std::vector<std::int32_t>& before_text() const { return before_text_; }
  void set_before_text(std::vector<std::int32_t> ids) { before_text_ = std::move(ids); }
  /// The id of the special token; -1: there is none.
  std::int32_t special_token(std::string_view name) const;
  virtual std::unique_ptr<Encoder> encoder(const EncodeOptions& options) const = 0;
  /// Appends the text of `ids` to `out`; end-of-document ids have no text. Error for an id outside
  /// the vocabulary.
  virtual void decode(std::span<const std::int32_t> ids, std::string& out) const = 0;
  /// Decodes as decode() does all ids together.
  virtual std::unique_ptr<Decoder> decoder() const;
  /// Bytes of text that an id stands for within a document.
  virtual std::int64_t text_bytes(std::int32_t id) const;

  /// Appends the text of `ids` after the document's ids `before`, so that it continues their text:
  /// many tokenizers leave out a space before a document's first word.
  void decode_after(std::span<const std::int32_t> before, std::span<const std::int32_t> ids,
                    std::string& out) const;
  /// Appends the ids of one whole document to `out`, without an end-of-document token.
  void encode(std::string_view document, std::vector<std::int32_t>& out,
              const EncodeOptions& options = {}) const;

 private:
  std::vector<std::int32_t> before_text_;
};

/// Names a tokenizer.
struct TokenizerSource {
  /// "bytes" (257 ids: the 256 byte values, and 256 for the end of a document), or the path of a
  /// Hugging Face tokenizer.json (docs/tokenizers.md lists what it may have), or of a folder with
  /// one or with GPT-2's vocab.json and merges.txt.
  std::string path = "bytes";
  /// The special token that ends documents. "": the first of "<|endoftext|>", "<|end_of_text|>",
  /// "</s>", "<eos>" and "[SEP]" that the tokenizer has. The byte tokenizer has its own.
  std::string end_of_document = {};
};

/// Names that files of a tokenizer can have in a folder.
inline constexpr std::array<const char*, 3> tokenizer_file_names{"tokenizer.json", "vocab.json",
                                                                 "merges.txt"};

/// The files of the tokenizer at this path, by these names: a folder with them is a tokenizer, too.
/// None for "bytes". UsageError as make_tokenizer.
std::map<std::string, std::string> tokenizer_files(const std::string& path);

/// UsageError if the tokenizer does not exist or needs a feature that is not implemented.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerSource& source);
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& path);

}  // namespace trireme::data
