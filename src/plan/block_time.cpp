// Times of the passes of a layer, the embedding and the head, summed over their operations.
#include <trireme/plan/block_time.hpp>

#include <trireme/architecture/adapter.hpp>
#include <trireme/architecture/operation_calls.hpp>
#include <trireme/base/alignment.hpp>

#include <algorithm>
#include <cmath>

namespace trireme::plan {
namespace {

using architecture::at;
using architecture::Operation;
using architecture::OperationCall;
using architecture::OperationKind;
using architecture::Pass;
using architecture::Rows;
using architecture::Value;

/// The backward pass of fused attention recomputes the scores: five products instead of the two of
/// the forward pass (scores_again), at 63 % instead of 73 % of an A100's peak (backward_rate; Dao
/// 2023, arXiv 2307.08691, section 1).
constexpr double scores_again = 2.5;
constexpr double backward_rate = 63.0 / 73;

/// Measured rate of the kernels of an operation; 0: the memory bandwidth, or products.
double rate_of(const Machine::Kernels& rates, OperationKind kind) {
  using architecture::KernelRate;
  switch (rule_of(kind).rate) {
    case KernelRate::product:
      return 0;
    case KernelRate::norm:
      return rates.norm;
    case KernelRate::rotary:
      return rates.rotary;
    case KernelRate::activation:
      return rates.activation;
    case KernelRate::residual:
      return rates.residual;
    case KernelRate::embedding:
      return rates.embedding;
    case KernelRate::loss:
      return rates.loss;
  }
  return 0;
}

}  // namespace

PassTime& PassTime::operator+=(const PassTime& o) {
  compute += o.compute;
  tensor += o.tensor;
  host += o.host;
  data += o.data;
  flops += o.flops;
  return *this;
}
PassTime PassTime::operator*(double times) const {
  return {compute * times, tensor * times, host * times, data * times, flops * times};
}

BlockTime& BlockTime::operator+=(const BlockTime& o) {
  forward += o.forward;
  backward += o.backward;
  backward_input += o.backward_input;
  backward_weight += o.backward_weight;
  return *this;
}
BlockTime BlockTime::operator*(double times) const {
  return {forward * times, backward * times, backward_input * times, backward_weight * times};
}

BlockTimeModel::BlockTimeModel(const architecture::Architecture& architecture,
                               const TypedSizes& sizes, const KernelTime& kernels,
                               const NetworkTime& network, const Machine& machine)
    : architecture_(architecture),
      sizes_(sizes),
      kernels_(kernels),
      network_(network),
      machine_(machine) {}

/// Rows of a tensor. For rows of experts, those of the rank that receives most, not their bound.
std::int64_t BlockTimeModel::rows_of(const Rows& rows) const {
  const std::int64_t mean = mean_rows_of(rows, sizes_);
  const bool depends_on_choices =
      rows == Rows::routed ||
      (sizes_.expert_ranks > 1 && (rows == Rows::received || rows == Rows::received_copies));
  return depends_on_choices
             ? std::llround(static_cast<double>(mean) * machine_.software.expert_imbalance)
             : mean;
}

double BlockTimeModel::bytes_of(const Part& part, const Value& value) const {
  const architecture::Tensor tensor = value.gradient ? architecture::gradient_of(part, value.tensor)
                                                     : part.tensors[at(value.tensor)];
  return static_cast<double>(
      rows_of(tensor.rows) * columns_of(tensor.columns, sizes_) *
      architecture::bytes_of(tensor.numbers, sizes_.element, sizes_.accumulate));
}

/// Bytes of activations that a call reads and writes. A gradient to which the call adds is read as
/// well.
double BlockTimeModel::bytes_moved(const Part& part, const OperationCall& call) const {
  const architecture::CallEffects effects = architecture::effects(part, call);
  double bytes = 0;
  for (const Value& value : effects.reads) bytes += bytes_of(part, value);
  for (const Value& value : effects.writes) bytes += bytes_of(part, value);
  if (call.accumulates() && call.sum == gradient_target(part, call))
    for (const Value& value : effects.writes) bytes += bytes_of(part, value);
  return bytes;
}

double BlockTimeModel::message_bytes(const Part& part, const architecture::Message& message) const {
  const architecture::Tensor& tensor = part.tensors[at(message.tensor)];
  const std::int64_t rows = all_rows_of(tensor.rows, sizes_);
  return static_cast<double>(
      rows * columns_of(tensor.columns, sizes_) *
      architecture::bytes_of(tensor.numbers, sizes_.element, sizes_.accumulate));
}

/// The product of a pass through `rows` rows, and the bytes that it reads and writes.
std::pair<ProductSizes, double> BlockTimeModel::product_of(Pass pass, std::int64_t rows,
                                                           std::int64_t in,
                                                           std::int64_t columns) const {
  const auto element = static_cast<double>(sizes_.element);
  const auto sum = static_cast<double>(sizes_.accumulate);
  const double activations = static_cast<double>(rows * (in + columns)) * element;
  const auto weights = static_cast<double>(in * columns);
  if (pass == Pass::backward_weight)
    return {{columns, in, rows},
            activations + weights * (machine_.software.fused_accumulation ? 2 * sum : element)};
  if (pass == Pass::backward_input) return {{rows, in, columns}, activations + weights * element};
  return {{rows, columns, in}, activations + weights * element};
}

/// Time of the separate kernel that adds the gradient of `weights` weights to the sum over
/// micro-batches, without fused_accumulation.
Seconds BlockTimeModel::adding_time(double weights) const {
  if (machine_.software.fused_accumulation) return 0;
  const std::int64_t given = machine_.software.gradient_bytes;
  const auto gradient = static_cast<double>(given > 0 ? given : sizes_.accumulate);
  return kernels_.memory(weights * (static_cast<double>(sizes_.element) + 2 * gradient));
}

/// Adds the times of a product, of its adapter, and of the activation's gradient after the product.
void BlockTimeModel::add_product(PassTime& time, const Part& part,
                                 const OperationCall& call) const {
  const Operation& op = part.operations[at(call.operation)];
  if (op.kind == OperationKind::expert_product) return add_expert_product(time, part, call);
  const architecture::Tensor& out = part.tensors[at(op.output)];
  const std::int64_t in = columns_of(part.tensors[at(op.input())].columns, sizes_);
  const std::int64_t columns = columns_of(out.columns, sizes_);
  const bool of_layer = out.rows == Rows::own || out.rows == Rows::tokens;
  const std::int64_t rows = product_rows(part, op, sizes_);
  const auto element = static_cast<double>(sizes_.element);
  const auto [sizes, bytes] = product_of(call.pass, rows, in, columns);
  const bool weight = call.pass == Pass::backward_weight;
  if (weight && op.trains_product()) time.compute += adding_time(static_cast<double>(in * columns));
  const bool fp8 = kernels_.fp8() && of_layer && op.kind == OperationKind::linear;
  const double written = weight && machine_.software.fused_accumulation
                             ? 2 * static_cast<double>(sizes_.accumulate)
                             : element;
  add_adapter(time, part, call);
  if (weight && !op.trains_product()) return;  // frozen
  time.compute +=
      fp8 ? kernels_.fp8_product(sizes, static_cast<double>(sizes.rows * sizes.columns) * written)
          : kernels_.product(sizes, bytes);
  time.flops += sizes.flops();
  if (call.fused >= 0) {
    const auto inner = static_cast<double>(
        rows *
        columns_of(part.tensors[at(part.operations[at(call.fused)].input())].columns, sizes_));
    time.compute += kernels_.memory(machine_.software.traffic_ratio *
                                        (static_cast<double>(rows * in) + 2 * inner) *
                                        element,  // reads dg and h, writes dh
                                    machine_.kernels.activation);
  }
}

/// Adds the times of the products of experts in rounds, of their activation, and of the kernels
/// that pick rows and sum them. Each round reads the weights. The backward pass computes the first
/// product again.
void BlockTimeModel::add_rounds(PassTime& time, const Part& part, const OperationCall& call) const {
  const Operation& op = part.operations[at(call.operation)];
  const auto columns = [&](int tensor) {
    return columns_of(part.tensors[at(tensor)].columns, sizes_);
  };
  const architecture::Tensor& inner = part.tensors[at(op.scratch[1])];
  const std::int64_t D = columns(op.input()), H = columns(op.scratch[1]),
                     F = columns(op.scratch[2]);
  architecture::Rows routed = inner.rows;
  routed.kind = Rows::routed;
  const std::int64_t all = rows_of(routed);
  const std::int64_t experts = matrices_of(part, op, sizes_);
  const std::int64_t rows = std::max<std::int64_t>(1, divided_up(all, experts));
  const auto rounds = static_cast<double>(
      std::max<std::int64_t>(1, divided_up(all, architecture::rows_of(inner.rows, sizes_))));
  const auto element = static_cast<double>(sizes_.element);
  const auto sum = static_cast<double>(sizes_.accumulate);
  const auto of_rows = static_cast<double>(all);
  const bool forward = call.pass == Pass::forward;
  const auto times = static_cast<double>(experts);
  const auto add = [&](ProductSizes sizes, std::int64_t in, std::int64_t out, double of_weight) {
    const double bytes = static_cast<double>(rows * (in + out)) * element +
                         rounds * static_cast<double>(in * out) * of_weight;
    time.flops += times * sizes.flops();
    if (machine_.software.grouped_products) {
      sizes.count = experts;
      time.compute += kernels_.product(sizes, times * bytes);
    } else {
      time.compute += times * kernels_.product(sizes, bytes);
    }
  };
  const auto move = [&](double bytes, auto rate) {
    time.compute += kernels_.memory(machine_.software.traffic_ratio * bytes, rate);
  };
  add({rows, H, D}, D, H, element);
  move((forward ? 1 : 3) * of_rows * static_cast<double>(H + F) * element,
       machine_.kernels.activation);
  move(of_rows * static_cast<double>(D) * ((forward ? 2 : 6) * element + element + 2 * sum),
       machine_.kernels.embedding);
  if (forward) return add({rows, D, F}, F, D, element);
  add({rows, F, D}, F, D, element);
  add({rows, D, H}, D, H, element);
  if (!op.trains_product()) return;
  add({D, F, rows}, F, D, 2 * sum);
  add({H, D, rows}, D, H, 2 * sum);
}

/// Products of a rank's experts, of which each has the same number of rows: one after the other, or
/// in one kernel with grouped_products.
void BlockTimeModel::add_expert_product(PassTime& time, const Part& part,
                                        const OperationCall& call) const {
  const Operation& op = part.operations[at(call.operation)];
  const bool outputs = op.cut == architecture::Cut::outputs;
  const architecture::Tensor& input = part.tensors[at(op.input())];
  const architecture::Tensor& output = part.tensors[at(op.output)];
  const std::int64_t in = columns_of(input.columns, sizes_);
  const std::int64_t columns = columns_of(output.columns, sizes_);
  const std::int64_t matrices = matrices_of(part, op, sizes_);
  const std::int64_t all = rows_of((outputs ? output : input).rows);
  add_routing(time, part, call, {matrices, all});
  const bool weight = call.pass == Pass::backward_weight;
  if (weight && !op.trains_product()) return;  // frozen
  if (weight) time.compute += adding_time(static_cast<double>(matrices * in * columns));
  const std::int64_t rows = std::max<std::int64_t>(1, divided_up(all, matrices));
  auto [sizes, bytes] = product_of(call.pass, rows, in, columns);
  const auto times = static_cast<double>(matrices);
  if (machine_.software.grouped_products) {
    sizes.count = matrices;
    time.compute += kernels_.product(sizes, times * bytes);
  } else {
    time.compute += times * kernels_.product(sizes, bytes);
  }
  time.flops += ProductSizes{all, columns, in}.flops();
}

/// Adds the times of the kernels that bring rows into the order of the experts and sum the rows of
/// each token. Sums are kept in the accumulation type. Trireme picks the input rows of a product
/// again for the gradient of its weights, and replicas that divide the experts round partial sums.
/// Programs that send copies keep the rows, order them by rank, and by expert where they arrive,
/// and multiply them by their weights on the rank of the token.
void BlockTimeModel::add_routing(PassTime& time, const Part& part, const OperationCall& call,
                                 RoutedRows routed) const {
  const Operation& op = part.operations[at(call.operation)];
  const bool outputs = op.cut == architecture::Cut::outputs;
  const bool returns = call.pass == (outputs ? Pass::backward_input : Pass::forward);
  const architecture::Tensor& token = part.tensors[at(outputs ? op.input() : op.output)];
  const auto hidden = static_cast<double>(columns_of(token.columns, sizes_));
  const auto element = static_cast<double>(sizes_.element);
  const auto sum = static_cast<double>(sizes_.accumulate);
  const double rows = hidden * static_cast<double>(routed.rows);
  if (sends_copies()) {
    if (call.pass == Pass::backward_weight) return;
    const double passes = (returns ? 3 : 2) + (outputs ? 0 : call.pass == Pass::forward ? 2 : 3);
    const double moved = passes * hidden * copies() + (routed.experts > 1 ? 2 * rows : 0);
    time.compute += kernels_.memory(machine_.software.traffic_ratio * moved * element,
                                    machine_.kernels.embedding);
    return;
  }
  const double tokens = hidden * static_cast<double>(sizes_.tokens);
  const double sent = sizes_.expert_ranks > 1 ? hidden * copies() : 0;
  const double bytes = returns ? rows * (element + 2 * sum) + tokens * (2 * sum + element) +
                                     sent * (4 * sum + 2 * element)
                               : (rows + sent) * 2 * element;
  const auto kernels = static_cast<double>(routed.experts);
  time.compute += kernels * kernels_.memory(machine_.software.traffic_ratio * bytes / kernels,
                                            machine_.kernels.embedding);
}

void BlockTimeModel::add_attention(PassTime& time, const Part& part,
                                   const OperationCall& call) const {
  const bool forward = call.pass == Pass::forward;
  const Seconds ring = ring_time(forward);
  if (!machine_.software.fused_attention) {
    add_stored_scores(time, part.operations[at(call.operation)], forward);
    time.tensor += ring;
    return;
  }
  const Seconds before = time.compute;
  const Operation& op = part.operations[at(call.operation)];
  const double products = rank_flops(part, op, Pass::forward, architecture_.model, sizes_);
  const double flops = products * (forward ? 1 : scores_again);
  const Machine::Device& device = machine_.device;
  const double slower = device.attention_backward > 0
                            ? device.attention_backward / device.attention_efficiency
                            : backward_rate;
  time.compute += kernels_.attention(forward ? flops : flops / slower, bytes_moved(part, call));
  if (architecture_.model.dropout > 0)
    time.compute += kernels_.random(products / (4 * static_cast<double>(sizes_.head_size)));
  time.flops += rank_flops(part, op, call.pass, architecture_.model, sizes_);
  if (sizes_.context_ranks > 1)
    time.compute += kernels_.memory(machine_.software.traffic_ratio * ring_sum_bytes(forward));
  // Adds only the part of the ring's message time that computation does not hide.
  time.tensor += std::max(0.0, ring - (time.compute - before));
}

/// Time of the messages in the ring: keys and values of all context ranks, and in the backward pass
/// also their gradients.
Seconds BlockTimeModel::ring_time(bool forward) const {
  const auto elements = static_cast<double>(sizes_.ring_block() * sizes_.context_ranks);
  const auto of_keys = elements * static_cast<double>(sizes_.element);
  const auto of_gradients = elements * static_cast<double>(sizes_.accumulate);
  using architecture::Collective;
  Seconds time = network_.collective(Collective::all_gather, of_keys, Axis::context);
  if (!forward)
    time += network_.collective(Collective::reduce_scatter, of_gradients, Axis::context);
  return time;
}

/// Bytes of the sums over the steps of the ring. With a causal mask, half of the steps after the
/// first use half of the queries. The backward pass also sums the gradients of keys and values, and
/// adds the sums that arrive.
double BlockTimeModel::ring_sum_bytes(bool forward) const {
  const auto steps = static_cast<double>(sizes_.context_ranks);
  const double queries = architecture_.model.causal() ? 0.75 : 1;
  const auto sum = static_cast<double>(sizes_.accumulate);
  const double of_queries =
      2 * queries * static_cast<double>(sizes_.tokens * sizes_.attention()) * sum;
  const double of_keys = 6 * static_cast<double>(sizes_.ring_block()) * sum;
  return steps * (of_queries + (forward ? 0 : of_keys));
}

/// Adds the times of attention whose S × S scores are in memory: two batched products forward and
/// four backward, of the full square; a fused kernel for scale, mask and softmax; and dropout with
/// a mask of one byte per score.
void BlockTimeModel::add_stored_scores(PassTime& time, const Operation& op, bool forward) const {
  const std::int64_t S = sizes_.sequence, K = sizes_.head_size;
  const std::int64_t keys = op.crosses ? sizes_.source.sequence : sizes_.sequence;
  const std::int64_t heads = sizes_.micro * sizes_.heads;
  const auto element = static_cast<double>(sizes_.element);
  const double scores = static_cast<double>(heads) * static_cast<double>(S * keys);
  const double bytes = (scores + static_cast<double>(heads * (S + keys) * K)) * element;
  for (const ProductSizes& product :
       {ProductSizes{S, keys, K, heads}, ProductSizes{S, K, keys, heads}}) {
    const double times = forward ? 1 : 2;
    time.compute += times * kernels_.attention_product(product, bytes);
    time.flops += times * product.flops();
  }
  const double dropout = architecture_.model.dropout > 0 ? 2 * element + 1 : 0;
  time.compute += kernels_.memory(scores * (forward ? 2 : 3) * element);
  if (dropout > 0) time.compute += kernels_.memory(scores * dropout);
}

/// Adds the time of a kernel without matrix products.
void BlockTimeModel::add_kernel(PassTime& time, const Part& part, const OperationCall& call) const {
  const OperationKind kind = part.operations[at(call.operation)].kind;
  time.compute += kernels_.memory(machine_.software.traffic_ratio * bytes_moved(part, call),
                                  rate_of(machine_.kernels, kind));
  if (!rule_of(kind).draws || architecture_.model.dropout == 0) return;
  const architecture::Tensor& out = part.tensors[at(part.operations[at(call.operation)].output)];
  time.compute +=
      kernels_.random(static_cast<double>(rows_of(out.rows) * columns_of(out.columns, sizes_)));
}

PassTime BlockTimeModel::call(const Part& part, const OperationCall& call) const {
  PassTime time;
  const Operation& op = part.operations[at(call.operation)];
  if (is_product(op))
    add_product(time, part, call);
  else if (op.kind == OperationKind::attention)
    add_attention(time, part, call);
  else if (op.kind == OperationKind::expert_rounds)
    add_rounds(time, part, call);
  else if (op.kind != OperationKind::dropout || architecture_.model.dropout > 0)
    add_kernel(time, part, call);
  if (call.accumulates() && !rule_of(op.kind).adds_gradient)
    time.compute += kernels_.memory(3 * bytes_of(part, {gradient_target(part, call), true}),
                                    machine_.kernels.residual);
  time.tensor += message(part, op, call.pass) + exchange(part, op, call.pass);
  return time;
}

/// Time of the message of an operation's pass, without the share tensor_overlap, which computation
/// hides. With keeps_gathered, inputs for a weight's gradient are not sent again.
Seconds BlockTimeModel::message(const Part& part, const Operation& op, Pass pass) const {
  const auto message = message_of(op, pass, part.tensors, sizes_.cuts_tokens);
  if (!message || (sends_copies() && rule_of(op.kind).exchange != nullptr)) return 0;
  const bool kept = machine_.software.keeps_gathered && pass == Pass::backward_weight &&
                    message->tensor == op.input();
  return kept ? 0
              : (1 - machine_.software.tensor_overlap) *
                    network_.collective(message->collective, message_bytes(part, *message),
                                        Axis::tensor);
}

bool BlockTimeModel::sends_copies() const {
  return machine_.software.expert_dispatch == ExpertDispatch::copies;
}

/// Rows that a rank sends to the experts of its tokens, and to itself, or that it receives, if
/// more.
double BlockTimeModel::copies() const {
  const deck::ExpertsConfig& experts = architecture_.model.experts;
  const double sent =
      sends_copies() ? static_cast<double>(sizes_.tokens * experts.active) /
                           static_cast<double>(sizes_.tensor_ranks)
                     : static_cast<double>(exchanged_rows({}, architecture_.model, sizes_, true));
  return sent * machine_.software.expert_imbalance;
}

/// Time of the exchange of a pass among the ranks that divide the experts.
Seconds BlockTimeModel::exchange(const Part& part, const Operation& op, Pass pass) const {
  const auto rule = rule_of(op.kind).exchange;
  if (rule == nullptr || !has_pass(op, pass)) return 0;
  const auto rows = rule(op, pass);
  if (!rows) return 0;
  const architecture::Tensor& t = part.tensors[at(rows->columns)];
  const double bytes =
      copies() *
      static_cast<double>(columns_of(t.columns, sizes_) *
                          architecture::bytes_of(t.numbers, sizes_.element, sizes_.accumulate));
  if (!sends_copies()) return network_.among_experts(bytes);
  if (op.kind != OperationKind::expert_product || pass == Pass::backward_weight) return 0;
  if (!architecture_.model.experts.split) return network_.among_expert_ranks(bytes);
  using architecture::Collective;
  return network_.among_experts(bytes) +
         network_.collective(rows->returns ? Collective::reduce_scatter : Collective::all_gather,
                             bytes * static_cast<double>(sizes_.tensor_ranks), Axis::tensor);
}

/// Launches of a call. Unless one kernel computes the products of all experts, each has its own.
std::int64_t BlockTimeModel::launches(const Part& part, const OperationCall& call) const {
  const Operation& op = part.operations[at(call.operation)];
  return machine_.software.grouped_products ? 1 : matrices_of(part, op, sizes_);
}

/// Times of some calls of a layer. If the host needs longer to start these calls than the calls
/// take, the difference is waiting time of the device (PassTime::host).
PassTime BlockTimeModel::calls(const Part& layer, const std::vector<OperationCall>& calls) const {
  PassTime time;
  std::int64_t started = 0;
  for (const OperationCall& one : calls) {
    time += call(layer, one);
    started += launches(layer, one);
  }
  const Seconds host = machine_.software.host_per_layer * static_cast<double>(started) /
                       static_cast<double>(architecture::forward_calls(layer).size());
  time.host = std::max(0.0, host - time.total());
  return time;
}

/// Times of a layer. With recomputes_unread, a layer that keeps only its input repeats its whole
/// forward pass, instead of the calls that gradients need.
BlockTime BlockTimeModel::layer(const Part& layer,
                                const architecture::BlockProgram& program) const {
  return BlockTimeModel(architecture_, sizes_.of(layer.stream), kernels_, network_, machine_)
      .layer_of_stream(layer, program);
}

BlockTime BlockTimeModel::layer_of_stream(const Part& layer,
                                          const architecture::BlockProgram& program) const {
  const bool all_again =
      machine_.software.recomputes_unread && std::ranges::count(program.kept, true) == 1;
  const auto passes = [&](const architecture::PhaseProgram& phase, bool first_half) {
    std::vector<OperationCall> run;
    if (all_again && first_half && !phase.calls.empty()) run = program.forward.calls;
    for (const OperationCall& one : phase.calls)
      if (!(all_again && one.again)) run.push_back(one);
    return calls(layer, run);
  };
  return {calls(layer, program.forward.calls), passes(program.backward, true),
          passes(program.backward_input, true), passes(program.backward_weight, false)};
}

/// Time of the kernels of the loss. The statistics read the logits. The gradient reads the logits
/// and is written, in the forward pass or after the logits are recomputed.
Seconds BlockTimeModel::loss_time(Pass pass, bool logits_again) const {
  const auto read = static_cast<double>(sizes_.accumulate);
  const double all = 2 * read + static_cast<double>(sizes_.element);
  const double here = !logits_again ? all : pass == Pass::forward ? read : all - read;
  const double given = machine_.software.logit_traffic;
  const auto logits = static_cast<double>(sizes_.targets) * static_cast<double>(sizes_.vocabulary);
  return kernels_.memory(logits * (given > 0 ? given / all * here : here), machine_.kernels.loss);
}

/// Times of all operations of the embedding or the head in one pass.
PassTime BlockTimeModel::end(const Part& part, Pass pass, bool logits_again) const {
  PassTime time;
  for (std::size_t i = 0; i < part.operations.size(); ++i) {
    const Operation& op = part.operations[i];
    if (!has_pass(op, pass)) continue;
    if (op.kind == OperationKind::embedding && pass == Pass::backward_weight) {
      const double rows = bytes_of(part, {op.output, true});  // read, and added to the table
      time.compute += kernels_.memory(rows * (1 + 2.0 * static_cast<double>(sizes_.accumulate) /
                                                      static_cast<double>(sizes_.element)),
                                      machine_.kernels.embedding);
      time.tensor += message(part, op, pass);
      continue;
    }
    const bool of_logits =
        op.kind == OperationKind::cross_entropy && op.cut != architecture::Cut::none;
    const bool also_here = logits_again && of_logits && pass == Pass::backward_input;
    if (op.kind == OperationKind::cross_entropy && pass != Pass::forward && !also_here) continue;
    if (of_logits) {
      time.compute += loss_time(pass, logits_again);
      time.tensor += message(part, op, pass);  // statistics in the forward pass
      continue;
    }
    if (logits_again && op.kind == OperationKind::logits && pass == Pass::backward_input)
      add_product(time, part, {static_cast<int>(i), Pass::forward});
    time += call(part, {static_cast<int>(i), pass});
  }
  return time;
}

BlockTime BlockTimeModel::embedding() const {
  const Part& part = architecture_.embedding();
  if (architecture_.first_trained > 0) return {end(part, Pass::forward), {}, {}, {}};
  const PassTime input = end(part, Pass::backward_input);
  const PassTime weight = end(part, Pass::backward_weight);
  BlockTime time{end(part, Pass::forward), input, input, weight};
  time.backward += weight;
  return time;
}

BlockTime BlockTimeModel::shared_logits(architecture::HeadGradient gradient) const {
  const Part part = describe_shared_logits(architecture_.model, gradient);
  const bool again = computes_again(gradient);
  BlockTime time;
  add_product(time.forward, part, {0, Pass::forward});
  add_product(time.forward, part, {0, Pass::backward_input});
  time.forward.compute += loss_time(Pass::forward, false);
  if (again) add_product(time.backward_weight, part, {0, Pass::forward});
  add_product(time.backward_weight, part, {0, Pass::backward_weight});
  time.backward_weight.compute += loss_time(Pass::backward_weight, true);
  return time;
}

BlockTime BlockTimeModel::head(architecture::HeadGradient gradient) const {
  using architecture::HeadGradient;
  const Part part = describe_head(architecture_.model, gradient);
  const bool again = gradient == HeadGradient::again;
  const auto in = [&](Pass pass) { return end(part, pass, again); };
  const auto wait_for_host = [&](PassTime& pass, int passes) {
    pass.host = std::max(0.0, passes * machine_.software.host_per_layer - pass.total());
  };
  BlockTime time{in(Pass::forward), in(Pass::backward_input), in(Pass::backward_input),
                 in(Pass::backward_weight)};
  time.backward += time.backward_weight;
  if (gradient != HeadGradient::with_losses) {
    wait_for_host(time.forward, 1);
    wait_for_host(time.backward, again ? 3 : 2);
    return time;
  }
  time.forward += time.backward;
  wait_for_host(time.forward, 3);
  return {time.forward, {}, {}, {}};
}

using architecture::Operation;
using architecture::OperationCall;
using architecture::Pass;

/// Adds the times of the products with A and B; each product reads and writes the activations once.
/// backward_weight recomputes x Aᵀ and dy B.
void BlockTimeModel::add_adapter(PassTime& time, const Part& part,
                                 const OperationCall& call) const {
  const Operation& op = part.operations[static_cast<std::size_t>(call.operation)];
  const bool weight = call.pass == Pass::backward_weight;
  if (op.adapter.empty() || (weight && !op.trains_adapter())) return;
  const auto columns_of = [&](int tensor) {
    return architecture::columns_of(part.tensors[static_cast<std::size_t>(tensor)].columns, sizes_);
  };
  const std::int64_t in = columns_of(op.input());
  const std::int64_t rank = architecture_.model.adapter.rank;
  const std::int64_t T = product_rows(part, op, sizes_);
  const auto add = [&](std::int64_t columns, std::int64_t depth, double times) {
    const ProductSizes sizes{T, columns, depth};
    const auto bytes =
        static_cast<double>((T * (columns + depth) + columns * depth) * sizes_.element);
    time.compute += times * kernels_.product(sizes, bytes);
    time.flops += times * sizes.flops();
  };
  const double times = weight ? 2 : 1;
  add(architecture::adapter_rows(op, rank), in, times);
  for (const architecture::AdapterPart& each : op.adapter)
    add(architecture::adapter_columns(part, op, each, sizes_).extent, rank, times);
  if (architecture_.model.adapter.dropout > 0)
    time.compute += kernels_.random(static_cast<double>(T * in));
  if (op.adapter.front().m == 0) return;
  // The scales multiply the outputs or their gradient. Gradients of magnitudes need the product
  // again.
  const std::int64_t out = columns_of(op.output);
  const double passes = weight ? 3 : 1;
  time.compute += passes * kernels_.memory(static_cast<double>(2 * T * out * sizes_.element),
                                           machine_.kernels.residual);
  if (weight) add(out, in, 1);
}

}  // namespace trireme::plan
