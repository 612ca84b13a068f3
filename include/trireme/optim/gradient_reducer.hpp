#pragma once

#include <trireme/architecture/buckets.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <vector>

namespace trireme::optim {

/// Number of a bucket's elements that each data rank owns, and one rank's elements of a bucket.
std::vector<std::int64_t> counts(const architecture::Bucket& bucket);
template <class T>
View1<T> own_part(View1<T> all, const architecture::Bucket& bucket, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return View1<T>(all.data() + (bucket.bounds[r] - bucket.begin),
                  static_cast<std::size_t>(bucket.bounds[r + 1] - bucket.bounds[r]));
}

/// Sums the gradient arena over the data axis in buckets. Each bucket starts as soon as the
/// backward pass has completed it, so that it overlaps the rest (Li et al. 2020, "PyTorch
/// Distributed").
template <class G>
class GradientReducer {
 public:
  /// `gradients` and `communicator` must outlive this. `scatter`: each rank receives only the sums
  /// of its own parts of the buckets; the rest of its gradients is invalid afterwards.
  GradientReducer(grid::Communicator& communicator, View1<G> gradients,
                  std::vector<architecture::Bucket> buckets, bool scatter);

  /// Begins a step: nothing is complete yet.
  void begin();
  /// All gradients of a layer are complete: starts the buckets that this completes, and advances
  /// those in flight.
  void complete(const Exec& exec, Stage stage, std::int64_t layer);
  /// Waits for the buckets of a stage, all layers of which must be complete.
  void finish(Stage stage);
  /// Sums the gradients of shared layers, after the last backward pass of the rank.
  void reduce_shared(const Exec& exec);

 private:
  struct Running {
    std::size_t missing = 0;  ///< incomplete layers of the bucket in this step
    grid::Request request;
  };

  grid::Request start(const Exec& exec, std::size_t bucket) const;

  grid::Communicator& communicator_;
  View1<G> gradients_;
  std::vector<architecture::Bucket> buckets_;
  bool scatter_;
  std::vector<std::vector<std::int64_t>> counts_;  ///< per bucket
  std::vector<Running> running_;
};

}  // namespace trireme::optim
