#pragma once

#include <trireme/data/token_source.hpp>
#include <trireme/io/input_file.hpp>

#include <cstdint>
#include <span>
#include <string>

namespace trireme::data {

/// The pair of files that Megatron-LM's `preprocess_data.py` writes (MMapIndexedDataset):
/// `prefix`.bin holds only the tokens, `prefix`.idx the sizes and beginnings of sequences and the
/// beginnings of documents. Little endian:
///     9 bytes  "MMIDIDX\0\0"
///     uint64   version, 1
///     uint8    type of a token: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16
///     uint64   s, number of sequences;  uint64  d, number of documents + 1
///     int32    [s] number of tokens of each sequence
///     int64    [s] byte of the .bin at which each sequence begins
///     int64    [d] first sequence of each document; the last entry is s
/// Tokens have the order of the .bin. Reads with pread and caches nothing. Thread-safe.
class MegatronFile final : public TokenSource {
 public:
  /// UsageError for a missing file and for an .idx of another format or version; Error if the files
  /// do not match. read() accepts ids below `vocabulary`; 0: below 2^31.
  MegatronFile(const std::string& prefix, std::int64_t vocabulary);

  const std::string& path() const override { return index_.path(); }
  std::int64_t tokens() const override { return tokens_; }
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::int64_t documents() const override { return document_entries_ - 1; }
  std::int64_t sequences() const { return sequences_; }
  std::int64_t token_bytes() const { return token_bytes_; }
  const std::string& tokenizer() const override { return no_tokenizer_; }
  TokenizerSource tokenizer_source() const override { return {"", ""}; }
  /// Digest of both sizes, of the first and last MiB of the .idx, and of 64 evenly spaced blocks of
  /// 4 KiB of the .bin.
  std::string fingerprint() const override;

  void read(std::int64_t first, std::span<std::int32_t> out) const override;
  void read_document_offsets(std::int64_t first, std::span<std::int64_t> out) const override;
  /// Runs verify(), because the format has no checksums.
  void verify_bytes() const override { verify(); }
  /// Checks that sequences are contiguous, documents in order and ids in the vocabulary.
  void verify() const override;

 private:
  void read_header();
  std::int64_t begin_of(std::int64_t sequence) const;  ///< first token of a sequence
  /// First token of a sequence whose entry in the index is `pointer`; Error if it is invalid.
  std::int64_t token_at(std::int64_t sequence, std::int64_t pointer) const;
  template <class Stored>
  void read_as(std::int64_t first, std::span<std::int32_t> out) const;

  io::InputFile index_;
  io::InputFile bin_;
  std::int64_t vocabulary_;
  std::string no_tokenizer_;
  int type_ = 0;
  std::int64_t token_bytes_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t sequences_ = 0;
  std::int64_t document_entries_ = 0;
  std::int64_t sizes_begin_ = 0;
  std::int64_t pointers_begin_ = 0;
  std::int64_t documents_begin_ = 0;
};

}  // namespace trireme::data
