#pragma once

#include <trireme/data/token_source.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::data {

/// Samples of S tokens that hold whole documents, or pieces of documents that are longer than a
/// sample. A document of n tokens gives n − 1 tokens with a target, which are cut into pieces of S
/// tokens and a remainder. Pieces are packed by best fit, longest first (Ding et al. 2024, arXiv
/// 2404.10830). Samples are in the file order of their longest pieces. The result depends only on
/// the document offsets and S. Thread-safe.
class PackedDocuments {
 public:
  /// Tokens [first, first + count) of the file are inputs; tokens [first + 1, first + count + 1)
  /// are their targets.
  struct Piece {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };
  static constexpr std::int64_t longest_sequence = std::int64_t{1} << 20;

  /// UsageError if no document has two tokens, S is not from 1 to longest_sequence, or the file has
  /// 2^44 tokens or 2^32 − 1 pieces or more. Error if the document offsets are damaged.
  PackedDocuments(const TokenSource& file, std::int64_t sequence);

  std::int64_t samples() const { return std::ssize(begins_) - 1; }
  std::int64_t pieces(std::int64_t sample) const { return begin_of(sample + 1) - begin_of(sample); }
  /// Piece i of a sample; piece 0 is the longest piece.
  Piece piece(std::int64_t sample, std::int64_t i) const {
    const std::uint64_t both = pieces_[static_cast<std::size_t>(begin_of(sample) + i)];
    return {static_cast<std::int64_t>(both >> length_bits),
            static_cast<std::int64_t>(both & (longest_sequence - 1)) + 1};
  }

  std::int64_t documents() const { return documents_; }
  /// Number of documents that are cut into several pieces, and number of documents of fewer than
  /// two tokens, which are in no sample.
  std::int64_t cut() const { return cut_; }
  std::int64_t dropped() const { return dropped_; }
  /// Fraction of all samples' tokens that belong to no document.
  double padding() const {
    return 1 - static_cast<double>(tokens_) /
                   (static_cast<double>(samples()) * static_cast<double>(sequence_));
  }
  /// "1,000 documents in 37 samples, 0.40 % padding, 2.10 % of the documents cut"
  std::string description() const;

 private:
  static constexpr int length_bits = 20;

  /// Index of the first piece of a sample.
  std::int64_t begin_of(std::int64_t sample) const {
    return begins_[static_cast<std::size_t>(sample)];
  }
  /// Pieces of all documents, in file order.
  std::vector<std::uint64_t> cut_documents(const TokenSource& file);
  /// Returns the sample of each sorted piece, and counts the samples in count_.
  std::vector<std::uint32_t> best_fit(const std::vector<std::uint64_t>& sorted);
  /// Fills pieces_ and begins_.
  void order(const std::vector<std::uint64_t>& sorted, const std::vector<std::uint32_t>& sample_of);

  std::int64_t sequence_;
  std::int64_t documents_;
  std::int64_t cut_ = 0;
  std::int64_t dropped_ = 0;
  std::int64_t tokens_ = 0;            ///< tokens of all pieces
  std::uint32_t count_ = 0;            ///< number of samples
  std::vector<std::uint64_t> pieces_;  // first << 20 | count − 1, ordered by sample
  // Index of each sample's first piece, then the number of pieces.
  std::vector<std::uint32_t> begins_;
};

}  // namespace trireme::data
