#pragma once

#include <trireme/data/token_source.hpp>
#include <trireme/deck/enums.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

/// Samples of an encoder-decoder model with S_e source and S_d target tokens, each with one or more
/// pairs of a file from JSON lines {"source", "target"}. A longer source or target is cut to its
/// first S_e or S_d tokens. Packing::none: a sample is a pair. Otherwise pairs are packed in file
/// order, each into the first of the `open` samples with room for both sides; a new sample replaces
/// the oldest open one. The samples depend only on the file, S_e, S_d and packing. The file must
/// outlive the object. Thread-safe.
class PackedPairs {
 public:
  static constexpr std::size_t open = 256;

  /// Arrays of one sample. Padding: tokens and positions 0, targets `uncounted`, and no keys: the
  /// end of the last source is both ends of the range.
  struct Fields {
    std::span<std::int32_t> source;     ///< [S_e] tokens
    std::span<std::int32_t> inputs;     ///< [S_d] `start`, then the targets before the last
    std::span<std::int32_t> targets;    ///< [S_d] tokens
    std::span<std::int32_t> positions;  ///< [S_d] positions in the target; may be empty
    /// [S_e] and [S_d] The pair's source is at [begin, end) of `source`.
    std::span<std::int32_t> source_begin, source_end, key_begin, key_end;
  };

  /// UsageError unless S_e ≥ 1, S_d ≥ 1, the file has less than 2^32 − 1 documents, and some but
  /// not all tokens of each document count in the loss.
  PackedPairs(const TokenSource& file, std::int64_t source, std::int64_t target,
              Packing packing = Packing::documents);

  std::int64_t samples() const { return std::ssize(begins_) - 1; }
  /// Number of pairs in all samples.
  std::int64_t count() const { return std::ssize(pairs_); }
  /// The document numbers of a sample's pairs.
  std::span<const std::uint32_t> pairs(std::int64_t sample) const;
  /// Number of target tokens of a sample, all of which count in the loss.
  std::int64_t counted(std::int64_t sample) const;
  /// Number of pairs whose source or target is cut, and their share of all pairs.
  std::int64_t cut() const { return cut_; }
  double share_cut() const { return static_cast<double>(cut_) / static_cast<double>(count()); }
  /// Fractions of all source and target tokens that are padding.
  double source_padding() const { return padding(source_tokens_, source_); }
  double target_padding() const { return padding(target_tokens_, target_); }
  /// "1,000 pairs in 37 samples, 4.20 % padding of sources and 8.10 % of targets, 0.40 % of the
  /// pairs cut"
  std::string description() const;

  /// Reads a sample. UsageError if the tokens that count in a pair are not its end, or its source
  /// does not end with the token that ends its target.
  void read(std::int64_t sample, std::int32_t start, const Fields& fields) const;

 private:
  struct Pair {
    std::vector<std::int32_t> source, target;
  };
  Pair read_pair(std::int64_t document) const;
  double padding(std::int64_t tokens, std::int64_t sequence) const {
    return 1 - static_cast<double>(tokens) /
                   (static_cast<double>(samples()) * static_cast<double>(sequence));
  }

  const TokenSource& file_;
  std::int64_t source_, target_;  ///< S_e, S_d
  std::int64_t cut_ = 0;
  std::int64_t source_tokens_ = 0, target_tokens_ = 0;  ///< of all samples
  std::vector<std::uint32_t> pairs_;                    ///< documents, ordered by sample
  std::vector<std::uint32_t> begins_;  ///< index of each sample's first pair, then their number
};

}  // namespace trireme::data
