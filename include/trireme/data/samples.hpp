#pragma once

#include <trireme/base/types.hpp>
#include <trireme/data/blend.hpp>
#include <trireme/data/image_documents.hpp>
#include <trireme/data/packed_documents.hpp>
#include <trireme/data/packed_pairs.hpp>
#include <trireme/data/token_source.hpp>
#include <trireme/deck/config.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace trireme::data {

/// Kind of the samples that are made of a file.
struct SampleForm {
  std::int64_t sequence = 0;  ///< S: tokens of a sample; of pairs: of its targets
  Packing packing = Packing::none;
  std::int64_t source = 0;         ///< of pairs: tokens of a sample's sources; 0: no pairs
  deck::VisionConfig vision = {};  ///< of documents with images; absent: other samples

  SampleForm(std::int64_t tokens, Packing how = Packing::none, std::int64_t of_source = 0)
      : sequence(tokens), packing(how), source(of_source) {}
  explicit SampleForm(const deck::ModelConfig& model);
};

/// The samples of a file, in the order of evaluation. Without packing: windows of S + 1 tokens, of
/// which window i begins at token i S, so that each token of a window, except the file's first
/// token, is a target once; an incomplete last window is dropped. With packing: the samples of
/// PackedDocuments. With sources: the samples of PackedPairs, and with images those of
/// ImageDocuments, both of which read() does not read. The file must outlive the object.
/// Thread-safe.
class Windows {
 public:
  /// UsageError if the file has too few tokens for a window or cannot be packed.
  Windows(const TokenSource& file, const SampleForm& form);

  const std::string& path() const { return file_.path(); }
  std::int64_t count() const { return count_; }
  std::int64_t sequence() const { return sequence_; }
  /// Whether only some tokens of the file count in the loss.
  bool has_mask() const { return file_.has_mask(); }
  /// The packed documents; null without packing.
  const PackedDocuments* packed() const { return packed_.get(); }
  /// The pairs; null if the samples have no sources.
  const PackedPairs* pairs() const { return pairs_.get(); }
  /// The documents with images; null for other samples.
  const ImageDocuments* documents() const { return documents_.get(); }
  /// Whether all targets count in the loss: without a mask and without packing.
  bool all_count() const { return !has_mask() && !packed_ && !documents_; }
  /// Number of the window's tokens that are not padding.
  std::int64_t tokens(std::int64_t window) const;
  /// Number of the window's targets that count in the loss.
  std::int64_t counted(std::int64_t window) const;
  /// Reads a window. `inputs`: the tokens; `targets`: the next tokens, or `uncounted`; `positions`,
  /// which may be empty: positions in the window, or with packing in the piece. Padding of packed
  /// samples: inputs 0, targets `uncounted`, positions 0. All arrays are [S].
  void read(std::int64_t window, std::span<std::int32_t> inputs, std::span<std::int32_t> targets,
            std::span<std::int32_t> positions = {}) const;
  /// Reads windows [first, first + count). All arrays are [count, S].
  void read(std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
            std::span<std::int32_t> targets, std::span<std::int32_t> positions = {}) const;

 private:
  void read_packed(std::int64_t sample, std::span<std::int32_t> inputs,
                   std::span<std::int32_t> targets, std::span<std::int32_t> positions) const;

  const TokenSource& file_;
  std::int64_t sequence_;
  std::shared_ptr<const PackedDocuments> packed_;    ///< shared by copies of this object
  std::shared_ptr<const PackedPairs> pairs_;         ///< the same
  std::shared_ptr<const ImageDocuments> documents_;  ///< the same
  std::int64_t count_;
};

/// A training file and its weight in any unit.
struct WeightedSource {
  const TokenSource* file = nullptr;
  double weight = 1;
};

/// The endless sequence of training samples. A blend gives the file of sample n and the sample's
/// number k within this file. Sample k of a file with W windows is at place k mod W of epoch ⌊k /
/// W⌋. An epoch has each window once, in an order computed from (seed, file, epoch). The files must
/// outlive the object. Thread-safe.
class Samples {
 public:
  Samples(const TokenSource& file, const SampleForm& form, std::uint64_t seed);
  Samples(std::span<const WeightedSource> files, const SampleForm& form, std::uint64_t seed);

  std::size_t files() const { return windows_.size(); }
  /// Number of windows of a file: the length of its epoch in samples.
  std::int64_t per_epoch(std::size_t file = 0) const { return windows_[file].count(); }
  std::int64_t sequence() const { return windows_.front().sequence(); }
  /// The number of samples of each file among the first `samples` samples.
  std::vector<std::int64_t> of_files(std::int64_t samples) const { return blend_.counts(samples); }
  const Windows& windows(std::size_t file) const { return windows_[file]; }
  /// Whether Windows::all_count() is true for all files.
  bool all_count() const;
  /// Number of targets that count in the loss in samples [first_sample, first_sample + count).
  std::int64_t counted(std::int64_t first_sample, std::int64_t count) const;
  /// Number of tokens in samples [first_sample, first_sample + count) that are not padding.
  std::int64_t tokens(std::int64_t first_sample, std::int64_t count) const;
  struct Place {
    std::size_t file = 0;
    std::int64_t window = 0;
  };
  Place place(std::int64_t sample) const;
  /// Reads samples [first_sample, first_sample + count). All arrays are [count, S]; `positions` may
  /// be empty.
  void read(std::int64_t first_sample, std::int64_t count, std::span<std::int32_t> inputs,
            std::span<std::int32_t> targets, std::span<std::int32_t> positions = {}) const;

 private:
  std::vector<Windows> windows_;  // one per file
  Blend blend_;
  std::uint64_t seed_;
};

/// Fills `positions` with 0 … sequence − 1, repeatedly.
void count_up(std::span<std::int32_t> positions, std::int64_t sequence);

/// A pseudo-random bijection of [0, n) computed from (seed, epoch, index): a generalised Feistel
/// network on [0, a) × [0, a), a = ⌈√n⌉ (Black & Rogaway 2002, "Ciphers with arbitrary finite
/// domains"), with Philox as round function. Images outside [0, n) are permuted again.
class Permutation {
 public:
  /// Error unless 1 ≤ n ≤ 2^60.
  Permutation(std::int64_t n, std::uint64_t seed, std::uint32_t epoch);
  std::int64_t size() const { return n_; }
  /// The image of `index`, 0 ≤ index < n.
  std::int64_t operator()(std::int64_t index) const;

 private:
  std::int64_t n_;
  std::uint64_t side_;  // a
  std::uint64_t seed_;
  std::uint32_t epoch_;
};

}  // namespace trireme::data
