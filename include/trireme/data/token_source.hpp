#pragma once

#include <trireme/data/tokenizer.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace trireme::data {

/// Value in place of a target that does not count in the loss.
inline constexpr std::int32_t uncounted = -1;

/// Number of ids or offsets of a file that are converted at a time, on the stack.
inline constexpr std::size_t numbers_at_a_time = 16384;

/// Images of a file: squares of 8-bit RGB pixels. An image stands for `tokens_per_image` copies of
/// the id `token` in its document; the copies of the k-th image precede the copies of image k + 1.
struct ImageForm {
  std::int64_t size = 0;    ///< pixels per side
  std::int64_t images = 0;  ///< number of images in the file
  std::int64_t token = 0;
  std::int64_t tokens_per_image = 0;
  std::int64_t most_per_document = 0;  ///< largest number of images of a document
  std::string fit = {};         ///< how images became squares, a word of --image-fit; "": unknown
  std::string resampling = {};  ///< interpolation, as io::image_resampling; "": unknown
  std::string begin = {};       ///< text before each image
  std::string end = {};         ///< text after each image
  std::int64_t image_bytes() const { return size * size * 3; }
  bool operator==(const ImageForm&) const = default;
};

/// Tokens of concatenated documents in a file. Thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual const std::string& path() const = 0;
  virtual std::int64_t tokens() const = 0;
  /// Number of ids; 0 if neither the file nor the caller of open_tokens states it.
  virtual std::int64_t vocabulary() const = 0;
  virtual std::int64_t documents() const = 0;
  /// Tokenizer::name() of the tokenizer that made the file; "" if the file does not store it.
  virtual const std::string& tokenizer() const = 0;
  /// Path and end-of-document token of the file's tokenizer; an empty path if the file does not
  /// store them.
  virtual TokenizerSource tokenizer_source() const = 0;

  /// Digest by which copies of the file are recognized, in hexadecimal digits. Reads only a small
  /// part of a large file.
  virtual std::string fingerprint() const = 0;

  /// Reads tokens [first, first + out.size()). Error if an id is outside the vocabulary.
  virtual void read(std::int64_t first, std::span<std::int32_t> out) const = 0;
  /// Whether some tokens do not count in the loss.
  virtual bool has_mask() const { return false; }
  /// Replaces tokens that do not count in the loss by `uncounted`. `tokens`: tokens [first, first +
  /// tokens.size()) of the file.
  virtual void mask(std::int64_t first, std::span<std::int32_t> tokens) const;
  /// Number of tokens in [first, first + count) that count in the loss.
  virtual std::int64_t counted(std::int64_t first, std::int64_t count) const;
  /// Reads the offsets of documents first, first + 1, …: the position of each document's first
  /// token. The offset of document documents() is tokens().
  virtual void read_document_offsets(std::int64_t first, std::span<std::int64_t> out) const = 0;

  /// The images of the file; std::nullopt for a file without images.
  virtual std::optional<ImageForm> images() const { return std::nullopt; }
  /// Reads the numbers of the first images of documents first, first + 1, …. The number for
  /// document documents() is the number of images. Error for a file without images.
  virtual void read_document_images(std::int64_t first, std::span<std::int64_t> offsets) const;
  /// Reads the pixels of images first, first + 1, …, uint8 [images, size, size, 3]: rows from top
  /// to bottom, each from left to right, red, green and blue. Error unless `out` has the size of
  /// whole images of the file.
  virtual void read_images(std::int64_t first, std::span<std::uint8_t> out) const;

  /// Compares the data with the format's checksums. Without checksums, runs verify().
  virtual void verify_bytes() const = 0;
  /// Reads every byte and runs all checks that the format allows.
  virtual void verify() const = 0;
};

/// Opens a token file of `trireme tokenize`, or Megatron-LM's pair of an .idx and a .bin file by
/// the path of the .idx or by their common prefix. `vocabulary`: size of the model's vocabulary,
/// for files that do not store a vocabulary size; 0: unknown.
std::unique_ptr<TokenSource> open_tokens(const std::string& path, std::int64_t vocabulary = 0);

/// Whether open_tokens(path) would find a file.
bool tokens_exist(const std::string& path);

}  // namespace trireme::data
