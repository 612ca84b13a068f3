#pragma once

#include <trireme/architecture/array_spec.hpp>
#include <trireme/architecture/extents.hpp>
#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Operations on named tensors. A transformer layer is a list of operations (describe_layer), and
/// so are the embedding and the head (ends.hpp). The tensors that a pass reads and writes, its
/// messages and its FLOPs follow from the kind of the operation.
namespace trireme::architecture {

/// Converts the index of an operation or a tensor, or an enumerator, to an index of a list.
template <class I>
constexpr std::size_t at(I i) {
  return static_cast<std::size_t>(i);
}

/// Element type of a tensor: the type of activations or of sums, double, or int32.
enum class Numbers : std::uint8_t { compute, accumulate, fp64, index };

/// Memory that holds a tensor, and the number of copies of the tensor.
enum class Home : std::uint8_t {
  layer,   ///< per layer, at an offset that its program assigns (block_program.hpp);
           ///< the embedding's x is in the first layer's memory
  batch,   ///< per slot: a field of the batch
  slot,    ///< per slot
  split,   ///< per slot, if backward_input and backward_weight are separate
  value,   ///< per slot: a value that later blocks read, at value_offset(); so is its gradient
  scratch  ///< per rank, within one pass
};

/// Values that a block writes for later blocks, besides its own residual stream: rows of the
/// source, biases of relative positions, and for each module that predicts further tokens first
/// the embeddings that it reads, and after it the result of the previous block. All stages keep
/// them and send them on, and the gradients return: the readers of a value add to its gradient in
/// descending order of the blocks.
enum class ModelValue : std::uint8_t { source, encoder_bias, decoder_bias, of_module };

/// An activation.
struct Tensor {
  std::string name;
  Rows rows = {};
  Columns columns = {};
  Numbers numbers = Numbers::compute;
  Home home = Home::layer;
  /// Index of a tensor whose memory this tensor shares, if their element sizes are equal; −1: none.
  int stored_in = -1;
  ModelValue value = ModelValue::source;  ///< for Home::value
  std::int64_t module = 0;                ///< number of the module, counted from 0, for of_module
};

/// Rows per sample in a block of a stream; for logit_block, the rows of all blocks.
std::int64_t rows_per_sample(const Rows& rows, const deck::ModelConfig& model,
                             Stream stream = Stream::tokens);
/// Place of a value in the memory of all values, and bytes of this memory; multiples of 64.
Bytes value_offset(ModelValue value, const RankSizes& sizes, Bytes element, Bytes accumulate,
                   std::int64_t module = 0);
Bytes value_bytes(const RankSizes& sizes, Bytes element, Bytes accumulate);
/// Bytes of the biases of relative positions in this memory.
Bytes table_bytes(const RankSizes& sizes, Bytes element, Bytes accumulate);
/// Elements from the beginning of a row to the next row: the number of columns, unless rows are
/// padded.
std::int64_t stride_of(const Tensor& tensor, const RankSizes& sizes, Bytes element,
                       Bytes accumulate);
/// Bytes of an element, given the bytes of activations (`element`) and of sums (`accumulate`).
Bytes bytes_of(Numbers numbers, Bytes element, Bytes accumulate);
/// Bytes of a tensor, rounded up to a multiple of 64, the alignment of an arena.
Bytes bytes_of(const Tensor& tensor, const RankSizes& sizes, Bytes element, Bytes accumulate);
/// Shape for messages: "[T, F]".
std::string shape_text(const Tensor& tensor);

enum class OperationKind : std::uint8_t {
  norm,           ///< output = norm(input)
  head_norm,      ///< queries and keys of output = RMSNorm(queries and keys of input), in place
  width_norm,     ///< as head_norm, but of all heads of queries, or of keys, together
  linear,         ///< output = input Wᵀ + bias
  rotary,         ///< queries and keys rotated by their positions, in place
  attention,      ///< output = softmax(q kᵀ / √K) v
  activation,     ///< output = gelu(input), swiglu(input), geglu(input) or tanh(input)
  dropout,        ///< output = dropout(input), in place
  residual,       ///< output = residual + dropout(input)
  embedding,      ///< output = rows of the first table; output += rows of other tables
  pick,           ///< output = rows `indices` of input
  logits,         ///< as `linear`, by blocks of rows
  cross_entropy,  ///< output = log Σ exp(input) − input[indices]
  router,         ///< output = input Wᵀ, in the type of sums
  choice,  ///< output = the experts of each token and their weights, from the router's output
  expert_product,     ///< as `linear`, with the rows and the weights of one expert at a time
  expert_activation,  ///< output = weight · activation(input), for each choice of an expert
  dispatch,           ///< output = the rows of the tokens that chose experts of this rank
  expert_rounds,      ///< output = the sum of each token's experts on this rank, from its row
  combine,            ///< output = the sums of such rows over all ranks
  gate,               ///< output = sigmoid(second input) · input, row by row, in place
  add,                ///< output = input + second input, in place
  row_product,        ///< as `linear`, of this rank's rows
  join_heads,   ///< output = queries, keys and values of latent attention, from queries, keys and
                ///< values of the heads, and common keys
  take_values,  ///< output = the columns of the input that are values, in latent attention
  table,        ///< output = the array
  swap,         ///< output = second input; second input = input
  patches,      ///< output = patches(pixels) Wᵀ + bias, for this rank's rows
  class_token,  ///< output += the array, in the first row of each image, in place
  pool,         ///< output = the means of squares of patches of each image
  splice        ///< output = input, with the rows of images in the places of their tokens
};
std::string_view name_of(OperationKind kind);

/// Indices in Operation::saved and Operation::scratch of `choice`.
namespace choice {
inline constexpr std::size_t scores = 0, order = 1, bounds = 2, sent = 3, copy_bounds = 4,
                             token_routes = 5, log_sums = 6;
inline constexpr std::size_t own_routes = 0, score_gradients = 1, sent_routes = 2,
                             token_gradients = 3, row_losses = 4, counts = 5, chunk_counts = 6;
}  // namespace choice

/// Side of a matrix product that the tensor axis splits: its outputs (the columns of Wᵀ) or its
/// inputs (the rows of Wᵀ). With split inputs, the result on each rank is a partial sum. Shoeybi et
/// al. 2019, section 3.
enum class Cut : std::uint8_t { none, outputs, inputs };

enum class Pass : std::uint8_t { forward, backward_input, backward_weight };

/// A low-rank update of some output columns of a product: y[:, part] += factor · dropout(x) Aᵀ Bᵀ
/// (Hu et al. 2021, arXiv 2106.09685). The product and its update are one operation, because they
/// read the same gathered input and add to the same partial sums. With magnitudes m [N], y[:, part]
/// is then multiplied by m / ‖W + factor · B A‖, where ‖·‖ is the norm of each row (Liu et al.
/// 2024, arXiv 2402.09353, eq. 5).
struct AdapterPart {
  std::size_t a = 0;         ///< index of A in the operation's arrays
  std::int64_t a_block = 0;  ///< block of A's `rank` rows, if A serves several parts
  std::size_t b = 0;         ///< index of B in the operation's arrays
  std::int64_t b_block = 0;  ///< block of B's rows, if B serves several parts
  int output = 0;            ///< 0 … 2: queries, keys, values; 0, 1: gate, up; else 0
  std::size_t m = 0;         ///< index of the magnitudes, which have the blocks of B; 0: none
};

struct Operation {
  OperationKind kind = OperationKind::linear;
  std::string name;  ///< such as "attention.output"
  /// Indices of the tensors that the forward pass reads. `residual`: the operand with dropout, then
  /// the other operand. `pick` and `cross_entropy`: the values, then the indices. Operations of
  /// experts: the rows, then outputs of `choice`; an expert_product whose bias is weighed has the
  /// weights as its last input. `attention`: queries, keys and values, or queries, then keys and
  /// values of the source; then the biases of relative positions.
  std::vector<int> inputs = {};
  int output = -1;  ///< index of the output tensor; equal to input() for operations in place
  std::vector<int> saved = {};  ///< tensors that the forward pass keeps for the backward passes
  Cut cut = Cut::none;          ///< for products, tables and cross entropies
  std::vector<ArraySpec> arrays = {};  ///< weights, biases, adapters; names without "layers.3."
  /// For `dropout` and `residual`: number of the random stream in the layer.
  std::uint32_t dropout_site = 0;
  std::int64_t window = 0;  ///< for `attention` and `rotary`: tokens in the window; 0: all tokens
  bool causal = true;       ///< for `attention`: whether a token sees no later tokens
  std::int64_t keys = 0;    ///< for `attention`: tokens of a sample that have keys
  bool crosses = false;     ///< for `attention`: whether keys and values are rows of the source
  std::int64_t key_value_columns = 0;       ///< for `attention`: H (K + V), on all tensor ranks
  std::optional<Gelu> gelu = std::nullopt;  ///< for `activation`: GELU instead of the model's
  std::int64_t term = 0;  ///< for `cross_entropy`: number of its term in the objective's losses
  /// Whether the split input of `logits` is gathered again for the gradient of the weights.
  bool gathers_again = false;
  std::vector<AdapterPart> adapter = {};  ///< for `linear`
  std::vector<int> scratch = {};          ///< tensors that each pass uses as work memory
  double share = 1;    ///< mean fraction of the arrays' matrices that a row is multiplied by
  double epsilon = 0;  ///< for `norm`: 0 means the model's
  /// As OperationRule::weights_with_input, for one operation: a norm whose result is the layer's
  /// output, because the gradient of its input overwrites that of its output.
  bool weights_with_input = false;
  /// Columns that an operation in place changes; it does not read the other columns of its tensor.
  std::optional<Columns> changed = std::nullopt;

