#pragma once

#include <trireme/base/checksum.hpp>
#include <trireme/data/token_header.hpp>
#include <trireme/data/token_source.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/hdf5_file.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

/// Numbers distinct digests in the order in which they come. Memory: 32 to 64 bytes for each, and
/// half as much more while the table grows.
class DigestNumbers {
 public:
  struct Place {
    std::int64_t number;
    bool is_new;
  };
  Place number_of(const Digest& digest);
  std::int64_t count() const { return count_; }

 private:
  struct Entry {
    Digest digest;
    std::int64_t number = -1;  ///< −1: free
  };
  /// The entry of a digest, or the free one where it belongs.
  Entry& entry(const Digest& digest);

  std::vector<Entry> entries_ = std::vector<Entry>(64);  ///< a power of 2, at most 3/4 in use
  std::int64_t count_ = 0;
};

/// Writes a token file in bounded memory, besides DigestNumbers of its images; the folder
/// temporarily needs twice the file's size. The file appears complete at commit(), or not at all.
class TokenFileWriter {
 public:
  /// The file stores `tokenizer`, the tokenizer's name, and `source`.
  /// With `images`, documents may have images of this size; the numbers of images are counted.
  TokenFileWriter(const std::string& path, const std::string& tokenizer, std::int64_t vocabulary,
                  const TokenizerSource& source = {},
                  const std::optional<ImageForm>& images = std::nullopt);

  /// Appends tokens to the current document. `counted`: whether these tokens count in the loss. The
  /// file gets a mask if any token does not count.
  void append(std::span<const std::int32_t> tokens, bool counted = true);
  /// Appends the next image of the current document, as TokenSource::read_images() reads it. An
  /// image with the same pixels as an earlier one is not stored again.
  void append_image(std::span<const std::uint8_t> pixels);
  /// Ends the current document, which must have tokens; `text_bytes` is the length of its text.
  /// Error unless the document has the image tokens of its images.
  void end_document(std::int64_t text_bytes);
  /// Completes the file. UsageError if there is no document or no counted token. `sources`: the
  /// inputs, one per line; truncated to 32 KiB. A file without any image is written as without
  /// `images`.
  void commit(const std::string& sources);

  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const { return documents_; }
  std::int64_t text_bytes() const { return text_bytes_; }
  std::int64_t counted() const { return counted_; }
  std::int64_t images() const { return image_form_ ? image_form_->images : 0; }

 private:
  /// A spool with a buffer, and the checksum of the spooled bytes.
  struct Stream {
    explicit Stream(const std::string& path) : spool(path) {}
    void add(const void* data, std::size_t bytes);
    void flush();
    io::Spool spool;
    Checksum checksum;
    std::vector<char> buffer;
  };
  template <class Stored>
  void append_as(std::span<const std::int32_t> tokens);
  void append_to_mask(std::int64_t count, bool counted);
  bool has_mask() const { return counted_ < tokens_; }
  bool has_images() const { return images() > 0; }
  void end_images();
  void write_image_fields(TokenHeader& header, io::Hdf5File& file);
  TokenHeader write_hdf5(const std::string& sources);

  io::AtomicFile file_;
  std::string tokenizer_;
  TokenizerSource source_;
  std::int64_t vocabulary_;
  Stream token_stream_;
  Stream offset_stream_;
  Stream mask_stream_;          ///< empty as long as all tokens count
  std::uint8_t mask_byte_ = 0;  ///< bits that are not yet in mask_stream_
  std::optional<ImageForm> image_form_;
  std::optional<Stream> image_stream_;        ///< distinct images
  std::optional<Stream> image_place_stream_;  ///< number of each image among those
  DigestNumbers image_digests_;
  std::optional<Stream> image_number_stream_;  ///< number of the first image of each document
  std::int64_t document_images_ = 0;           ///< images of the current document
  std::int64_t document_image_tokens_ = 0;     ///< image tokens of the current document
  std::int64_t counted_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t documents_ = 0;
  std::int64_t text_bytes_ = 0;
  std::int64_t document_begin_ = 0;
};

}  // namespace trireme::data
