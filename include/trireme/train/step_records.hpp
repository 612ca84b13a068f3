#pragma once

#include <trireme/kernels/update.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/views.hpp>

#include <array>
#include <cstdint>

namespace trireme::train {

/// Results of the last two overlapping steps, on the device.
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
  struct Record {
    View1<double> losses, status, scale_before;
  };
  const Record& at(std::int64_t step) const {
    return records_.at(static_cast<std::size_t>(step % 2));
  }
  Arena memory_;
  std::array<Record, 2> records_;
};

}  // namespace trireme::train
