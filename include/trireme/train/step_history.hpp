#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <vector>

namespace trireme::train {

/// Losses and gradient norms of the steps since the last logged step. Each step stores them in
/// device memory without a wait, and a logged step reads all of them in one copy.
class StepHistory {
 public:
  /// A step: this rank's losses, not yet divided by the number of targets.
  struct Entry {
    std::int64_t step = 0;
    std::int64_t targets = 0;    ///< tokens that count in the loss; 0: unknown on this rank
    std::vector<double> losses;  ///< one per term of the objective
    double norm = 0;
  };

  StepHistory(const deck::RunConfig& run, std::int64_t terms);

  /// Steps are added in ascending order; the oldest step is dropped if the buffer is full.
  /// Asynchronous on exec.
  void add(const Exec& exec, std::int64_t step, std::int64_t targets, View1<const double> losses);
  /// Adds [1] to the norm of the last step that was added. Asynchronous on exec.
  void add_norm(const Exec& exec, View1<const double> norm);
  /// Removes the steps up to `step`, and returns all of them except `step`. Waits for exec if there
  /// are any.
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
  std::vector<Entry> kept_;  ///< without losses and norm
  bool cleared_ = false;     ///< all rows have been set to zero once
  bool has_norm_ = false;    ///< the last added step has a norm
};

}  // namespace trireme::train
