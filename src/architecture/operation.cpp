// Tensors read and written, messages and FLOPs of each kind of operation.
#include <trireme/architecture/operation.hpp>

#include <trireme/architecture/rank_sizes.hpp>
#include <trireme/base/text.hpp>

#include <algorithm>
#include <array>

namespace trireme::architecture {

std::int64_t rows_per_sample(const Rows& rows, const deck::ModelConfig& m, Stream stream) {
  switch (rows.kind) {
    case Rows::tokens:
    case Rows::own:
    case Rows::received:
    case Rows::exchanged:
      return stream == Stream::source ? m.source_rows() : m.sequence;
    case Rows::source_tokens:
    case Rows::source_own:
      return m.source_rows();
    case Rows::projected:
      return m.projected_rows();
    case Rows::pixel_words:
      return m.vision.pixel_words();
    case Rows::targets:
    case Rows::logit_block:
      return m.targets();
    case Rows::pairs:
    case Rows::samples:
      return 1;
    case Rows::head_rows:
      return m.targets() + (m.has_sentence_head() ? 1 : 0);
    case Rows::routed:
    case Rows::round:
      return m.sequence * rows.active;
    case Rows::sent:
    case Rows::received_copies:
    case Rows::copy_bounds:
    case Rows::bounds:
    case Rows::chunks:
    case Rows::buckets:
    case Rows::none:
      return 0;
  }
  return 0;
}

Bytes value_offset(ModelValue value, const RankSizes& n, Bytes element, Bytes accumulate,
                   std::int64_t module) {
  const auto aligned = [](Bytes bytes) { return (bytes + 63) / 64 * 64; };
  const Bytes rows = aligned(n.source.rows * n.source.hidden * element);
  const Bytes table = aligned(n.buckets * n.heads * accumulate);
  switch (value) {
    case ModelValue::source:
      return 0;
    case ModelValue::encoder_bias:
      return rows;
    case ModelValue::decoder_bias:
      return rows + table;
    case ModelValue::of_module:
      return rows + 2 * table + module * aligned(n.rows * n.hidden * element);
  }
  return 0;
}

Bytes value_bytes(const RankSizes& n, Bytes element, Bytes accumulate) {
  return value_offset(ModelValue::of_module, n, element, accumulate, n.modules);
}

Bytes table_bytes(const RankSizes& n, Bytes element, Bytes accumulate) {
  return value_offset(ModelValue::of_module, n, element, accumulate) -
         value_offset(ModelValue::encoder_bias, n, element, accumulate);
}

Bytes bytes_of(Numbers numbers, Bytes element, Bytes accumulate) {
  return std::array<Bytes, 4>{element, accumulate, 8, 4}[at(numbers)];
}

std::int64_t stride_of(const Tensor& t, const RankSizes& n, Bytes element, Bytes accumulate) {
  const std::int64_t columns = columns_of(t.columns, n);
  if (!t.columns.is_padded()) return columns;
  const std::int64_t in_line = 64 / bytes_of(t.numbers, element, accumulate);
  return (columns + in_line - 1) / in_line * in_line;
}

Bytes bytes_of(const Tensor& t, const RankSizes& n, Bytes element, Bytes accumulate) {
  const std::int64_t elements = rows_of(t.rows, n) * stride_of(t, n, element, accumulate);
  return (elements * bytes_of(t.numbers, element, accumulate) + 63) / 64 * 64;
}

std::string shape_text(const Tensor& t) {
  constexpr auto rows = words_of<Rows::Kind>(
      "T", "R", "N", "B", "N + B", "N'", "B", "T e", "T min(k, e)", "T", "T e", "2 (e + 1)",
      "T e k'", "f T e k'", "E' + 1", "2 c B", "T'", "R'", "I", "pixels", "buckets", "0");
  return text("[", rows[at(t.rows.kind)], ", ", t.columns.symbol, "]");
}

std::string_view name_of(OperationKind kind) {
  return rule_of(kind).name;
}

std::string Operation::bias() const {
  if (!is_product(*this)) return "";
  const auto found =
      std::ranges::find_if(arrays, [](const ArraySpec& a) { return !a.decay && !a.adapter; });
  return found == arrays.end() ? "" : found->name;
}

bool Operation::trains() const {
  return std::ranges::any_of(arrays, [](const ArraySpec& a) { return !a.frozen; });
}
bool Operation::trains_product() const {
  return std::ranges::any_of(arrays,
                             [](const ArraySpec& a) { return !a.frozen && a.decay && !a.adapter; });
}
bool Operation::trains_adapter() const {
  return std::ranges::any_of(arrays, [](const ArraySpec& a) { return !a.frozen && a.adapter; });
}

// ---- rules of the kinds of operations

namespace {

std::vector<int> with_saved(std::vector<int> tensors, const Operation& op) {
  tensors.insert(tensors.end(), op.saved.begin(), op.saved.end());
  return tensors;
}

/// The input, if the pass computes gradients of weights from it.
std::vector<int> read_by_product(const Operation& op, Pass pass) {
  if (pass != Pass::backward_weight) return {};
  const bool reads = op.kind == OperationKind::logits || op.trains_product() || op.trains_adapter();
  return reads ? std::vector{op.input()} : std::vector<int>{};
}

double attention_products(const Operation& op) {
  return static_cast<double>(op.key_value_columns) * visible_tokens(op);
}

bool is_cut(int tensor, const std::vector<Tensor>& tensors, bool cuts_tokens) {
  const Rows& rows = tensors[at(tensor)].rows;
  return cuts_tokens && (rows == Rows::own || rows == Rows::source_own);
}

/// The message of an operation with a cut: the rows of split outputs are gathered before the
/// operation, the partial sums of split inputs are reduced after it.
std::optional<Message> message_of_cut(const Operation& op, Pass pass,
                                      const std::vector<Tensor>& tensors, bool cuts_tokens) {
  using enum Collective;
  const auto gather = [&](int t) {
    return is_cut(t, tensors, cuts_tokens) ? std::optional(Message{all_gather, t}) : std::nullopt;
  };
  const auto reduce = [&](int t) {
    return Message{is_cut(t, tensors, cuts_tokens) ? reduce_scatter : all_reduce, t};
  };
  const bool forward = pass == Pass::forward;
  switch (op.cut) {
    case Cut::none:
      break;
    case Cut::outputs:
      if (pass == Pass::backward_input) return reduce(op.input());
      // A product of a layer gathers its input again; logits may still have their gathered input.
      if (!forward && op.kind == OperationKind::logits && !op.gathers_again) break;
      if (!forward && op.kind == OperationKind::linear && tensors_read(op, pass).empty()) break;
      return gather(op.input());
    case Cut::inputs:
      if (forward) return reduce(op.output);
      // The gradient of the output is gathered for backward_input, and kept for backward_weight.
      if (pass == Pass::backward_weight && has_pass(op, Pass::backward_input)) break;
      return gather(op.output);
  }
  return {};
}

/// Each row is on the rank that holds its token.
std::optional<Message> message_of_pick(const Operation& op, Pass pass,
                                       const std::vector<Tensor>& tensors, bool cuts_tokens) {
  if (pass != Pass::forward || !is_cut(op.input(), tensors, cuts_tokens)) return {};
  return Message{Collective::all_reduce, op.output};
}

/// Sums over the columns of all ranks.
std::optional<Message> message_of_width_norm(const Operation& op, Pass, const std::vector<Tensor>&,
                                             bool) {
  return Message{Collective::all_reduce, op.saved.back()};
}

/// Each token's experts are chosen by the rank that has its row. The gradients of the weights are
/// partial sums over the ranks' experts.
std::optional<Message> message_of_choice(const Operation& op, Pass pass, const std::vector<Tensor>&,
                                         bool cuts_tokens) {
  using enum Collective;
  if (pass == Pass::backward_input)
    return Message{cuts_tokens ? reduce_scatter : all_reduce, op.output};
  return cuts_tokens ? std::optional(Message{all_gather, op.output}) : std::nullopt;
}

/// Weights and numbers of the experts travel with the tokens, and the gradients of the weights
/// return.
std::optional<Exchange> exchange_of_choice(const Operation& op, Pass pass) {
  return Exchange{op.output, pass == Pass::backward_input};
}

/// Each pass needs the rows of tokens, or the gradients of their results, or returns such rows.
std::optional<Exchange> exchange_of_experts(const Operation& op, Pass pass) {
  if (pass == Pass::backward_weight && tensors_read(op, pass).empty()) return {};
  const bool outputs = op.cut == Cut::outputs;
  const Pass returns = outputs ? Pass::backward_input : Pass::forward;
  return Exchange{outputs ? op.input() : op.output, pass == returns};
}

/// Multiplications with the elements of the active experts.
double products_of_experts(const Operation& op) {
  double elements = 0;
  for (const ArraySpec& array : op.arrays)
    if (array.decay) elements += static_cast<double>(array.elements());
  return op.share * elements;
}

/// The backward pass computes the first product again.
double factor_of_rounds(const Operation& op, Pass pass) {
  if (pass != Pass::backward_input) return pass == Pass::forward ? 1 : 0;
  const double first = op.share * static_cast<double>(op.arrays.front().elements());
  return (op.trains_product() ? 2 : 1) + first / products_of_experts(op);
}

/// The numbers of a sample's tokens that use each expert: before a limit, and for the loss.
std::optional<int> context_sum_of_choice(const Operation& op, Pass pass) {
  if (pass == Pass::backward_weight) return {};
  return op.scratch[pass == Pass::forward ? choice::chunk_counts : choice::counts];
}

/// Statistics of the parts of a split vocabulary.
std::optional<Message> message_of_cross_entropy(const Operation& op, Pass pass,
                                                const std::vector<Tensor>&, bool) {
  if (op.cut == Cut::none || pass != Pass::forward) return {};
  return Message{Collective::all_gather, op.saved.front()};
}

/// Keys that all heads share are gathered, and their gradients are partial sums over the ranks'
/// heads.
std::optional<Message> message_of_join(const Operation& op, Pass pass, const std::vector<Tensor>&,
                                       bool cuts_tokens) {
  using enum Collective;
  if (pass == Pass::backward_input)
    return Message{cuts_tokens ? reduce_scatter : all_reduce, op.inputs[2]};
  return cuts_tokens ? std::optional(Message{all_gather, op.inputs[2]}) : std::nullopt;
}

/// A rank's squares of patches may be on any rank: all rows are gathered. Their gradients follow
/// from those of the means, which all ranks have.
std::optional<Message> message_of_pool(const Operation& op, Pass pass,
                                       const std::vector<Tensor>& tensors, bool cuts_tokens) {
  if (pass != Pass::forward || !is_cut(op.input(), tensors, cuts_tokens)) return {};
  return Message{Collective::all_gather, op.input()};
}

/// A rank's tokens may be in any image: all rows of images are gathered, unless all ranks have
/// them, and their gradients are partial sums.
std::optional<Message> message_of_splice(const Operation& op, Pass pass,
                                         const std::vector<Tensor>& tensors, bool cuts_tokens) {
  const int images = op.inputs[1];
  if (tensors[at(images)].rows == Rows::projected)
    return pass == Pass::backward_input && cuts_tokens
               ? std::optional(Message{Collective::all_reduce, images})
               : std::nullopt;
  if (!is_cut(images, tensors, cuts_tokens)) return {};
  return Message{pass == Pass::forward ? Collective::all_gather : Collective::reduce_scatter,
                 images};
}

namespace rules {

using WeightPass = OperationRule::WeightPass;

constexpr OperationRule norm{
    .name = "norm",
    .rate = KernelRate::norm,
    .adds_gradient = true,
    .weight_pass = WeightPass::trained,
    .joins_arrays = true,
    .cheap = true,
    .read_backward = [](const Operation& op, Pass) { return with_saved({op.input()}, op); }};

constexpr OperationRule head_norm{
    .name = "head_norm",
    .rate = KernelRate::norm,
    .weights_with_input = true,
    .joins_arrays = true,
    .read_backward = [](const Operation& op, Pass) { return op.saved; }};

constexpr OperationRule width_norm{
    .name = "width_norm",
    .rate = KernelRate::norm,
    .weights_with_input = true,
    .joins_arrays = true,
    .read_backward = [](const Operation& op, Pass) { return op.saved; },
    .other_gradients = [](const Operation& op) { return std::vector{op.saved.back()}; },
    .message = message_of_width_norm};

constexpr OperationRule linear{.name = "linear",
                               .weight_pass = WeightPass::trained,
                               .joins_arrays = true,
                               .own_name = true,
                               .read_backward = read_by_product,
                               .factors = {1, 1, 1}};

constexpr OperationRule rotary{.name = "rotary", .rate = KernelRate::rotary};

/// Products with keys and with values. The backward pass has two for each of the forward pass. The
/// gradients of sinks need values that only backward_input reads.
constexpr OperationRule attention{
    .name = "attention",
    .weights_with_input = true,
    .read_backward =
        [](const Operation& op, Pass) {
          std::vector<int> read = op.inputs;
          read.insert(read.begin() + 1, op.output);
          return with_saved(std::move(read), op);
        },
    .other_gradients =
        [](const Operation& op) { return std::vector(op.inputs.begin() + 1, op.inputs.end()); },
    .products = attention_products,
    .factors = {1, 2, 0}};

constexpr OperationRule activation{
    .name = "activation",
    .rate = KernelRate::activation,
    .cheap = true,
    .own_name = true,
    .read_backward = [](const Operation& op, Pass) { return std::vector{op.input()}; }};

constexpr OperationRule dropout{.name = "dropout", .rate = KernelRate::residual, .draws = true};

constexpr OperationRule residual{.name = "residual",
                                 .rate = KernelRate::residual,
                                 .draws = true,
                                 .kernels = {"residual_dropout.forward", "dropout.backward"}};

/// Positions are added in place; their gradients need no numbers of positions.
constexpr OperationRule embedding{.name = "embedding",
                                  .rate = KernelRate::embedding,
                                  .has_input_pass = false,
                                  .weight_pass = WeightPass::trained,
                                  .scales_gradient = true,
                                  .own_name = true,
                                  .read_backward = [](const Operation& op, Pass) {
                                    return op.in_place() ? std::vector<int>{} : op.inputs;
                                  }};

constexpr OperationRule pick{
    .name = "pick",
    .rate = KernelRate::embedding,
    .kernels = {"rows.pick", "rows.place"},
    .read_backward = [](const Operation& op, Pass) { return std::vector{op.inputs[1]}; },
    .context_sum = [](const Operation& op, Pass) { return std::optional(op.output); },
    .message = message_of_pick};

/// backward_weight may recompute logits, also with frozen arrays.
constexpr OperationRule logits{.name = "logits",
                               .weight_pass = WeightPass::always,
                               .read_backward = read_by_product,
                               .factors = {1, 1, 1}};

constexpr OperationRule cross_entropy{
    .name = "cross entropy",
    .rate = KernelRate::loss,
    .read_backward = [](const Operation& op, Pass) { return with_saved(op.inputs, op); },
    .message = message_of_cross_entropy};

constexpr OperationRule router{.name = "router",
                               .weight_pass = WeightPass::trained,
                               .joins_arrays = true,
                               .read_backward = read_by_product,
                               .factors = {1, 1, 1}};

constexpr OperationRule choice{
    .name = "choice",
    .rate = KernelRate::loss,
    .decides = true,
    .read_backward = [](const Operation& op, Pass) { return with_saved({op.output}, op); },
    .context_sum = context_sum_of_choice,
    .exchange = exchange_of_choice,
    .message = message_of_choice};

/// With biases, the last input has the experts' weights.
constexpr OperationRule expert_product{
    .name = "experts",
    .weight_pass = WeightPass::trained,
    .joins_arrays = true,
    .own_name = true,
    .read_backward =
        [](const Operation& op, Pass pass) {
          return std::vector(op.inputs.begin() + (pass == Pass::backward_weight ? 0 : 1),
                             op.inputs.end());
        },
    .other_gradients =
        [](const Operation& op) {
          return std::vector(op.inputs.begin() + std::min<std::ptrdiff_t>(5, std::ssize(op.inputs)),
                             op.inputs.end());
        },
    .factors = {1, 1, 1},
    .exchange = exchange_of_experts};

constexpr OperationRule expert_activation{
    .name = "expert activation",
    .rate = KernelRate::activation,
    .cheap = true,
    .kernels = {"experts.activation.forward", "experts.activation.backward"},
    .read_backward = [](const Operation& op, Pass) { return op.inputs; },
    .other_gradients = [](const Operation& op) { return std::vector{op.inputs[1]}; }};

/// Neither reads values in a backward pass: only the lists of copies.
constexpr OperationRule dispatch{
    .name = "dispatch",
    .rate = KernelRate::embedding,
    .kernels = {"experts.dispatch.forward", "experts.dispatch.backward"},
    .read_backward = [](const Operation& op,
                        Pass) { return std::vector(op.inputs.begin() + 1, op.inputs.end()); },
    .exchange = exchange_of_experts};

constexpr OperationRule combine{
    .name = "combine",
    .rate = KernelRate::embedding,
    .kernels = {"experts.combine.forward", "experts.combine.backward"},
    .read_backward = [](const Operation& op,
                        Pass) { return std::vector(op.inputs.begin() + 1, op.inputs.end()); },
    .exchange = exchange_of_experts};

constexpr OperationRule expert_rounds{
    .name = "expert rounds",
    .weights_with_input = true,
    .joins_arrays = true,
    .kernels = {"experts.rounds.forward", "experts.rounds.backward"},
    .read_backward = [](const Operation& op, Pass) { return op.inputs; },
    .other_gradients = [](const Operation& op) { return std::vector{op.inputs[1]}; },
    .products = products_of_experts,
    .factor = factor_of_rounds};

constexpr OperationRule gate{
    .name = "gate",
    .rate = KernelRate::activation,
    .read_backward = [](const Operation& op, Pass) { return with_saved({op.inputs[1]}, op); },
    .other_gradients = [](const Operation& op) { return std::vector{op.inputs[1]}; }};

constexpr OperationRule add{
    .name = "add", .rate = KernelRate::residual, .other_gradients = [](const Operation& op) {
      return std::vector{op.inputs[1]};
    }};

constexpr OperationRule row_product{.name = "row product",
                                    .weight_pass = WeightPass::trained,
                                    .joins_arrays = true,
                                    .own_name = true,
                                    .read_backward = read_by_product,
                                    .factors = {1, 1, 1}};

constexpr OperationRule join_heads{.name = "join heads",
                                   .rate = KernelRate::residual,
                                   .kernels = {"heads.join", "heads.split"},
                                   .other_gradients =
                                       [](const Operation& op) {
                                         return std::vector{op.inputs[1], op.inputs[2]};
                                       },
                                   .message = message_of_join};

constexpr OperationRule take_values{.name = "take values",
                                    .rate = KernelRate::residual,
                                    .kernels = {"values.take", "values.place"}};

/// The gradient of the output is that of the array.
constexpr OperationRule table{.name = "table",
                              .rate = KernelRate::embedding,
                              .has_input_pass = false,
                              .weight_pass = WeightPass::trained};

/// The gradient of the second input is added to that of the input; that of the output replaces it.
constexpr OperationRule swap{
    .name = "swap",
    .rate = KernelRate::residual,
    .adds_gradient = true,
    .once = true,
    .other_gradients = [](const Operation& op) { return std::vector{op.inputs[1]}; }};

/// The backward pass computes the patches' values again. Pixels have no gradient.
constexpr OperationRule patches{
    .name = "patches",
    .has_input_pass = false,
    .weight_pass = WeightPass::trained,
    .joins_arrays = true,
    .read_backward = [](const Operation& op, Pass) { return op.inputs; },
    .products =
        [](const Operation& op) { return static_cast<double>(op.arrays.front().elements()); },
    .factors = {1, 0, 1}};

constexpr OperationRule class_token{.name = "class token",
                                    .rate = KernelRate::embedding,
                                    .has_input_pass = false,
                                    .weight_pass = WeightPass::trained,
                                    .kernels = {"class_token.forward", "class_token.backward"}};

constexpr OperationRule pool{.name = "pool",
                             .rate = KernelRate::residual,
                             .kernels = {"images.pool", "images.spread"},
                             .message = message_of_pool};

constexpr OperationRule splice{
    .name = "splice",
    .rate = KernelRate::residual,
    .kernels = {"images.splice", "images.take"},
    .read_backward = [](const Operation& op, Pass) { return std::vector{op.inputs[2]}; },
    .other_gradients = [](const Operation& op) { return std::vector{op.inputs[1]}; },
    .message = message_of_splice};

}  // namespace rules
}  // namespace

const OperationRule& rule_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::norm:
      return rules::norm;
    case OperationKind::head_norm:
      return rules::head_norm;
    case OperationKind::width_norm:
      return rules::width_norm;
    case OperationKind::linear:
      return rules::linear;
    case OperationKind::rotary:
      return rules::rotary;
    case OperationKind::attention:
      return rules::attention;
    case OperationKind::activation:
      return rules::activation;
    case OperationKind::dropout:
      return rules::dropout;
    case OperationKind::residual:
      return rules::residual;
    case OperationKind::embedding:
      return rules::embedding;
    case OperationKind::pick:
      return rules::pick;
    case OperationKind::logits:
      return rules::logits;
    case OperationKind::cross_entropy:
      return rules::cross_entropy;
    case OperationKind::router:
      return rules::router;
    case OperationKind::choice:
      return rules::choice;
    case OperationKind::expert_product:
      return rules::expert_product;
    case OperationKind::expert_activation:
      return rules::expert_activation;
    case OperationKind::dispatch:
      return rules::dispatch;
    case OperationKind::expert_rounds:
      return rules::expert_rounds;
    case OperationKind::combine:
      return rules::combine;
    case OperationKind::gate:
      return rules::gate;
    case OperationKind::add:
      return rules::add;
    case OperationKind::row_product:
      return rules::row_product;
    case OperationKind::join_heads:
      return rules::join_heads;
    case OperationKind::take_values:
      return rules::take_values;
    case OperationKind::table:
      return rules::table;
    case OperationKind::swap:
      return rules::swap;
    case OperationKind::patches:
      return rules::patches;
    case OperationKind::class_token:
      return rules::class_token;
    case OperationKind::pool:
      return rules::pool;
    case OperationKind::splice:
      return rules::splice;
  }
  return rules::norm;
}

