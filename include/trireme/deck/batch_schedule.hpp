#pragma once

#include <trireme/deck/config.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace trireme::deck {

/// Consecutive steps with the same global batch.
struct BatchPhase {
  std::int64_t first_step = 1;
  std::int64_t first_sample = 0;  ///< samples that the run took before the phase
  std::int64_t global = 0;        ///< samples of each step
  bool operator==(const BatchPhase&) const = default;
};

/// The global batch of each step, the same with every layout. During the ramp-up it is a function
/// of x, the number of samples that earlier steps took. With n = (global − ramp_start) /
/// ramp_increment, it is
/// ramp_start + ⌊x n / ramp_samples⌋ ramp_increment   while x < ramp_samples, then global,
/// as in --rampup-batch-size of Megatron-LM.
class BatchSchedule {
 public:
  /// `batch` must have passed the deck's checks.
  explicit BatchSchedule(const BatchConfig& batch);

  /// One phase for each size that a step has, in ascending order. The last phase never ends.
  const std::vector<BatchPhase>& phases() const& { return phases_; }
  std::vector<BatchPhase> phases() && { return std::move(phases_); }
  /// The phase of step `step` ≥ 1.
  const BatchPhase& at(std::int64_t step) const;
  std::int64_t global(std::int64_t step) const { return at(step).global; }
  /// Samples that the first `steps` ≥ 0 steps take.
  std::int64_t samples(std::int64_t steps) const;

  bool operator==(const BatchSchedule&) const = default;

 private:
  std::vector<BatchPhase> phases_;
};

/// Number of sizes from ramp_start to global; 1 without a ramp-up.
std::int64_t ramp_sizes(const BatchConfig& batch);

}  // namespace trireme::deck
