#include <trireme/deck/batch_schedule.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>

namespace trireme::deck {

std::int64_t ramp_sizes(const BatchConfig& b) {
  if (b.ramp_start == 0 || b.ramp_start >= b.global) return 1;
  return (b.global - b.ramp_start) / b.ramp_increment + 1;
}

BatchSchedule::BatchSchedule(const BatchConfig& b) {
  const std::int64_t increments = ramp_sizes(b) - 1;
  BatchPhase phase;
  while (increments > 0 && phase.first_sample < b.ramp_samples) {
    const std::int64_t level = phase.first_sample * increments / b.ramp_samples;
    phase.global = b.ramp_start + level * b.ramp_increment;
    phases_.push_back(phase);
    // The least x with ⌊x n / ramp_samples⌋ > level; the step that reaches this x ends the phase.
    const std::int64_t end = ((level + 1) * b.ramp_samples + increments - 1) / increments;
    const std::int64_t steps = (end - phase.first_sample + phase.global - 1) / phase.global;
    phase.first_step += steps;
    phase.first_sample += steps * phase.global;
  }
  phase.global = b.global;
  phases_.push_back(phase);
}

const BatchPhase& BatchSchedule::at(std::int64_t step) const {
  check(step >= 1, "no global batch for step ", step, ", expected at least 1");
  return *std::prev(std::ranges::upper_bound(phases_, step, {}, &BatchPhase::first_step));
}

std::int64_t BatchSchedule::samples(std::int64_t steps) const {
  if (steps == 0) return 0;
  const BatchPhase& phase = at(steps);
  return phase.first_sample + (steps - phase.first_step + 1) * phase.global;
}

}  // namespace trireme::deck
