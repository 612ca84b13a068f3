#pragma once

#include <trireme/architecture/objective.hpp>
#include <trireme/base/philox.hpp>
#include <trireme/data/batch_reader.hpp>

#include <cstddef>
#include <optional>

namespace trireme::data {

/// Makes samples [CLS] A [SEP] B [SEP] of windows of S − 3 tokens (Devlin et al. 2019, arXiv
/// 1810.04805, section 3.1). A window is cut in two anywhere. `next`: in half of the samples, B
/// comes from the same place of another window of the same file. `order`: in half of them A and B
/// change places (Lan et al. 2020, arXiv 1909.11942). M tokens of text are predicted: eight of ten
/// are hidden by [MASK], one is replaced by any id, one stays. All of this is computed from (seed,
/// sample), whoever asks; nothing is drawn twice alike in another epoch. For evaluation, masks are
/// the same whatever the seed.
///
/// Fields of B samples of S tokens, M of them predicted:
///   tokens [B, S]    what the model sees
///   segments [B, S]  0 in the first segment, 1 in the second
///   targets [B, M]   what was where tokens are predicted
///   rows [B, M]      where, in [B, S]; then [B] first tokens, if there is a loss of pairs
///   pairs [B]        1: not the next segment, or not in order; if there is a loss of pairs
class Pairs final : public BatchReader {
 public:
  explicit Pairs(const deck::Config& config);

  void expect_usable(const Windows& windows) const override;
  void read(const Samples& samples, std::int64_t first, std::int64_t count,
            BatchFields fields) const override;
  void read(const Windows& windows, std::int64_t first, std::int64_t count,
            BatchFields fields) const override;
  std::int64_t text_bytes(BatchFields, std::int64_t,
                          const std::vector<std::int32_t>&) const override {
    return 0;
  }

 private:
  class Draw;
  struct Batch;
  /// Sample `place` of the batch, from a window of a file.
  void make(Draw draw, const Windows& windows, std::int64_t window, std::int64_t place,
            const Batch& batch) const;
  void mask(Draw& draw, std::int64_t first_length, std::int64_t place, const Batch& batch) const;
  Batch batch_of(BatchFields fields) const;

  architecture::TrainingObjective objective_;
  std::int64_t sequence_;
  std::int64_t text_;  ///< tokens of text in a sample
  std::int64_t masked_;
  std::int64_t vocabulary_;
  SentenceLoss loss_;
  deck::SpecialTokens ids_;
  std::uint64_t seed_;
};

}  // namespace trireme::data