bool computes_weights_with_input(const Operation& op) {
  return rule_of(op.kind).weights_with_input || op.weights_with_input;
}

std::vector<int> tensors_read(const Operation& op, Pass pass) {
  if (pass == Pass::forward) return op.inputs;
  const auto read = rule_of(op.kind).read_backward;
  return has_pass(op, pass) && read != nullptr ? read(op, pass) : std::vector<int>{};
}

std::vector<int> tensors_written(const Operation& op) {
  std::vector<int> written{op.output};
  written.insert(written.end(), op.saved.begin(), op.saved.end());
  return written;
}

bool has_pass(const Operation& op, Pass pass) {
  using WeightPass = OperationRule::WeightPass;
  const OperationRule& rule = rule_of(op.kind);
  switch (pass) {
    case Pass::forward:
      return true;
    case Pass::backward_input:
      return rule.has_input_pass;
    case Pass::backward_weight:
      return rule.weight_pass == WeightPass::always ||
             (rule.weight_pass == WeightPass::trained && op.trains() && !op.weights_with_input);
  }
  return false;
}

std::string_view name_of(Collective collective) {
  static constexpr auto all = words_of<Collective>("all-gather", "reduce-scatter", "all-reduce");
  return all[at(collective)];
}

Rows rows_of_experts(Rows::Kind kind, const deck::ModelConfig& m) {
  const deck::ExpertsConfig& e = m.experts;
  return {kind,
          {e.number, e.split ? Divide::replicas : Divide::experts},
          e.active,
          e.drops(m.sequence) ? e.tokens_per_sample(m.sequence) : 0,
          e.rows};
}

