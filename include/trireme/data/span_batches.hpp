#pragma once

#include <trireme/architecture/objective.hpp>
#include <trireme/data/batch_reader.hpp>
#include <trireme/data/corrupted_spans.hpp>

namespace trireme::data {

/// Makes samples of corrupted spans (corrupted_spans.hpp) from windows of text. All choices follow
/// from (seed, sample) on every rank. Evaluation samples do not depend on the seed.
///
/// Fields of B samples, with S' tokens of a source and S of a target:
///   source [B, S']   the text with sentinels in place of spans, which the encoder reads
///   tokens [B, S]    the decoder's input: the targets, one place later, after the start token
///   targets [B, S]   sentinels and spans, then the end token
class SpanBatches final : public BatchReader {
 public:
  explicit SpanBatches(const deck::Config& config);

  void expect_usable(const Windows& windows) const override;
  void read(const Samples& samples, std::int64_t first, std::int64_t count,
            BatchFields fields) const override;
  void read(const Windows& windows, std::int64_t first, std::int64_t count,
            BatchFields fields) const override;
  std::int64_t counted(BatchFields, std::int64_t count) const override {
    return count * lengths_.target;
  }
  std::int64_t text_bytes(BatchFields, std::int64_t,
                          const std::vector<std::int32_t>&) const override {
    return 0;
  }

 private:
  /// Makes sample `place` of the batch from a window of a file.
  void make(SampleDraw draw, const Windows& windows, std::int64_t window, std::int64_t place,
            BatchFields fields) const;

  architecture::TrainingObjective objective_;
  deck::SpanLengths lengths_;
  deck::SpanIds ids_;
  std::uint64_t seed_;
};

}  // namespace trireme::data
