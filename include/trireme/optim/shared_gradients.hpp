#pragma once

#include <trireme/grid/runtime.hpp>
#include <trireme/model/parameters.hpp>

#include <cstdint>
#include <vector>

namespace trireme::optim {

/// Sums the gradients of the heads of keys and values that neighbouring tensor ranks share: each
/// rank has the contribution of its own query heads. Runs once per step and layer, after the last
/// micro-batch and before the sum over replicas. All holders of a head then have the same bits.
/// A rank holds at most two shared heads, which are consecutive among the shared heads. Two
/// partitions of the tensor axis are therefore enough for the communicators of the holders.
template <class P>
class SharedGradients {
 public:
  /// Arguments must outlive this object. Collective on the tensor axis.
  SharedGradients(grid::Grid& grid, const deck::ModelConfig& model,
                  const model::Parameters<P>& parameters);

  /// Sums the shared gradients of a layer's block, which must be complete. Waits. Collective among
  /// the holders of the layer's shared heads.
  void sum(const Exec& exec, std::int64_t block);

 private:
  struct Shared {
    std::int64_t block;
    grid::Communicator* holders;
    // Gradient of a head's keys or values: weights [K·D] or biases [K].
    View1<typename P::Gradient> gradient;
    grid::Request request;
  };
  std::vector<Shared> shared_;
};

}  // namespace trireme::optim
