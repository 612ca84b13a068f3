#pragma once

#include <trireme/base/philox.hpp>
#include <trireme/data/samples.hpp>
#include <trireme/deck/config.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::data {

/// Room for some samples of bert, S tokens each, of which M are predicted. A batch of fewer samples
/// than there is room for fills the front of each array, but that of `rows` that belongs to it.
struct PairBatch {
  std::span<std::int32_t> tokens;    ///< [B, S] what the model sees
  std::span<std::int32_t> segments;  ///< [B, S] 0 in the first segment, 1 in the second
  std::span<std::int32_t> targets;   ///< [B, M] what stood where tokens are predicted
  std::span<std::int32_t> rows;   ///< [B, M] where, in [B, S]; then [B] first tokens, if asked for
  std::span<std::int32_t> pairs;  ///< [B] 1: not the next segment, or not in order; if asked for
};

/// Makes samples [CLS] A [SEP] B [SEP] of windows of S − 3 tokens (Devlin et al. 2019, arXiv
/// 1810.04805, section 3.1). A window is cut in two anywhere. `next`: in half of the samples, B
/// comes from the same place of another window of the same file. `order`: in half of them A and B
/// change places (Lan et al. 2020, arXiv 1909.11942). M tokens of text are predicted: eight of ten
/// are hidden by [MASK], one is replaced by any id, one stays. All of this is computed from (seed,
/// sample), whoever asks; nothing is drawn twice alike in another epoch. Thread-safe.
class Pairs {
 public:
  explicit Pairs(const deck::Config& config);

  /// UsageError where samples cannot be made of these windows.
  void expect_usable(const Windows& windows) const;

  /// Training samples [first, first + count).
  void read(const Samples& samples, std::int64_t first, std::int64_t count,
            const PairBatch& batch) const;
  /// For evaluation, windows [first, first + count), each a sample; whatever the run's seed, masks
  /// are the same.
  void read(const Windows& windows, std::int64_t first, std::int64_t count,
            const PairBatch& batch) const;

 private:
  class Draw;
  /// Sample `place` of the batch, from a window of a file.
  void make(Draw draw, const Windows& windows, std::int64_t window, std::int64_t place,
            const PairBatch& batch) const;
  void mask(Draw& draw, std::int64_t first_length, std::int64_t place,
            const PairBatch& batch) const;

  std::int64_t sequence_;
  std::int64_t text_;  ///< tokens of text in a sample
  std::int64_t masked_;
  std::int64_t vocabulary_;
  SentenceLoss loss_;
  deck::SpecialTokens ids_;
  std::uint64_t seed_;
};

}  // namespace trireme::data
