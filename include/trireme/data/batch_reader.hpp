#pragma once

#include <trireme/architecture/objective.hpp>
#include <trireme/architecture/rank_sizes.hpp>
#include <trireme/data/samples.hpp>
#include <trireme/deck/config.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace trireme::data {

/// Memory of a batch's fields [B · per_sample], in the order of
/// architecture::TrainingObjective::fields. Fewer than B samples fill the beginning of each field.
using BatchFields = std::span<const std::span<std::int32_t>>;

/// Makes the batches of a training objective from windows of text. Thread-safe.
class BatchReader {
 public:
  virtual ~BatchReader() = default;

  /// UsageError if these windows cannot form batches.
  virtual void expect_usable(const Windows& windows) const = 0;
  /// Reads training samples [first, first + count) into `fields`.
  virtual void read(const Samples& samples, std::int64_t first, std::int64_t count,
                    BatchFields fields) const = 0;
  /// Reads windows [first, first + count) into `fields` as evaluation samples.
  virtual void read(const Windows& windows, std::int64_t first, std::int64_t count,
                    BatchFields fields) const = 0;
  /// Number of targets that count in the loss, in the first `count` samples of `fields`.
  virtual std::int64_t counted(BatchFields fields, std::int64_t count) const = 0;
  /// Bytes of text of the targets that counted() counts; 0 if the objective chooses its targets at
  /// random. `bytes_of_token`: bytes of text of each id.
  virtual std::int64_t text_bytes(BatchFields fields, std::int64_t count,
                                  const std::vector<std::int32_t>& bytes_of_token) const = 0;
};

/// Number of `targets` that are not `uncounted`, and bytes of their text.
std::int64_t counted_targets(std::span<const std::int32_t> targets);
std::int64_t bytes_of_targets(std::span<const std::int32_t> targets,
                              const std::vector<std::int32_t>& bytes_of_token);

/// The reader for the objective of the deck's model.
std::unique_ptr<BatchReader> make_batch_reader(const deck::Config& config);

/// Copies this context rank's share of each field of `whole`, the fields of whole samples, to
/// `own`. Fields with a value per token: the rank's tokens of each sample. Field `rows`: all
/// values, as indices among the rank's own tokens, or −1 for another rank's token. Other fields:
/// one contiguous part.
void take_own_fields(const architecture::TrainingObjective& objective,
                     const architecture::Shard& shard, const architecture::RankSizes& sizes,
                     std::int64_t sequence, BatchFields whole, BatchFields own);

}  // namespace trireme::data
