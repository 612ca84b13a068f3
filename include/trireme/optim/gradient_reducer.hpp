#pragma once

#include <trireme/grid/communicator.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <vector>

namespace trireme::optim {

/// Sums the gradient arena over the data axis in buckets, each started as soon as the backward pass
/// has completed all that lies in it, so that it overlaps the rest (Li et al. 2020, "PyTorch
/// Distributed"). Buckets are cut by position alone, within one stage and within the arrays that
/// the tensor axis cuts or does not: every rank of the axis sums in the same way, and replicated
/// arrays are summed in the same way on all tensor ranks.
template <class G>
class GradientReducer {
 public:
  /// `gradients` and `communicator` must outlive this.
  GradientReducer(grid::Communicator& communicator, View1<G> gradients,
                  const std::vector<model::GradientRange>& ranges, std::int64_t bucket_bytes);

  /// A new step: nothing is complete yet.
  void begin();
  /// All gradients of a layer are complete: starts the buckets that this completes, and moves those
  /// under way.
  void complete(const Exec& exec, Stage stage, std::int64_t layer);
  /// Waits for the buckets of a stage, all layers of which must be complete.
  void finish(Stage stage);

  std::int64_t buckets() const { return static_cast<std::int64_t>(buckets_.size()); }

 private:
  struct Bucket {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    Stage stage = 0;
    std::vector<std::int64_t> layers;  ///< that have elements in it
    std::size_t missing = 0;           ///< of them, in this step
    grid::Request request;
  };

  void cut(const model::GradientRange* first, const model::GradientRange* last,
           std::int64_t most_elements);

  grid::Communicator& communicator_;
  View1<G> gradients_;
  std::vector<Bucket> buckets_;
};

}  // namespace trireme::optim
