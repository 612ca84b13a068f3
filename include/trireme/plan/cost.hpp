#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/ends.hpp>
#include <trireme/architecture/layer_program.hpp>
#include <trireme/layout/split.hpp>
#include <trireme/schedule/timeline.hpp>

#include <cstdint>
#include <vector>

namespace trireme::plan {

/// Model FLOPs per token of a stage's passes, all tensor ranks together: 2 per product of a matrix
/// element forward, as many for the gradient of the input and again for that of the weight; causal
/// attention adds 2·D·S forward and 4·D·S to the gradient of the input (half of the full square, no
/// weights), bert's the full square. The head's gradient is part of the last stage's forward or
/// backward pass (architecture::HeadGradient), or of passes of all ranks; bert's head sees masked
/// tokens alone. These are model FLOPs: recomputation is not counted.
struct StageFlops {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
  double again = 0;         ///< recomputation in a backward pass
  double again_input = 0;   ///< recomputation in backward_input, where the pass is split
  double again_weight = 0;  ///< recomputation in backward_weight, where the pass is split
  // Parts of a shared vocabulary
  double logits = 0;           ///< with the gradient of their input
  double logits_gradient = 0;  ///< of the table
  double logits_again = 0;     ///< recomputation in logits_gradient
  double sum() const {
    return forward + backward_input + backward_weight + logits + logits_gradient;
  }
};

/// Per stage; without recomputation their sum is Architecture::model_flops_per_token(). `kept` as
/// the layers keep tensors; empty: nothing is computed again, except the logits if `head` says so.
std::vector<StageFlops> stage_flops(
    const architecture::Architecture& architecture, const std::vector<layout::Slice>& stage_layers,
    const architecture::Kept& kept = {},
    architecture::HeadGradient head = architecture::HeadGradient::with_losses);
/// The same for the deck's layout.
std::vector<StageFlops> stage_flops(const architecture::Architecture& architecture,
                                    const deck::ParallelConfig& parallel);

/// An instruction takes as long as its stage's FLOPs, those of recomputation included, in units of
/// the mean of all stages' forward passes; what computes nothing takes no time.
schedule::Cost flop_cost(std::vector<StageFlops> flops);

}  // namespace trireme::plan
