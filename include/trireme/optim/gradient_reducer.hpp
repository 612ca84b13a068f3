#pragma once

#include <trireme/architecture/arrangement.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/tensor/views.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace trireme::optim {

/// Number of a bucket's elements that each data rank owns.
std::vector<std::int64_t> counts(const architecture::Bucket& bucket);

/// Sums the gradient arena over the data axis in buckets. Each bucket starts as soon as the
/// backward pass has completed it, so that it overlaps the rest of the pass (Li et al. 2020,
/// "PyTorch Distributed"). Gradients in windows are whole only until they are summed: each rank
/// then keeps its own parts.
template <class G>
class GradientReducer {
 public:
  /// `gradients`, `places` (the positions in them) and `communicator` must outlive this object.
  /// `scatter`: each rank receives only the sums of its own parts of the buckets, which are divided
  /// among the communicator's ranks; its other gradients are invalid afterwards. Otherwise it
  /// receives all sums, and keeps its own parts of gradients in windows. `head`: layer of the head
  /// (architecture::layer_of), which may add to its gradients before any backward pass.
  GradientReducer(grid::Communicator& communicator, View1<G> gradients,
                  const architecture::Arrangement& places, std::int64_t head,
                  std::vector<architecture::Bucket> buckets, bool scatter);

  /// From now on, passes each complete bucket to `send` instead of summing it.
  void send_to(std::function<void(const Exec& exec, std::size_t bucket)> send) {
    send_ = std::move(send);
  }

  /// Begins a step: no layer is complete yet, and all gradients are zero.
  void begin();
  /// Called before passes add to the gradients of a layer. Gradients in a window become zero, after
  /// the window's previous gradients have been summed.
  void before_sums(const Exec& exec, std::int64_t layer);
  /// Called when all gradients of a layer are complete: starts the buckets that this completes, and
  /// advances outstanding buckets.
  void complete(const Exec& exec, Stage stage, std::int64_t layer);
  /// Waits for the buckets of a stage; all of its layers must be complete.
  void finish(const Exec& exec, Stage stage);
  /// Sums the gradients of shared layers, after the last backward pass of the rank.
  void reduce_shared(const Exec& exec);

 private:
  struct Running {
    std::size_t missing = 0;  ///< incomplete layers of the bucket in this step
    grid::Request request;
  };

  grid::Request start(const Exec& exec, std::size_t bucket) const;
  /// Waits for a bucket, and keeps the rank's own parts if a complete window has arrived.
  void take(const Exec& exec, std::size_t bucket, const char* waits);

  grid::Communicator& communicator_;
  View1<G> gradients_;
  const architecture::Arrangement& places_;
  architecture::WindowTurns turns_;
  std::int64_t head_;
  std::vector<architecture::Bucket> buckets_;
  bool scatter_;
  std::function<void(const Exec&, std::size_t)> send_;
  std::vector<std::vector<std::int64_t>> counts_;  ///< per bucket
  std::vector<Running> running_;
};

}  // namespace trireme::optim
