#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <vector>

namespace trireme::train {

/// Losses and gradient norms of the steps since the last logged step, in device memory.
class StepHistory {
 public:
  /// A step with this rank's losses, which are not yet divided by the number of targets.
  struct Entry {
    std::int64_t step = 0;
    std::int64_t targets = 0;    ///< tokens that count in the loss; 0: unknown on this rank
    std::vector<double> losses;  ///< one per term of the objective
    double norm = 0;
  };

  StepHistory(const deck::RunConfig& run, std::int64_t terms);

  /// Adds a step, in ascending order; drops the oldest step if the buffer is full. Asynchronous.
  void add(const Exec& exec, std::int64_t step, std::int64_t targets, View1<const double> losses);
  /// Adds `norm` [1] to the norm of the step that was added last. Asynchronous.
  void add_norm(const Exec& exec, View1<const double> norm);
  /// Removes the steps up to `step`, and returns the removed steps except `step`. Waits.
  std::vector<Entry> take(const Exec& exec, std::int64_t step);
  void forget() { kept_.clear(); }
  Bytes bytes() const { return memory_.capacity(); }

 private:
  /// Losses and norm of a step [terms + 1].
  View1<double> row(std::int64_t step) const;

  std::int64_t terms_;
  std::int64_t capacity_;
  Arena memory_;
  View1<double> rows_;
  std::vector<Entry> kept_;  ///< steps, without losses and norm
  bool cleared_ = false;     ///< whether the rows have been set to zero
  bool has_norm_ = false;    ///< whether the step that was added last has a norm
};

}  // namespace trireme::train
