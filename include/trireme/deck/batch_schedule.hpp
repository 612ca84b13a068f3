#pragma once

#include <trireme/deck/config.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace trireme::deck {

/// Steps in a row whose global batch has one size.
struct BatchPhase {
  std::int64_t first_step = 1;
  std::int64_t first_sample = 0;  ///< of the run: so many were taken before
  std::int64_t global = 0;        ///< samples of each step
  bool operator==(const BatchPhase&) const = default;
};

/// The global batch of each step, the same on every layout. In a ramp-up it is a function of the
/// samples x that the steps before have taken: with n = (global − ramp_start) / ramp_increment,
///   ramp_start + ⌊x n / ramp_samples⌋ ramp_increment   while x < ramp_samples, then global,
/// as --rampup-batch-size of Megatron-LM. A step that takes more samples than a size is meant for
/// leaves the next sizes out.
class BatchSchedule {
 public:
  /// Of a deck without mistakes.
  explicit BatchSchedule(const BatchConfig& batch);

  /// One for each size that some step has, which are ascending; the last one never ends.
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

/// Sizes from ramp_start to global.
std::int64_t ramp_sizes(const BatchConfig& batch);

}  // namespace trireme::deck
