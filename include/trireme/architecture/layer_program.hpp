#pragma once

#include <trireme/architecture/local_sizes.hpp>
#include <trireme/architecture/operation.hpp>

#include <cstdint>
#include <vector>

/// A layer's description lowered to the steps that a rank runs: which tensors are kept from the
/// forward to the backward pass, which are computed again and when, and where each is in memory.
namespace trireme::architecture {

/// A value of a step: a tensor, or the gradient of a tensor.
struct Value {
  int tensor = 0;
  bool gradient = false;
  bool operator==(const Value&) const = default;
};

/// One pass of one operation.
struct Step {
  int operation = 0;
  Pass pass = Pass::forward;
  /// An operation whose pass the same kernel computes: the norm of a residual sum, or the gradient
  /// of GELU in the product after which it follows; −1: none.
  int fused = -1;
  /// The gradient of the operation's input has other contributions, to which it is added.
  bool accumulate = false;
  bool again = false;  ///< recomputation within a backward pass
};

/// Which tensors a layer keeps from its forward to its backward passes: one flag per tensor of the
/// description. The layer's input is always kept; what no backward pass reads never is.
using Kept = std::vector<bool>;

/// `selective` computes norms and the activation again that only the gradients of weights read
/// (Korthikanti et al. 2022), `full` everything but the layer's input (Chen et al. 2016, arXiv
/// 1604.06174). Not for `automatic`, whose choice plan/recompute.hpp makes.
Kept kept_tensors(const LayerDescription& layer, Recompute recompute);
/// Evaluation and generation keep the input alone.
Kept kept_for_evaluation(const LayerDescription& layer);

enum class Phase : std::uint8_t { forward, backward, backward_input, backward_weight };

/// The memory of a value in a phase.
struct Place {
  enum class Memory : std::uint8_t {
    none,       ///< not used in this phase
    kept,       ///< of the layer and slot, from the forward to the backward passes
    work,       ///< of the layer and slot, from backward_input to backward_weight
    transient,  ///< shared by all layers, within a phase
    stream,     ///< the gradient of the residual stream, which the caller passes
    output      ///< of the layer, which the caller passes
  };
  Memory memory = Memory::none;
  Bytes offset = 0;  ///< a multiple of 64
};

struct PhaseProgram {
  std::vector<Step> steps;
  std::vector<Place> tensors;    ///< per tensor of the description
  std::vector<Place> gradients;  ///< per tensor of the description
  Bytes transient_bytes = 0;
};

/// Whether a phase computes anything but gradients of weights: it then reads weights.
bool reads_weights(const PhaseProgram& phase);

struct LayerProgram {
  Kept kept;
  bool split_backward = false;  ///< backward_input and backward_weight are phases of their own
  Bytes kept_bytes = 0;         ///< per layer and slot
  Bytes work_bytes = 0;         ///< per layer and slot
  Bytes transient_bytes = 0;    ///< per rank: of the phase that needs most
  PhaseProgram forward;
  PhaseProgram backward;         ///< empty where it is split
  PhaseProgram backward_input;   ///< empty where it is not
  PhaseProgram backward_weight;  ///< empty where it is not

  const PhaseProgram& phase(Phase phase) const;
};

struct LoweringOptions {
  Kept kept;
  bool training = true;  ///< false: a forward pass alone
  bool split_backward = false;
  Bytes element = 0;     ///< bytes of a number of an activation
  Bytes accumulate = 0;  ///< bytes of a number of a sum
};

LayerProgram lower(const LayerDescription& layer, const LocalSizes& sizes,
                   const LoweringOptions& options);

/// The gradient of a product's partial sums is held for all tokens, other gradients as the tensor.
Tensor gradient_of(const LayerDescription& layer, int tensor);

/// Multiplications per token of the recomputation in a phase, all tensor ranks together.
double products_again(const LayerDescription& layer, const PhaseProgram& phase,
                      const deck::ModelConfig& model);

}  // namespace trireme::architecture
