#pragma once

#include <trireme/kernels/update.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/views.hpp>

#include <array>
#include <cstdint>

namespace trireme::train {

/// Results of the last overlapping steps, on the device: of a step that has ended and is not logged
/// yet, of the step that ends, and of the next step, whose first passes have begun.
class StepRecords {
 public:
  explicit StepRecords(std::int64_t losses);

  /// Σ cross entropy of each term on this rank; after gradient_norm, over all ranks.
  View1<double> losses(std::int64_t step) const { return at(step).losses; }
  /// Status after the step's update, indexed by kernels::UpdateStatus.
  View1<double> status(std::int64_t step) const { return at(step).status; }
  /// Loss scale before the step's update, [1].
  View1<double> scale_before(std::int64_t step) const { return at(step).scale_before; }

 private:
  static constexpr std::int64_t kept = 3;
  struct Record {
    View1<double> losses, status, scale_before;
  };
  const Record& at(std::int64_t step) const {
    return records_.at(static_cast<std::size_t>(step % kept));
  }
  Arena memory_;
  std::array<Record, kept> records_;
};

}  // namespace trireme::train
