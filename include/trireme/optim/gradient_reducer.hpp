#pragma once

#include <trireme/grid/communicator.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <vector>

namespace trireme::optim {

/// Sums the gradient arena over the data axis in buckets, last elements first, each started as soon
/// as the backward pass has completed it, so that it overlaps the rest (Li et al. 2020, "PyTorch
/// Distributed"). Buckets are cut by position alone: every rank and every run sums in the same way.
template <class G>
class GradientReducer {
 public:
  /// `gradients` and `communicator` must outlive this.
  GradientReducer(grid::Communicator& communicator, View1<G> gradients, std::int64_t bucket_bytes);

  /// A new step: nothing is complete yet.
  void begin();
  /// Every element from `first` on is complete: starts the buckets that this completes, and moves
  /// those under way.
  void complete_from(const Exec& exec, std::int64_t first);
  /// Waits for all buckets; complete_from(0) must have been called.
  void finish();

  std::int64_t buckets() const { return static_cast<std::int64_t>(begins_.size()); }

 private:
  grid::Communicator& communicator_;
  View1<G> gradients_;
  std::vector<std::int64_t> begins_;  ///< of the buckets, last bucket first
  std::vector<grid::Request> requests_;
  std::size_t started_ = 0;
};

}  // namespace trireme::optim
