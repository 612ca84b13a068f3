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

/// The ranks that together sum, own and gather buckets.
struct BucketGroups {
  BucketGroups(grid::Communicator& everything)  // NOLINT: most models have one group
      : all(everything), experts(everything) {}
  BucketGroups(grid::Communicator& replicas, grid::Communicator& with_same_experts)
      : all(replicas), experts(with_same_experts) {}

  grid::Communicator& of(const architecture::Bucket& bucket) const {
    return bucket.of_experts() ? experts : all;
  }

  grid::Communicator& all;
  grid::Communicator& experts;  ///< for the buckets of experts that replicas divide
};

/// Number of a bucket's elements that each rank owns, by rank.
std::vector<std::int64_t> counts(const architecture::Bucket& bucket);

/// Sums gradients over replicas in buckets. The sum of a bucket starts when the backward pass has
/// completed the bucket (shared layers: reduce_shared), and overlaps the rest of the pass (Li et
/// al. 2020, "PyTorch Distributed").
template <class G>
class GradientReducer {
 public:
  /// `places`: the positions of arrays in `gradients`. `scatter`: each rank receives only the sums
  /// of its own parts of the buckets; its other gradients are invalid afterwards. Without
  /// `scatter`, a rank receives all sums, but of windows (architecture::Arrangement) keeps only its
  /// own parts. `head`: the head's block (architecture::block_of), whose gradients may be computed
  /// before any backward pass. `groups`, `gradients` and `places` must outlive this object.
  GradientReducer(const BucketGroups& groups, View1<G> gradients,
                  const architecture::Arrangement& places, std::int64_t head,
                  std::vector<architecture::Bucket> buckets, bool scatter);

  /// Passes each complete bucket to `send` from now on, instead of summing it.
  void send_to(std::function<void(const Exec& exec, std::size_t bucket)> send) {
    send_ = std::move(send);
  }

  /// Begins a step. All gradients must be zero. Error if a bucket is in flight.
  void begin();
  /// Call before a pass adds to the gradients of a layer. Unless the layer's window holds the layer
  /// already, waits for the sums of the window's former layer, and zeroes the gradients.
  void before_sums(const Exec& exec, std::int64_t block);
  /// Call when all gradients of a layer are complete. Starts the sums of complete buckets.
  void complete(const Exec& exec, Stage stage, std::int64_t block);
  /// Waits for the sums of a stage's buckets, except buckets of shared layers. Error if a layer of
  /// the stage is not complete.
  void finish(const Exec& exec, Stage stage);
  /// Sums the gradients of shared layers, and waits. Call after the rank's last backward pass.
  void reduce_shared(const Exec& exec);

 private:
  struct Running {
    std::size_t missing = 0;  ///< number of the bucket's layers that are not complete in this step
    grid::Request request;
  };

  grid::Request start(const Exec& exec, std::size_t bucket) const;
  /// Waits for the sum of a bucket, if it is in flight. Without `scatter`, then copies the rank's
  /// own parts out of the bucket's window, if there is a window.
  void take(const Exec& exec, std::size_t bucket, const char* waits);

  BucketGroups groups_;
  View1<G> gradients_;
  const architecture::Arrangement& places_;
  architecture::WindowTurns turns_;
  std::int64_t head_;
  std::vector<architecture::Bucket> buckets_;
  bool scatter_;
  std::function<void(const Exec&, std::size_t)> send_;
  std::vector<std::vector<std::int64_t>> counts_;  ///< counts() of each bucket
  std::vector<Running> running_;
};

}  // namespace trireme::optim