  /// Name of the first bias; "" if there is none.
  std::string bias() const;
  /// The first input; of a `table`, which has none, the output.
  int input() const { return inputs.empty() ? output : inputs.front(); }
  bool in_place() const { return !inputs.empty() && input() == output; }
  /// Whether any array, any weight matrix, or any adapter of the operation is trained.
  bool trains() const;
  bool trains_product() const;
  bool trains_adapter() const;
};

/// Whether backward_input also computes the gradients of an operation's weights.
bool computes_weights_with_input(const Operation& operation);
/// The tensors whose values a pass of an operation reads; gradients are not listed.
std::vector<int> tensors_read(const Operation& operation, Pass pass);
/// The tensors that an operation's forward pass writes.
std::vector<int> tensors_written(const Operation& operation);
/// Whether an operation has this pass.
bool has_pass(const Operation& operation, Pass pass);

enum class Collective : std::uint8_t { all_gather, reduce_scatter, all_reduce };
std::string_view name_of(Collective collective);

/// A message of the tensor axis. An all-gather before a product collects the rows of all tensor
/// ranks. A reduction after a product sums partial sums: reduce-scatter if each rank needs only its
/// own rows, all-reduce if it needs all rows. Statistics of a cross entropy are gathered.
struct Message {
  Collective collective;
  int tensor;  ///< index of the tensor that is sent, or whose gradient is sent
};
/// The message of an operation's pass on more than one tensor rank; std::nullopt if it has none.
/// `cuts_tokens`: whether sequence parallelism splits the residual stream.
std::optional<Message> message_of(const Operation& operation, Pass pass,
                                  const std::vector<Tensor>& tensors, bool cuts_tokens);

/// Rows of a kind that depends on the experts of a layer.
Rows rows_of_experts(Rows::Kind kind, const deck::ModelConfig& model);

/// An exchange of rows among the replicas that divide the experts: each rank sends copies of its
/// tokens' rows to the ranks with their experts, or receives one row for each copy.
struct Exchange {
  int columns;  ///< tensor whose rows have the columns of the message
  bool returns = false;
};

/// Rows of such a message on a rank: the most, or if all experts are used equally. The rank of a
/// token sends at most one copy to each rank, and each rank returns one row per copy.
std::int64_t exchanged_rows(const Exchange& exchange, const deck::ModelConfig& model,
                            const RankSizes& sizes, bool mean = false);

/// Measured rate that estimates the time of an operation's kernels (plan::Machine::Kernels);
/// `product`: the rate of matrix products, or of attention.
enum class KernelRate : std::uint8_t {
  product,
  norm,
  rotary,
  activation,
  residual,
  embedding,
  loss
};

/// The properties of a kind of operation. model/ has a class with the passes of each kind.
struct OperationRule {
  enum class WeightPass : std::uint8_t { never, trained, always };

