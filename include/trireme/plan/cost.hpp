#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/block_program.hpp>
#include <trireme/architecture/ends.hpp>
#include <trireme/layout/split.hpp>
#include <trireme/schedule/timeline.hpp>

#include <cstdint>
#include <vector>

namespace trireme::plan {

/// FLOPs per token of a stage's passes, all tensor ranks together. A matrix element of a layer
/// costs 2 forward, 2 in the gradient of the input and 2 in the gradient of the weight. Frozen
/// matrices have no weight gradient, and layers before the first trained array have no backward
/// pass.
struct StageFlops {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
  double again = 0;         ///< recomputation in a backward pass
  double again_input = 0;   ///< recomputation in backward_input, if the pass is split
  double again_weight = 0;  ///< recomputation in backward_weight, if the pass is split
  // A stage's share of a shared vocabulary.
  double logits = 0;           ///< logits and the gradient of their input
  double logits_gradient = 0;  ///< gradient of the table
  double logits_again = 0;     ///< recomputation in logits_gradient
  double sum() const {
    return forward + backward_input + backward_weight + logits + logits_gradient;
  }
  /// Adds the passes of `number` layers.
  void add_layers(std::int64_t number, const StageFlops& layer);
};

/// FLOPs of each stage. `kept`: tensors that the layers keep, by kind of layer; if empty, the
/// layers recompute nothing.
std::vector<StageFlops> stage_flops(
    const architecture::Architecture& architecture, const std::vector<layout::Slice>& stage_layers,
    const std::vector<architecture::Kept>& kept = {},
    architecture::HeadGradient head = architecture::HeadGradient::with_losses);
/// FLOPs of each stage in the deck's layout.
std::vector<StageFlops> stage_flops(const architecture::Architecture& architecture,
                                    const deck::ParallelConfig& parallel);

/// Cost function: a pass takes its FLOPs, recomputation included, in units of the mean of all
/// stages' forward passes.
schedule::Cost flop_cost(std::vector<StageFlops> flops);

}  // namespace trireme::plan
