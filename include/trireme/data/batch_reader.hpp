#pragma once

#include <trireme/architecture/local_sizes.hpp>
#include <trireme/architecture/objective.hpp>
#include <trireme/data/samples.hpp>
#include <trireme/deck/config.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace trireme::data {

/// Memory of a batch's fields in the order of architecture::TrainingObjective, each
/// [B · per_sample]. A batch of fewer samples fills the front of each field.
using BatchFields = std::span<const std::span<std::int32_t>>;

/// Makes the batches of a training objective from windows of text. Thread-safe.
class BatchReader {
 public:
  virtual ~BatchReader() = default;

  /// UsageError if these windows cannot form batches.
  virtual void expect_usable(const Windows& windows) const = 0;
  /// Training samples [first, first + count).
  virtual void read(const Samples& samples, std::int64_t first, std::int64_t count,
                    BatchFields fields) const = 0;
  /// Evaluation samples: windows [first, first + count).
  virtual void read(const Windows& windows, std::int64_t first, std::int64_t count,
                    BatchFields fields) const = 0;
  /// Number of targets of the first `count` samples that count in the loss.
  virtual std::int64_t counted(BatchFields fields, std::int64_t count) const = 0;
  /// Bytes of text in the counted predicted tokens of the first `count` samples; 0 if predicted
  /// tokens are chosen at random. `bytes_of_token` gives the bytes of each id.
  virtual std::int64_t text_bytes(BatchFields fields, std::int64_t count,
                                  const std::vector<std::int32_t>& bytes_of_token) const = 0;
};

/// The reader for the objective of the deck's model.
std::unique_ptr<BatchReader> make_batch_reader(const deck::Config& config);

/// Copies this context rank's share of each field from the fields of whole samples: its tokens of
/// each sample; its part of all chosen targets and of all pairs; all rows, as indices among its own
/// tokens, or −1 where another rank has the token. `own` has the sizes of `sizes`.
void take_own_fields(const architecture::TrainingObjective& objective,
                     const architecture::Shard& shard, const architecture::LocalSizes& sizes,
                     std::int64_t sequence, BatchFields whole, BatchFields own);

}  // namespace trireme::data