  std::string_view name;
  KernelRate rate = KernelRate::product;
  /// Whether backward_input can add to a gradient in memory. The contributions of other operations
  /// to a sum are added by a kernel of their own.
  bool adds_gradient = false;
  bool has_input_pass = true;  ///< whether there is a pass backward_input
  /// `trained`: the pass backward_weight exists if any array is trained.
  WeightPass weight_pass = WeightPass::never;
  /// Whether backward_input also computes the gradients of the weights, because it overwrites the
  /// gradient that they depend on.
  bool weights_with_input = false;
  /// Whether backward_weight may scale the gradient of the output in place.
  bool scales_gradient = false;
  bool draws = false;  ///< whether dropout draws a random number per element of the output
  /// Whether one kernel computes the gradients of all arrays, so that they are frozen together.
  bool joins_arrays = false;
  /// Whether the outputs are choices, such as numbers of experts. Arbitrary values are then not
  /// valid: measurements compute them.
  bool decides = false;
  /// Whether recompute = "selective" recomputes outputs that only gradients of weights read.
  bool cheap = false;
  /// Whether the operation overwrites a value that it reads, so that it cannot be repeated: its
  /// output is kept for backward passes.
  bool once = false;
  /// Whether the kernels have the name of the operation instead of its kind.
  bool own_name = false;
  /// Names of the kernels of the forward pass and of the backward pass, if they do not follow from
  /// the name.
  std::array<std::string_view, 2> kernels{};
  std::vector<int> (*read_backward)(const Operation&, Pass) = nullptr;  ///< null: no tensors
  /// The tensors whose gradients backward_input computes besides the gradient of the input; null:
  /// none.
  std::vector<int> (*other_gradients)(const Operation&) = nullptr;
  /// Multiplications per row; null: the number of elements of matrices.
  double (*products)(const Operation&) = nullptr;
  /// FLOPs of each pass in units of 2 · products.
  std::array<double, 3> factors{};
  double (*factor)(const Operation&, Pass) = nullptr;  ///< null: `factors`
  /// The tensor that a pass sums over the context ranks with a message of its own, unless it has
  /// Rows::none; null: none.
  std::optional<int> (*context_sum)(const Operation&, Pass) = nullptr;
  /// The exchange of a pass with the replicas that divide the experts; null: none.
  std::optional<Exchange> (*exchange)(const Operation&, Pass) = nullptr;
  /// Null: the message follows from Operation::cut.
  std::optional<Message> (*message)(const Operation&, Pass, const std::vector<Tensor>&,
                                    bool cuts_tokens) = nullptr;
};
const OperationRule& rule_of(OperationKind kind);

/// Number of tokens that a token attends to, on average over a sample: S/2 with a causal mask (half
/// of the full square), W − W²/(2 S) with a window of W < S tokens, S without a mask, for S keys.
double visible_tokens(const Operation& attention);
/// Multiplications per row in a forward pass, on all tensor ranks together.
double products_per_row(const Operation& operation);
/// FLOPs of a pass per row, in units of 2 · products_per_row.
double product_factor(const Operation& operation, Pass pass);
/// Whether the operation is a matrix product with weights.
bool is_product(const Operation& operation);

/// A transformer layer as a list of operations on named tensors. This is the only description of a
/// layer: its parameters, activations, recomputation, messages, FLOPs and benchmarks follow from
/// the list. The embedding and the head are such lists, too (ends.hpp). Tensor 0 is the layer's
/// input; `output` is the index of the last operation's output.
struct BlockDescription {
  Stream stream = Stream::tokens;  ///< rows of tensor 0 and of the output
  std::vector<Tensor> tensors;
  std::vector<Operation> operations;
  int output = -1;
};

/// Rows of an operation's output per token of the model: not 1 for rows of a source.
double row_ratio(const BlockDescription& layer, const Operation& operation,
                 const deck::ModelConfig& model);
/// Multiplications of an operation in a layer's forward pass per token of the model.
double products_per_token(const BlockDescription& layer, const Operation& operation,
                          const deck::ModelConfig& model);

/// Rows of a matrix product with weights on a rank: of its gathered input, or of its input before
/// partial sums are reduced; for experts, on average.
std::int64_t product_rows(const BlockDescription& part, const Operation& operation,
                          const RankSizes& sizes);
/// Columns of the widest rows that the products of a block gather from the tensor ranks, or reduce.
std::int64_t gathered_columns(const BlockDescription& part, const RankSizes& sizes);
/// Number of weight matrices of a product on a rank: one, or one per expert.
std::int64_t matrices_of(const BlockDescription& part, const Operation& operation,
                         const RankSizes& sizes);
/// FLOPs of a pass on a rank, without adapters.
double rank_flops(const BlockDescription& part, const Operation& operation, Pass pass,
                  const deck::ModelConfig& model, const RankSizes& sizes);

/// Prefix of the names of the arrays of modules that predict further tokens.
inline constexpr std::string_view module_prefix = "predict.";
/// Prefix of the names of a layer's arrays: "encoder.layers.3."; counted from the decoder's first
/// layer, "layers.3."; of the module that predicts the second token, "predict.2.".
std::string prefix_of_layer(const deck::ModelConfig& model, std::int64_t layer);
/// Number of the random stream of the dropout after cross-attention, and of the source's embedding.
inline constexpr std::uint32_t cross_attention_site = std::uint32_t{1} << 30;
inline constexpr std::uint32_t source_site = std::uint32_t{1} << 29;

/// Description of layer number `layer` of a model: the layers of the encoder are first.
BlockDescription describe_layer(const deck::ModelConfig& model, std::int64_t layer);

}  // namespace trireme::architecture
