#pragma once

#include <trireme/data/token_header.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/input_file.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

/// Tokens of concatenated documents, each ended by its end-of-document token, in an HDF5 file
/// (docs/token_files.md). Reads with pread and without HDF5, so that any thread may read at any
/// time. Thread-safe.
class TokenFile {
 public:
  /// Reads and verifies the header and all bytes outside the two datasets. UsageError if it is no
  /// token file; Error if it is damaged or truncated.
  explicit TokenFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::int64_t tokens() const { return header_.tokens; }
  std::int64_t vocabulary() const { return header_.vocabulary; }
  std::int64_t documents() const { return header_.documents; }
  std::int64_t text_bytes() const { return header_.text_bytes; }
  const std::string& tokenizer() const { return tokenizer_; }
  const TokenHeader& header() const { return header_; }

  /// Tokens [first, first + out.size()). Error if an id lies outside the vocabulary.
  void read(std::int64_t first, std::span<std::int32_t> out) const;

  /// Where documents first, first + 1, … begin; entry documents() is tokens(). Error unless they
  /// increase.
  void read_document_offsets(std::int64_t first, std::span<std::int64_t> out) const;

  /// What it was made from, as given to `trireme tokenize`; one per line. Opens the file with HDF5.
  std::string sources() const;

  /// Reads every byte against the checksums, and every id and offset for its range.
  void verify() const;

 private:
  io::InputFile file_;
  TokenHeader header_;
  std::string tokenizer_;
};

/// Writes a token file of any length in bounded memory: tokens and offsets wait in unnamed files in
/// the output's folder (so twice the space is needed while it is written), and the file appears
/// whole at commit() or not at all.
class TokenFileWriter {
 public:
  TokenFileWriter(const std::string& path, const std::string& tokenizer, std::int64_t vocabulary);

  /// More tokens of the current document.
  void append(std::span<const std::int32_t> tokens);
  /// Ends the current document, which must have tokens; `text_bytes` is the length of its text.
  void end_document(std::int64_t text_bytes);
  /// UsageError if there is no document. `sources` is cut at 32 KiB.
  void commit(const std::string& sources);

  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const { return documents_; }
  std::int64_t text_bytes() const { return text_bytes_; }

 private:
  /// A spool, what has not reached it yet, and the digest of both.
  struct Stream {
    explicit Stream(const std::string& path) : spool(path) {}
    void add(const void* data, std::size_t bytes);
    void flush();
    io::Spool spool;
    io::Checksum checksum;
    std::vector<char> buffer;
  };
  template <class Stored>
  void append_as(std::span<const std::int32_t> tokens);
  TokenHeader write_hdf5(const std::string& sources);

  io::AtomicFile file_;
  std::string tokenizer_;
  std::int64_t vocabulary_;
  Stream token_stream_;
  Stream offset_stream_;
  std::int64_t tokens_ = 0;
  std::int64_t documents_ = 0;
  std::int64_t text_bytes_ = 0;
  std::int64_t document_begin_ = 0;
};

/// Digest of the bytes of `file` after the header that belong to neither dataset. Error if they are
/// more than 16 MiB.
io::Digest digest_of_rest(const io::InputFile& file, const TokenHeader& header);

}  // namespace trireme::data
