#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/named_tensor.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::optim {

/// AdamW (Loshchilov & Hutter 2019) over the parameter registry, with clipping by the global norm.
/// Its state lies in arenas at the registry's offsets.
template <class P>
class Optimizer {
 public:
  using Master = typename P::Master;

  Optimizer(const deck::OptimizerConfig& config, model::Parameters<P>& parameters);

  void zero_gradients(const Exec& exec) const;

  /// Adds the logits' gradient of tied embeddings to the look-up's, after both were reduced.
  void combine_tied_gradients(const Exec& exec) const;

  /// Norm of all gradients: squares summed over fixed blocks of 4096 elements of each array, added
  /// in registry order. Then the update of step `step` ≥ 1 with gradients scaled by min(1,
  /// clip_norm / norm). Asynchronous.
  void step(const Exec& exec, std::int64_t step, double learning_rate) const;

  /// The norm that the last step found, before clipping. [1], on the device.
  View1<double> gradient_norm() const { return norm_; }

  /// First and second moments by name, "optimizer.first_moment.<array>" and
  /// "optimizer.second_moment.<array>".
  std::vector<NamedTensor<Master>> state() const;

  std::int64_t state_bytes() const { return state_.capacity(); }

 private:
  View1<Master> part(View1<Master> all, std::size_t array) const;

  deck::OptimizerConfig config_;
  model::Parameters<P>& parameters_;
  Arena state_;
  Arena scalars_;
  View1<Master> first_moment_;
  View1<Master> second_moment_;
  View1<double> partial_;  // [blocks of all arrays] sums of squares
  View1<double> norm_;     // [1]
  View1<double> clip_;     // [1]
};

}  // namespace trireme::optim
