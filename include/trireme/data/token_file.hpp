#pragma once

#include <trireme/data/token_header.hpp>
#include <trireme/data/token_source.hpp>
#include <trireme/io/input_file.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

/// Tokens of concatenated documents, each ended by its end-of-document token, in an HDF5 file
/// (docs/token_files.md). Reads without HDF5. Thread-safe.
class TokenFile final : public TokenSource {
 public:
  /// Reads and verifies the bytes outside the datasets. UsageError if the file is missing, is not a
  /// token file or has an unknown version; Error if it is damaged.
  explicit TokenFile(const std::string& path);

  const std::string& path() const override { return file_.path(); }
  std::int64_t tokens() const override { return header_.tokens; }
  std::int64_t vocabulary() const override { return header_.vocabulary; }
  std::int64_t documents() const override { return header_.documents; }
  std::int64_t text_bytes() const { return header_.text_bytes; }
  const std::string& tokenizer() const override { return tokenizer_; }
  TokenizerSource tokenizer_source() const override;
  std::string fingerprint() const override;
  const TokenHeader& header() const { return header_; }

  void read(std::int64_t first, std::span<std::int32_t> out) const override;

  /// As in TokenSource; Error unless the offsets increase.
  void read_document_offsets(std::int64_t first, std::span<std::int64_t> out) const override;

  bool has_mask() const override { return header_.has_mask(); }
  void mask(std::int64_t first, std::span<std::int32_t> tokens) const override;
  std::int64_t counted(std::int64_t first, std::int64_t count) const override;

  std::optional<ImageForm> images() const override;
  /// As in TokenSource; Error unless the numbers are in order.
  void read_document_images(std::int64_t first, std::span<std::int64_t> offsets) const override;
  void read_images(std::int64_t first, std::span<std::uint8_t> out) const override;

  /// The inputs given to `trireme tokenize`, one per line. Opens the file with HDF5.
  std::string sources() const;

  void verify_bytes() const override;
  /// Compares every byte of the datasets with the checksums, and checks every id, every offset,
  /// the number of counted tokens and the image tokens of each document.
  void verify() const override;

 private:
  void verify_images() const;
  void read_image_numbers(std::int64_t first, std::span<std::int64_t> out) const;
  void expect_inside(std::int64_t first, std::int64_t count) const;
  /// Calls use(token, bits, n) for the mask of tokens [first, first + count), n ≤ 8 tokens at a
  /// time: bit i of `bits` belongs to token + i.
  template <class Use>
  void visit_mask(std::int64_t first, std::int64_t count, const Use& use) const;

  io::InputFile file_;
  TokenHeader header_;
  std::string tokenizer_;
};

/// Digest of the bytes of `file` after the header that belong to no dataset, at most 16 MiB.
Digest digest_of_rest(const io::InputFile& file, const TokenHeader& header);

}  // namespace trireme::data
