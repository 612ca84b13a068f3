#pragma once

#include <trireme/architecture/objective.hpp>
#include <trireme/data/batch_reader.hpp>

#include <optional>

namespace trireme::data {

/// Makes batches of pairs of a source and a target (packed_pairs.hpp).
///
/// Fields of B samples, with S' tokens of sources and S of targets:
///   source [B, S']                     the sources, which the encoder reads
///   tokens [B, S]                      the decoder's input: each target, one place later, after
///   the
///                                      start token
///   targets [B, S]                     the targets, then `uncounted`
///   positions [B, S]                   only with several pairs per sample: positions in the target
///   source_begin, source_end [B, S'], key_begin, key_end [B, S]
///                                      the pair's source is at [begin, end) of the sample's source
class PairBatches final : public BatchReader {
 public:
  explicit PairBatches(const deck::Config& config);

  void expect_usable(const Windows&) const override {}  // PackedPairs has checked the file
  void read(const Samples& samples, std::int64_t first, std::int64_t count,
            BatchFields fields) const override;
  void read(const Windows& windows, std::int64_t first, std::int64_t count,
            BatchFields fields) const override;
  std::int64_t counted(BatchFields fields, std::int64_t count) const override;
  std::int64_t text_bytes(BatchFields fields, std::int64_t count,
                          const std::vector<std::int32_t>& bytes_of_token) const override;

 private:
  void clear(BatchFields fields) const;
  /// Reads sample `window` of a file as sample `place` of the batch.
  void read_sample(const Windows& windows, std::int64_t window, std::int64_t place,
                   BatchFields fields) const;
  std::span<std::int32_t> targets(BatchFields fields, std::int64_t count) const;

  architecture::TrainingObjective objective_;
  std::int64_t source_, sequence_;
  std::int32_t start_;
};

}  // namespace trireme::data
