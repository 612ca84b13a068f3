#pragma once

#include <trireme/architecture/local_sizes.hpp>
#include <trireme/architecture/operation.hpp>

#include <cstdint>
#include <vector>

/// A layer's description lowered to the steps that a rank runs: which tensors are kept from the
/// forward to the backward pass, which are recomputed and when, and the memory of each.
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
  /// An operation that the same kernel computes: the norm of a residual sum, or the gradient of
  /// GELU after the product; −1: none.
  int fused = -1;
  /// Adds to the gradient of the operation's input, which has other contributions.
  bool accumulate = false;
  bool again = false;  ///< recomputation within a backward pass
};

/// The tensors that a layer keeps from its forward to its backward passes: one flag per tensor of
/// the description. The layer's input and the fields of a batch are always kept; a tensor that no
/// backward pass reads is never kept.
using Kept = std::vector<bool>;

/// `selective` recomputes norms and activations that only gradients of weights read (Korthikanti et
/// al. 2022), `full` everything but the layer's input (Chen et al. 2016, arXiv 1604.06174). Not for
/// `automatic`: plan/recompute.hpp chooses its tensors.
Kept kept_tensors(const LayerDescription& layer, Recompute recompute);
/// Kept tensors of evaluation, of generation and of the embedding: only the input and fields.
Kept kept_for_evaluation(const LayerDescription& layer);

enum class Phase : std::uint8_t { forward, backward, backward_input, backward_weight };

/// The memory of a value in a phase.
struct Place {
  enum class Memory : std::uint8_t {
    none,       ///< not used in this phase
    batch,      ///< per slot: a field of the batch
    kept,       ///< per layer and slot, from the forward to the backward passes
    work,       ///< per layer and slot, from backward_input to backward_weight
    transient,  ///< shared by all layers, within a phase
    stream,     ///< the gradient of the residual stream, which the caller passes
    output      ///< output of the layer, which the caller passes
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

/// Whether a phase computes anything but gradients of weights, and therefore reads weights.
bool reads_weights(const PhaseProgram& phase);

struct LayerProgram {
  Kept kept;
  bool split_backward = false;  ///< backward_input and backward_weight are separate phases
  Bytes kept_bytes = 0;         ///< per layer and slot
  Bytes work_bytes = 0;         ///< per layer and slot
  Bytes transient_bytes = 0;    ///< per rank: largest of all phases
  PhaseProgram forward;
  PhaseProgram backward;         ///< empty if it is split
  PhaseProgram backward_input;   ///< empty unless it is split
  PhaseProgram backward_weight;  ///< empty unless it is split
  PhaseProgram losses;           ///< only of heads: see lower_head()

  const PhaseProgram& phase(Phase phase) const;
};

struct LoweringOptions {
  Kept kept;
  bool training = true;  ///< false: only a forward pass
  bool split_backward = false;
  Bytes element = 0;     ///< bytes of an element of an activation
  Bytes accumulate = 0;  ///< bytes of an element of a sum
};

LayerProgram lower(const LayerDescription& layer, const LocalSizes& sizes,
                   const LoweringOptions& options);

/// The head's description lowered to steps. `forward` ends with the losses. `losses` has the
/// backward steps down to the final norm, whose own steps are the backward phases. A tensor's home
/// determines its memory: `kept` for a slot, `transient` for scratch.
///
/// A gradient has its own tensor, named "d" and the tensor's name, if there is one. Otherwise it
/// overwrites the tensor, or the gradient of the operation's output where the operation reads the
/// tensor for it. Gradients of weights come first, because they read what is overwritten.
LayerProgram lower_head(const LayerDescription& head, const LocalSizes& sizes, Bytes element,
                        Bytes accumulate);

/// Tensor for a tensor's gradient. The gradient of a product's partial sums covers all tokens;
/// other gradients have their tensor's rows. A tensor of the head may have a separate tensor "d…".
Tensor gradient_of(const LayerDescription& layer, int tensor);

/// Multiplications per token by recomputation in a phase, all tensor ranks together.
double products_again(const LayerDescription& layer, const PhaseProgram& phase,
                      const deck::ModelConfig& model);

}  // namespace trireme::architecture
