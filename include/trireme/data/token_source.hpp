#pragma once

#include <trireme/data/tokenizer.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace trireme::data {

/// Tokens of concatenated documents in a file. Thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual const std::string& path() const = 0;
  virtual std::int64_t tokens() const = 0;
  /// How many ids there may be; 0 if neither the file nor the one who opened it has said so.
  virtual std::int64_t vocabulary() const = 0;
  virtual std::int64_t documents() const = 0;
  /// Tokenizer::name() of what made it; "" if the file does not say.
  virtual const std::string& tokenizer() const = 0;
  /// Where that tokenizer was when the file was made.
  virtual TokenizerSource tokenizer_source() const = 0;

  /// Tokens [first, first + out.size()). Error if an id lies outside the vocabulary.
  virtual void read(std::int64_t first, std::span<std::int32_t> out) const = 0;
  /// Where documents first, first + 1, … begin; entry documents() is tokens().
  virtual void read_document_offsets(std::int64_t first, std::span<std::int64_t> out) const = 0;
  /// Reads every byte and checks what can be checked.
  virtual void verify() const = 0;
};

/// Opens a token file of `trireme tokenize`, or Megatron-LM's pair of an .idx and a .bin, named by
/// the .idx or by what both have before the dot. `vocabulary` is the model's, for files that do not
/// say theirs; 0: not known.
std::unique_ptr<TokenSource> open_tokens(const std::string& path, std::int64_t vocabulary = 0);

/// Whether open_tokens(path) would find a file.
bool tokens_exist(const std::string& path);

}  // namespace trireme::data
