#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Documents to token ids, one after the other, each in pieces. What it remembers between calls is
/// bounded. Not thread-safe: one per thread. The tokenizer must outlive it.
class Encoder {
 public:
  virtual ~Encoder() = default;
  /// More bytes of the document: appends the ids that no later byte can change.
  virtual void feed(std::string_view bytes, std::vector<std::int32_t>& out) = 0;
  /// The document is over: appends the rest, without an end of document. The ids of all calls, one
  /// after the other, are those of the whole document, however it was cut.
  virtual void finish(std::vector<std::int32_t>& out) = 0;
};

/// How texts are encoded.
struct EncodeOptions {
  /// Whether the names of special tokens in a text ("<|endoftext|>") stand for these tokens. Else
  /// they are ordinary text, so that a text cannot end its document.
  bool special_tokens = false;
};

/// Text to token ids and back. Thread-safe: no call changes the object.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// What identifies it: equal names give equal ids. "bytes", or "bpe-" and a checksum.
  virtual const std::string& name() const = 0;
  virtual std::int64_t vocabulary() const = 0;
  /// The id that ends every document; it stands for no text.
  virtual std::int32_t end_of_document() const = 0;
  virtual std::unique_ptr<Encoder> encoder(const EncodeOptions& options) const = 0;
  /// Appends the text of `ids` to `out`; nothing for an end of document. Error for an id outside
  /// the vocabulary.
  virtual void decode(std::span<const std::int32_t> ids, std::string& out) const = 0;

  /// Appends the ids of one whole document to `out`, without an end of document.
  void encode(std::string_view document, std::vector<std::int32_t>& out) const;
};

/// Which tokenizer is meant.
struct TokenizerSource {
  /// "bytes" (257 ids: the 256 byte values and 256, the end of a document), or the path of a
  /// tokenizer.json of Hugging Face's with a byte-level BPE, or of a folder with one or with
  /// GPT-2's vocab.json and merges.txt.
  std::string path = "bytes";
  /// The special token that ends documents. "": the first of "<|endoftext|>", "<|end_of_text|>",
  /// "</s>" and "<eos>" that the tokenizer has. The byte tokenizer has its own.
  std::string end_of_document = {};
};

/// UsageError if there is none, or if it asks for what is not implemented.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerSource& source);
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& path);

}  // namespace trireme::data
