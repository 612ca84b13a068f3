#pragma once

#include <trireme/architecture/array_spec.hpp>
#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Operations on named tensors, of which a transformer layer is a list (layer.hpp). Each kind
/// states once what its passes read and write, send and compute.
namespace trireme::architecture {

struct LocalSizes;

/// Rows of a tensor: all T tokens of the micro-batch, or the R that this rank has in its residual
/// stream (a part of T with sequence parallelism).
enum class Rows : std::uint8_t { tokens, own };

/// Columns of a tensor, in terms of the model's sizes. All but `one` and `hidden` are cut by the
/// tensor axis.
enum class Columns : std::uint8_t {
  one,
  hidden,           ///< D
  heads,            ///< H
  query_key_heads,  ///< H + Hkv
  attention,        ///< H K
  query_key,        ///< (H + Hkv) K
  query_key_value,  ///< (H + 2 Hkv) K
  feed_forward,     ///< F
  inner             ///< F, or 2 F with a gate
};

/// The type of a tensor's numbers: that of activations, or that of sums.
enum class Numbers : std::uint8_t { compute, accumulate };

/// An activation of the layer.
struct Tensor {
  std::string name;
  Rows rows = Rows::tokens;
  Columns columns = Columns::hidden;
  Numbers numbers = Numbers::compute;
  int stored_in = -1;  ///< number of the tensor whose memory it uses; −1: its own
};

std::int64_t columns_of(Columns columns, const LocalSizes& sizes);
std::int64_t rows_of(Rows rows, const LocalSizes& sizes);
/// "[T, F]".
std::string shape_text(const Tensor& tensor);

enum class OperationKind : std::uint8_t {
  norm,        ///< output = norm(input)
  head_norm,   ///< queries and keys of output = RMSNorm(those of input), in place
  linear,      ///< output = input Wᵀ + bias
  rotary,      ///< queries and keys turned by their positions, in place
  attention,   ///< output = softmax(q kᵀ / √K) v
  activation,  ///< output = gelu(input), or swiglu(input)
  dropout,     ///< in place
  residual     ///< output = residual + dropout(input)
};
std::string_view name_of(OperationKind kind);

/// Which side of a matrix product the tensor axis cuts: its outputs (the columns of Wᵀ) or its
/// inputs (the rows); the latter leaves a partial sum on each rank. Shoeybi et al. 2019, section 3.
enum class Cut : std::uint8_t { none, outputs, inputs };

enum class Pass : std::uint8_t { forward, backward_input, backward_weight };

struct Operation {
  OperationKind kind = OperationKind::linear;
  std::string name;             ///< "attention.output": the prefix of its arrays
  int input = -1;               ///< number of a tensor
  int output = -1;              ///< number of a tensor; `input` where it works in place
  int residual = -1;            ///< of `residual`: the operand without dropout
  std::vector<int> saved = {};  ///< tensors that the forward pass leaves for the backward passes
  Cut cut = Cut::none;          ///< of `linear`
  std::vector<ArraySpec> arrays = {};  ///< weights, then biases; names without "layers.3."
  std::uint32_t dropout_site = 0;      ///< of `dropout` and `residual`, within the layer
  bool first_layer_only = false;

  /// Name of the first bias; "" without one.
  std::string bias() const;
  bool in_place() const { return input == output; }
};

/// The tensors whose values a pass of an operation reads.
std::vector<int> tensors_read(const Operation& operation, Pass pass);
/// The tensors that its forward pass writes.
std::vector<int> tensors_written(const Operation& operation);
/// Whether an operation has this pass. head_norm adds its weights' gradients in backward_input,
/// which overwrites the gradient that they need.
bool has_pass(const Operation& operation, Pass pass);

/// Communication of the tensor axis within a pass of an operation, at the places where a reader
/// needs all tokens or all partial sums: from this rank's rows to all tokens before a product
/// (all-gather with sequence parallelism, otherwise nothing), and from partial sums to rows after
/// one (reduce-scatter, otherwise all-reduce).
enum class Message : std::uint8_t { gather, reduce };
std::vector<Message> messages(const Operation& operation, Pass pass);

/// Tokens that a token attends to, on average over a sample: S/2 with a causal mask (half of the
/// full square), W − W²/(2 S) with a window of W < S tokens, S without a mask.
double visible_tokens(const deck::ModelConfig& model);
/// Multiplications of matrix elements per token in a forward pass, on all tensor ranks together.
double products_per_token(const Operation& operation, const deck::ModelConfig& model);
/// Factor of 2 · products_per_token in a pass: 1; for backward_input of attention 2.
double product_factor(const Operation& operation, Pass pass);

}  // namespace trireme::architecture
