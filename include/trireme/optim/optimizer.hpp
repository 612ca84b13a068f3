#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/named_tensor.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::optim {

/// AdamW (Loshchilov & Hutter 2019) over a rank's parameter registry, with clipping by the global
/// norm. Its state lies in arenas at the registry's offsets.
template <class P>
class Optimizer {
 public:
  using Master = typename P::Master;

  /// `model_group`: the ranks that hold one copy of the model among them. `parameters` and
  /// `model_group` must outlive this.
  Optimizer(const deck::OptimizerConfig& config, const architecture::Architecture& architecture,
            model::Parameters<P>& parameters, grid::Communicator& model_group);

  void zero_gradients(const Exec& exec) const;
  /// Moments of a run's first step.
  void zero_state(const Exec& exec) const;

  /// Adds the logits' gradient of tied embeddings to the look-up's where this rank has both, after
  /// both were summed over the data axis.
  void combine_tied_gradients(const Exec& exec) const;

  /// Norm of all gradients of the model: squares summed over fixed blocks of 4096 elements of each
  /// array, blocks added up array by array (and by tensor rank, of arrays that are cut), and these
  /// sums in registry order wherever they are held. Replicated arrays count once. Collective among
  /// `model_group`.
  void find_norm(const Exec& exec) const;

  /// The update of step `step` ≥ 1 with gradients scaled by min(1, clip_norm / norm), with the norm
  /// last found. Asynchronous.
  void step(const Exec& exec, std::int64_t step, double learning_rate) const;

  /// The norm last found, before clipping. [1], on the device; the same on all ranks.
  View1<double> gradient_norm() const { return norm_; }

  /// First and second moments of the registry's entries, in their order, "optimizer.first_moment.
  /// <array>" and "optimizer.second_moment.<array>".
  std::vector<NamedTensor<Master>> state() const;

  std::int64_t state_bytes() const { return state_.capacity(); }

 private:
  using Entry = typename model::Parameters<P>::Entry;

  View1<Master> part(View1<Master> all, const Entry& entry) const;
  bool counted(const Entry& entry) const;
  void lay_out_sums(std::int64_t arrays);

  deck::OptimizerConfig config_;
  model::Parameters<P>& parameters_;
  grid::Communicator& model_group_;
  Arena state_;
  Arena scalars_;
  View1<Master> first_moment_;
  View1<Master> second_moment_;
  View1<double> partial_;  // [blocks of the arrays that this rank counts] sums of squares
  View1<std::int64_t> block_begins_, block_ends_;  // [those blocks] in the gradient arena
  View1<double> sums_;                             // [arrays · tensor ranks]
  View1<std::int64_t> ends_;                       // [arrays · tensor ranks] of each sum's blocks
  View1<double> norm_;                             // [1]
  View1<double> clip_;                             // [1]
};

}  // namespace trireme::optim
