#pragma once

#include <trireme/grid/runtime.hpp>
#include <trireme/model/parameters.hpp>

#include <cstdint>
#include <vector>

namespace trireme::optim {

/// Sums the gradients of the heads of keys and values that neighbouring tensor ranks hold: each has
/// what its own query heads put there. Once per step and layer, behind the last micro-batch and
/// before the sum over the data axis. So replicas may cut their sums and the optimizer's state as
/// they like: holders go into them with the same bits, and come out with the same.
///
/// The holders of a head have a communicator of their own, and send the head's gradient alone. On
/// the tensor axis one message would do for all heads, but every rank would have to send zeros for
/// those that it does not hold: Hkv times as much. A rank holds at most two shared heads, which
/// follow one another among those that are shared: two parts of the axis, one with the holders of
/// every other shared head, are enough.
template <class P>
class SharedGradients {
 public:
  /// Arguments must outlive this. Collective on the tensor axis.
  SharedGradients(grid::Grid& grid, const deck::ModelConfig& model,
                  const model::Parameters<P>& parameters);

  /// Of a layer, whose gradients must be complete. Waits. Collective among those that share.
  void sum(const Exec& exec, std::int64_t layer);

 private:
  struct Shared {
    std::int64_t layer;
    grid::Communicator* holders;
    View1<typename P::Gradient> gradient;  // [K·D] keys or values of a head
    grid::Request request;
  };
  std::vector<Shared> shared_;
};

}  // namespace trireme::optim
