#pragma once

#include <trireme/grid/communicator.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/tensor/arena.hpp>

#include <cstdint>
#include <map>

namespace trireme::optim {

/// Whether the estimate of the gradient noise scale uses an array: a trained matrix of a layer,
/// unless tensor ranks may share elements or compute only parts of the gradient.
bool shows_noise(const architecture::ArraySpec& array, std::int64_t layers);

/// Estimates the gradient noise scale (McCandlish et al. 2018, arXiv 1812.06162): the batch size at
/// which the noise of the gradient equals the gradient. Compares the squared norm of each replica's
/// gradient after its first micro-batch with the squared norm of the whole batch's gradient.
template <class P>
class NoiseScale {
 public:
  /// Arguments must outlive this object. UsageError if no array can be used.
  NoiseScale(const architecture::Architecture& architecture, const model::Parameters<P>& parameters,
             grid::Communicator& model_group, grid::Communicator& replicas);

  /// Call when a layer's gradients are complete for the replica's first micro-batch only.
  void after_first(const Exec& exec, std::int64_t block) const;
  /// Adds a step to the estimate. `sums` [arrays · tensor ranks]: Optimizer::squares(). `micro`,
  /// `global`: samples of a micro-batch and of the global batch. Collective.
  void add_step(const Exec& exec, View1<const double> sums, View1<const double> loss_scale,
                std::int64_t micro, std::int64_t global) const;

  /// Elements kernels::NoiseState [noise_state_size], on the device; equal on all ranks.
  View1<double> state() const { return state_; }

 private:
  struct Blocks {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };

  const model::Parameters<P>& parameters_;
  grid::Communicator& model_group_;
  grid::Communicator& replicas_;
  Arena memory_;
  std::map<std::int64_t, Blocks> layers_;  ///< blocks of each layer, in the arrays below
  View1<double> partial_;                  // [blocks] sums of squares
  View1<std::int64_t> begins_, ends_;      // [blocks] bounds in the gradients' memory
  View1<std::int64_t> chosen_;  // indices in add_step's `sums` of the arrays that are used
  View1<std::int64_t> all_;     // [1] number of blocks
  View1<double> sum_;           // [1]
  View1<double> state_;         // [noise_state_size]
};

}  // namespace trireme::optim
