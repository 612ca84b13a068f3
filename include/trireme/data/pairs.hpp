#pragma once

#include <trireme/architecture/objective.hpp>
#include <trireme/data/batch_reader.hpp>
#include <trireme/data/sample_draw.hpp>

#include <cstddef>
#include <optional>

namespace trireme::data {

/// Makes samples [CLS] A [SEP] B [SEP] from windows of S − 3 tokens (Devlin et al. 2019, arXiv
/// 1810.04805, section 3.1), which are cut in two at a random place. Sentence loss `next`: with
/// probability 0.5, B comes from the same place of another window of the file. Sentence loss
/// `order`: with probability 0.5, A and B are swapped (Lan et al. 2020, arXiv 1909.11942). M tokens
/// of text are predicted: each is replaced by [MASK] with probability 0.8, by a random id with
/// probability 0.1, and kept otherwise. All choices follow from (seed, sample) on every rank.
/// Evaluation samples do not depend on the seed.
///
/// Fields of B samples of S tokens, M of them predicted:
///   tokens [B, S]    the model's input
///   segments [B, S]  0 in the first segment, 1 in the second
///   targets [B, M]   original ids of the predicted tokens
///   rows [B, M]      indices of the predicted tokens in [B, S]; with a sentence loss, followed by
///                    [B] indices of the samples' first tokens
///   pairs [B]        only with a sentence loss; 0: B follows A in the text, 1: B does not
class Pairs final : public BatchReader {
 public:
  explicit Pairs(const deck::Config& config);

  void expect_usable(const Windows& windows) const override;
  void read(const Samples& samples, std::int64_t first, std::int64_t count,
            BatchFields fields) const override;
  void read(const Windows& windows, std::int64_t first, std::int64_t count,
            BatchFields fields) const override;
  std::int64_t counted(BatchFields, std::int64_t count) const override { return count * masked_; }
  std::int64_t text_bytes(BatchFields, std::int64_t,
                          const std::vector<std::int32_t>&) const override {
    return 0;
  }

 private:
  struct Batch;
  /// Makes sample `place` of the batch from a window of a file.
  void make(SampleDraw draw, const Windows& windows, std::int64_t window, std::int64_t place,
            const Batch& batch) const;
  void mask(SampleDraw& draw, std::int64_t first_length, std::int64_t place,
            const Batch& batch) const;
  Batch batch_of(BatchFields fields) const;

  architecture::TrainingObjective objective_;
  std::int64_t sequence_;
  std::int64_t text_;  ///< text tokens of a sample
  std::int64_t masked_;
  std::int64_t vocabulary_;
  SentenceLoss loss_;
  deck::SpecialTokens ids_;
  std::uint64_t seed_;
};

}  // namespace trireme::data