std::int64_t exchanged_rows(const Exchange& exchange, const deck::ModelConfig& model,
                            const RankSizes& n, bool mean) {
  const Rows rows = rows_of_experts(exchange.returns ? Rows::received : Rows::sent, model);
  return mean ? mean_rows_of(rows, n) : rows_of(rows, n);
}

std::optional<Message> message_of(const Operation& op, Pass pass,
                                  const std::vector<Tensor>& tensors, bool cuts_tokens) {
  if (!has_pass(op, pass)) return {};
  const auto message = rule_of(op.kind).message;
  return (message != nullptr ? message : message_of_cut)(op, pass, tensors, cuts_tokens);
}

double visible_tokens(const Operation& op) {
  const auto S = static_cast<double>(op.keys);
  if (!op.causal) return S;
  const auto W = static_cast<double>(op.window > 0 ? std::min(op.window, op.keys) : op.keys);
  return W - W * W / (2 * S);
}

double products_per_row(const Operation& op) {
  if (const auto products = rule_of(op.kind).products; products != nullptr) return products(op);
  std::int64_t elements = 0;
  for (const ArraySpec& array : op.arrays)
    if (array.decay) elements += array.elements();
  return op.share * static_cast<double>(elements);
}

double row_ratio(const BlockDescription& layer, const Operation& op, const deck::ModelConfig& m) {
  const Rows& rows = layer.tensors[at(op.output)].rows;
  if (rows == Rows::projected)
    return static_cast<double>(m.projected_rows()) / static_cast<double>(m.sequence);
  const bool of_source =
      layer.stream == Stream::source || rows == Rows::source_own || rows == Rows::source_tokens;
  if (!of_source) return 1;
  return static_cast<double>(m.source_rows()) / static_cast<double>(m.sequence);
}

