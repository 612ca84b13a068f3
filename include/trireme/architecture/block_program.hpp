#pragma once

#include <trireme/architecture/operation.hpp>
#include <trireme/architecture/rank_sizes.hpp>

#include <cstdint>
#include <vector>

/// Lowering of a block's description to the calls that a rank runs, recomputation included, and to
/// the memory of every value.
namespace trireme::architecture {

/// A value of a call: a tensor, or the gradient of a tensor.
struct Value {
  int tensor = 0;
  bool gradient = false;
  bool operator==(const Value&) const = default;
};

/// The tensors that a layer keeps from its forward to its backward passes: one flag per tensor of
/// the description. The layer's input is always kept.
using Kept = std::vector<bool>;

/// The tensors that a layer keeps. `selective` recomputes outputs of norms and activations that
/// only gradients of weights read (Korthikanti et al. 2022); `full` recomputes everything but the
/// layer's input (Chen et al. 2016, arXiv 1604.06174). `automatic` is an error.
Kept kept_tensors(const BlockDescription& layer, Recompute recompute);
/// Whether a tensor is kept with every choice of tensors to recompute: a value of the model, or a
/// result of an operation that cannot be repeated.
bool is_always_kept(const BlockDescription& layer, int tensor);
/// The tensors kept in evaluation, in generation and by the embedding: only the input, the fields
/// of a batch and the model's values.
Kept kept_for_evaluation(const BlockDescription& layer);

enum class Phase : std::uint8_t { forward, backward, backward_input, backward_weight };

/// The memory of a value in a phase.
struct Place {
  enum class Memory : std::uint8_t {
    none,       ///< not used in this phase
    batch,      ///< per slot: a field of the batch
    kept,       ///< per layer and slot, from the forward to the backward passes
    work,       ///< per layer and slot, from backward_input to backward_weight
    transient,  ///< shared by all layers, used within a phase
    stream,     ///< the gradient of the residual stream, which the caller passes
    output,     ///< output of the layer, which the caller passes
    value       ///< a value of the model (ModelValue), or its gradient; the caller passes all
  };
  Memory memory = Memory::none;
  Bytes offset = 0;  ///< a multiple of 64
  bool operator==(const Place&) const = default;
};

/// One pass of one operation.
struct OperationCall {
  int operation = 0;
  Pass pass = Pass::forward;
  /// Index of a second operation that the same call computes, such as the norm of a residual sum;
  /// −1: none.
  int fused = -1;
  /// For backward_input: the tensor whose gradient's memory holds the sum of the previous
  /// contributions to the gradient of gradient_target(). The call adds its contribution to this
  /// sum. −1: the call overwrites the gradient.
  int sum = -1;
  bool again = false;  ///< recomputation within a backward pass
  /// Memory for the contribution before it is added to the sum; Memory::none if it is not needed.
  Place contribution = {};

  bool accumulates() const { return sum >= 0; }
};

struct PhaseProgram {
  std::vector<OperationCall> calls;
  std::vector<Place> tensors;    ///< per tensor of the description
  std::vector<Place> gradients;  ///< per tensor of the description
  Bytes transient_bytes = 0;
};

/// Whether a phase computes anything other than gradients of weights, and therefore reads weights.
bool reads_weights(const PhaseProgram& phase);

struct BlockProgram {
  Kept kept;
  bool split_backward = false;  ///< backward_input and backward_weight are separate phases
  Bytes kept_bytes = 0;         ///< per layer and slot
  Bytes work_bytes = 0;         ///< per layer and slot
  Bytes transient_bytes = 0;    ///< per rank: largest of all phases
  PhaseProgram forward;
  PhaseProgram backward;         ///< in a layer: empty if split_backward
  PhaseProgram backward_input;   ///< in a layer: empty unless split_backward
  PhaseProgram backward_weight;  ///< in a layer: empty unless split_backward
  PhaseProgram losses;           ///< only in heads: see lower_head()

  const PhaseProgram& phase(Phase phase) const;
};

struct LoweringOptions {
  Kept kept;
  bool training = true;  ///< false: only a forward pass
  bool split_backward = false;
  Bytes element = 0;     ///< bytes of an element of an activation
  Bytes accumulate = 0;  ///< bytes of an element of a sum
};

BlockProgram lower(const BlockDescription& layer, const RankSizes& sizes,
                   const LoweringOptions& options);

/// The head's description lowered to calls. `losses` has the backward calls of all operations after
/// the first norms; the backward phases have the calls of the first norms, which read the head's
/// input or values. The gradient of a tensor
/// is stored in the tensor named "d" and the tensor's name, if the description has it; otherwise it
/// overwrites values that later calls do not read.
BlockProgram lower_head(const BlockDescription& head, const RankSizes& sizes, Bytes element,
                        Bytes accumulate);

/// Description of the gradient of a tensor. In a layer, the gradient of the output of a product
/// with split inputs has all rows of its stream.
Tensor gradient_of(const BlockDescription& layer, int tensor);

/// Multiplications per token that a phase spends on recomputation, on all tensor ranks together.
double products_again(const BlockDescription& layer, const PhaseProgram& phase,
                      const deck::ModelConfig& model);

}  // namespace trireme::architecture
