#pragma once

#include <trireme/architecture/layer_program.hpp>

#include <vector>

/// The steps of a layer's phases, with the values that each reads and writes: the first half of
/// lowering.
namespace trireme::architecture {

std::vector<Step> forward_steps(const LayerDescription& layer);

/// The backward passes, from the last operation to the first.
struct BackwardSteps {
  std::vector<Step> both;  ///< a weight's gradient follows the gradient of its operation's input
  std::vector<Step> input;
  std::vector<Step> weight;
};
BackwardSteps backward_steps(const LayerDescription& layer);

/// The steps with recomputation. Each step follows the recomputation of all tensors that it reads
/// and that were neither kept nor recomputed earlier.
std::vector<Step> with_recomputation(const LayerDescription& layer, const Kept& kept,
                                     const std::vector<Step>& steps);

/// The values that a step reads and writes.
struct StepEffects {
  std::vector<Value> reads;
  std::vector<Value> writes;
};
StepEffects effects(const LayerDescription& layer, const Step& step);

}  // namespace trireme::architecture