double products_per_token(const BlockDescription& layer, const Operation& op,
                          const deck::ModelConfig& m) {
  return row_ratio(layer, op, m) * products_per_row(op);
}

double product_factor(const Operation& op, Pass pass) {
  const OperationRule& rule = rule_of(op.kind);
  return rule.factor != nullptr ? rule.factor(op, pass) : rule.factors[at(pass)];
}

bool is_product(const Operation& op) {
  const OperationRule& rule = rule_of(op.kind);
  return rule.products == nullptr && rule.factors.front() > 0;
}

std::int64_t product_rows(const BlockDescription& part, const Operation& op,
                          const RankSizes& sizes) {
  const RankSizes n = sizes.of(part.stream);
  const Rows in = part.tensors[at(op.input())].rows, out = part.tensors[at(op.output)].rows;
  if (in == Rows::routed || out == Rows::routed)
    return mean_rows_of(in == Rows::routed ? in : out, n);
  if (out != Rows::own && out != Rows::tokens) return all_rows_of(out, n);
  return op.cut == Cut::none ? rows_of(out, n) : n.tokens;
}

std::int64_t gathered_columns(const BlockDescription& part, const RankSizes& n) {
  std::int64_t most = 0;
  for (const Operation& op : part.operations)
    if (op.cut != Cut::none && (is_product(op) || rule_of(op.kind).exchange != nullptr)) {
      const int rows = op.cut == Cut::outputs ? op.input() : op.output;
      most = std::max(most, columns_of(part.tensors[at(rows)].columns, n));
    }
  return most;
}

