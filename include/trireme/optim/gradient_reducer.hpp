#pragma once

#include <trireme/architecture/buckets.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <vector>

namespace trireme::optim {

/// Sums the gradient arena over the data axis in buckets, each started as soon as the backward pass
/// has completed all that lies in it, so that it overlaps the rest (Li et al. 2020, "PyTorch
/// Distributed").
template <class G>
class GradientReducer {
 public:
  /// `gradients` and `communicator` must outlive this.
  GradientReducer(grid::Communicator& communicator, View1<G> gradients,
                  std::vector<architecture::Bucket> buckets);

  /// A new step: nothing is complete yet.
  void begin();
  /// All gradients of a layer are complete: starts the buckets that this completes, and moves those
  /// under way.
  void complete(const Exec& exec, Stage stage, std::int64_t layer);
  /// Waits for the buckets of a stage, all layers of which must be complete.
  void finish(Stage stage);

 private:
  struct Running {
    std::size_t missing = 0;  ///< layers of the bucket, in this step
    grid::Request request;
  };

  grid::Communicator& communicator_;
  View1<G> gradients_;
  std::vector<architecture::Bucket> buckets_;
  std::vector<Running> running_;
};

}  // namespace trireme::optim
