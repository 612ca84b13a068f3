#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Text to token ids and back. Thread-safe: no call changes the object.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual const std::string& name() const = 0;
  virtual std::int64_t vocabulary() const = 0;
  /// The id that ends every document; it stands for no text.
  virtual std::int32_t end_of_document() const = 0;
  /// Appends the ids of `bytes` to `out`, without an end of document. A document may come in
  /// pieces: the ids of the pieces, one after the other, are those of the whole.
  virtual void encode(std::string_view bytes, std::vector<std::int32_t>& out) const = 0;
  /// Appends the text of `ids` to `out`; nothing for an end of document. Error for an id outside
  /// the vocabulary.
  virtual void decode(std::span<const std::int32_t> ids, std::string& out) const = 0;
};

/// The tokenizer of this name: "bytes", 257 ids: the 256 byte values and 256, the end of a
/// document. UsageError for any other name.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

}  // namespace trireme::data