std::int64_t matrices_of(const BlockDescription& part, const Operation& op, const RankSizes& n) {
  if (op.kind != OperationKind::expert_product && op.kind != OperationKind::expert_rounds) return 1;
  // The bounds of the experts' rows.
  return rows_of(part.tensors[at(op.inputs[op.kind == OperationKind::expert_product ? 2 : 3])].rows,
                 n) -
         1;
}

double rank_flops(const BlockDescription& part, const Operation& op, Pass pass,
                  const deck::ModelConfig& m, const RankSizes& sizes) {
  const RankSizes n = sizes.of(part.stream);
  double products = 0;  // multiplications per row
  std::int64_t rows = n.tokens;
  if (is_product(op)) {
    if (pass == Pass::backward_weight && !op.trains_product()) return 0;
    products = static_cast<double>(columns_of(part.tensors[at(op.input())].columns, n) *
                                   columns_of(part.tensors[at(op.output)].columns, n));
    rows = product_rows(part, op, n);
  } else if (op.kind == OperationKind::expert_rounds) {
    products = products_per_row(op) /
               static_cast<double>(m.experts.active * (m.experts.split ? n.tensor_ranks : 1));
    rows = mean_rows_of(rows_of_experts(Rows::routed, m), n);
  } else if (rule_of(op.kind).products != nullptr) {
    const Columns& columns = part.tensors[at(op.output)].columns;
    products = products_per_row(op) * static_cast<double>(columns_of(columns, n)) /
               static_cast<double>(all_columns_of(columns));
    rows = rows_of(part.tensors[at(op.output)].rows, n);
  }
  return 2 * product_factor(op, pass) * products * static_cast<double>(rows);
}

}  // namespace trireme::architecture
