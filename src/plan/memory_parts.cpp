// Activation bytes of one micro-batch, and the memory of a rank, computed from these bytes, the
// sizes of the rank's arenas and the layers of its stages.
#include <trireme/plan/memory_parts.hpp>

#include <trireme/architecture/adapter.hpp>
#include <trireme/architecture/ends.hpp>
#include <trireme/architecture/fp8.hpp>
#include <trireme/architecture/objective.hpp>
#include <trireme/architecture/state.hpp>
#include <trireme/base/alignment.hpp>
#include <trireme/base/kernel_memory.hpp>
#include <trireme/base/narrow.hpp>
#include <trireme/deck/enums.hpp>
#include <trireme/plan/choices.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/plan/reduction_scratch.hpp>
#include <trireme/plan/typed_sizes.hpp>

#include <algorithm>

namespace trireme::plan {
namespace {

using architecture::Home;

/// Bytes of attention's work memory: with a context axis, the blocks of the ring; otherwise values
/// [B, H, S], or for two-byte types the workspace of their kernels, and with biases of relative
/// positions also partial sums of their gradients.
Bytes attention_work(const TypedSizes& main, const architecture::Architecture& architecture,
                     const deck::Config& config, const Machine& machine) {
  if (main.context_ranks > 1)
    return aligned(main.ring_values() * main.element) +
           aligned(main.ring_sums(true, main.narrow()) * main.accumulate);
  std::int64_t most = 0;
  for (const architecture::BlockDescription& layer : architecture.layer_kinds()) {
    const TypedSizes s = main.of(layer.stream);
    const AttentionSizes sizes{s.micro, s.sequence, s.heads, s.key_value_heads, s.head_size};
    for (const architecture::Operation& op : layer.operations) {
      if (op.kind != architecture::OperationKind::attention) continue;
      const bool biased = s.buckets > 0 && !op.crosses;
      const std::int64_t work =
          s.narrow()
              ? narrow_attention_workspace(sizes, has_cudnn_gradient(config.precision, machine))
              : s.tokens * s.heads;
      most = std::max(most, work + (biased ? relative_bias_workspace(sizes, s.buckets) : 0));
    }
  }
  return aligned(most * main.accumulate);
}

/// Bytes of a layer's scores if attention stores them and they are kept: the result of softmax, and
/// with dropout a mask of one byte and dropout's result.
Bytes score_bytes(const TypedSizes& s, const deck::ModelConfig& model,
                  const architecture::BlockDescription& layer,
                  const architecture::BlockProgram& program) {
  Bytes bytes = 0;
  const Bytes each = model.dropout > 0 ? 2 * s.element + 1 : s.element;
  for (const architecture::Operation& op : layer.operations)
    if (op.kind == architecture::OperationKind::attention &&
        program.kept[static_cast<std::size_t>(op.saved.front())])
      bytes += each * s.tokens * s.heads * (op.crosses ? s.source.sequence : s.sequence);
  return bytes;
}

/// Bytes of a layer in one slot, for the training program that `software` describes.
Bytes layer_bytes(const TypedSizes& main, const deck::ModelConfig& model,
                  const architecture::BlockDescription& layer,
                  const architecture::BlockProgram& program, const Machine::Software& software) {
  const TypedSizes s = main.of(layer.stream);
  Bytes gathered = 0;
  for (const architecture::Operation& op : layer.operations)
    if (op.kind == architecture::OperationKind::linear && op.cut == architecture::Cut::outputs)
      gathered += (s.tokens - s.rows) *
                  columns_of(layer.tensors[architecture::at(op.input())].columns, s) * s.element;
  const auto kept = static_cast<double>(program.kept_bytes + program.work_bytes);
  return static_cast<Bytes>(software.activation_ratio * kept) +
         (software.keeps_gathered ? gathered : 0) +
         (software.fused_attention ? 0 : score_bytes(s, model, layer, program));
}

}  // namespace

ActivationSizes activation_parts(const deck::Config& config, const architecture::Architecture& a,
                                 const architecture::Shard& shard, bool split_backward,
                                 const Machine& machine) {
  const TypedSizes s = typed_sizes(config, shard, machine);
  const auto at = [&](Home home, const architecture::BlockDescription& part) {
    return architecture::bytes_at(home, part, s, s.element, s.accumulate);
  };
  const auto slot = [&](const architecture::BlockDescription& part) {
    return at(Home::batch, part) + at(Home::slot, part) +
           (split_backward ? at(Home::split, part) : 0);
  };
  ActivationSizes parts;
  const Bytes residual = aligned(s.rows * s.hidden * s.element);  // [R, D]
  const std::int64_t tokens = std::max(s.tokens, s.source.tokens);
  std::int64_t gathered = std::max(s.hidden, s.source.hidden);  // columns
  Bytes transient = at(Home::scratch, a.embedding()), codes = 0;
  architecture::AdapterScratch adapters;
  const auto programs = layer_programs(config, a, shard, split_backward, machine);
  for (const architecture::BlockProgram& program : programs) {
    const architecture::BlockDescription& layer = a.layer_kinds()[parts.layers.size()];
    BlockBytes& bytes = parts.layers.emplace_back();
    bytes.kept = layer_bytes(s, a.model, layer, program, machine.software);
    bytes.forward = program.kept_bytes;
    for (const architecture::ScaledProduct& product : architecture::scaled_products(layer, s))
      bytes.scales += 2 * aligned(product.outputs * s.accumulate);
    transient = std::max(transient, program.transient_bytes);
    gathered = std::max(gathered, architecture::gathered_columns(layer, s));
    codes = std::max(codes, architecture::fp8_code_bytes(layer, s));
    adapters.include(architecture::adapter_scratch(layer, s, a.model.adapter));
  }
  parts.input = residual;
  const architecture::HeadGradient gradient = architecture::head_gradient(config.parallel);
  parts.embedding = shares_logits(gradient) ? split_backward ? at(Home::split, a.embedding()) : 0
                                            : slot(a.embedding());
  const architecture::BlockDescription head = describe_head(a.model, gradient);
  parts.head = slot(head);
  const architecture::TrainingObjective objective = architecture::objective_of(a.model);
  for (const architecture::BatchField& field : objective.fields)
    if (field.at_layers) parts.of_slot += aligned(architecture::rows_of(field.rows, s) * 4);
  parts.of_slot += aligned(s.value_bytes());
  if (split_backward) parts.embedding += aligned(s.value_bytes());
  parts.handed_over = aligned(s.boundary_bytes(s.rows, s.source.rows));
  parts.scratch = aligned(objective.loss_sums() * 8) +
                  (s.cuts_tokens ? aligned(tokens * gathered * s.element) : 0) +
                  attention_work(s, a, config, machine) + transient +
                  2 * residual +             // output and dx
                  aligned(s.value_bytes());  // gradients of values
  parts.scratch += 2 * aligned(tokens * adapters.rows * s.element) +
                   aligned(tokens * adapters.columns * s.element) +
                   aligned(adapters.scaled * s.element);
  if (config.precision.products == Products::fp8) parts.scratch += aligned(codes);
  parts.scratch += history_bytes(config.run, objective.term_sums());
  if (!config.run.prompts.empty()) parts.scratch += aligned(s.targets * 2 * 8);  // scores
  parts.head_scratch = at(Home::scratch, head);
  parts.logits = static_cast<Bytes>(machine.software.logit_bytes * static_cast<double>(s.targets) *
                                    static_cast<double>(s.vocabulary));
  parts.message = aligned(s.boundary_bytes(s.slice, s.source.slice));
  if (shares_logits(gradient)) {
    const architecture::BlockDescription part = describe_shared_logits(a.model, gradient);
    parts.logits_slot = at(Home::batch, part) + at(Home::slot, part);
    parts.logits_scratch = at(Home::scratch, part);
    // Buffers of the look-up, the output, the output's gradient and the look-up's gradient, and of
    // the statistics.
    parts.logits_messages = 4 * schedule::shared_buffers * parts.message +
                            aligned(config.parallel.pipeline * s.targets * 3 * 8);
  }
  parts.tensor_sum = activation_scratch(config, s, machine);
  return parts;
}

TrainingSizes::TrainingSizes(const deck::Config& config,
                             const architecture::Architecture& architecture, const Machine& machine)
    : architecture_(&architecture),
      element_(size_of(config.precision.compute)),
      accumulate_(element_ == 8 ? 8 : 4),
      gradient_(machine.software.gradient_bytes > 0 ? machine.software.gradient_bytes
                                                    : accumulate_),
      moment_(moment_bytes(config)),
      states_(architecture::state_counts(config.optimizer)),
      workspace_(machine.product_workspace()),
      fp8_(config.precision.products == Products::fp8
               ? architecture::fp8_scaling_bytes(architecture::fp8_tensors(architecture),
                                                 config.precision.fp8_history)
               : 0),
      audits_(config.run.audit_every > 0 ? audit_bytes : 0),
      reserve_(machine.software.reserve),
      optimizer_away_(offloads_optimizer(config.parallel, machine)),
      activations_away_(offloads_activations(config.parallel, machine)),
      two_versions_(config.parallel.overlaps_steps()) {}

Bytes TrainingSizes::of_layers(const ActivationSizes& a, const architecture::Shard& shard,
                               Stage stage, Bytes BlockBytes::*member) const {
  const auto counts =
      architecture_->count_kinds(shard.stage_layers[static_cast<std::size_t>(stage)]);
  Bytes sum = 0;
  for (std::size_t k = 0; k < counts.size(); ++k) sum += counts[k] * (a.layers[k].*member);
  return sum;
}

/// Layers without a backward pass share the memory of the largest.
Bytes TrainingSizes::kept(const ActivationSizes& a, const architecture::Shard& shard,
                          Stage stage) const {
  const layout::Slice& layers = shard.stage_layers[static_cast<std::size_t>(stage)];
  const std::int64_t first = architecture_->first_with_backward(layers);
  const auto forward = architecture_->count_kinds({layers.offset, first - layers.offset});
  const auto both = architecture_->count_kinds({first, layers.end() - first});
  Bytes sum = 0, most = 0;
  for (std::size_t k = 0; k < both.size(); ++k) {
    sum += both[k] * a.layers[k].kept;
    if (forward[k] > 0) most = std::max(most, a.layers[k].forward);
  }
  return sum + most;
}

/// Sets the bytes of all slots. With offloaded layers, the device has only some windows, which the
/// layers of all slots use in turn.
void TrainingSizes::save(TrainingBytes& bytes, const ActivationSizes& a,
                         const architecture::Shard& shard, const schedule::Needs& needs) const {
  Bytes slot = 0;
  std::int64_t most_layers = 0;
  for (const Stage stage : shard.stages) {
    const bool head = stage == shard.last_stage();
    const std::int64_t layers = shard.stage_layers[static_cast<std::size_t>(stage)].extent;
    most_layers = std::max(most_layers, layers);
    const bool of_encoder =
        layers > 0 &&
        architecture_->model.in_encoder(shard.stage_layers[static_cast<std::size_t>(stage)].offset);
    slot = std::max(slot, (activations_away_ ? 0 : kept(a, shard, stage)) +
                              ((layers == 0 && !head) || of_encoder ? a.input : 0) +
                              (stage == 0 ? a.embedding : 0) + (head ? a.head : 0) + a.of_slot);
  }
  bytes.saved = needs.slots * slot + needs.logits_slots * a.logits_slot;
  if (!activations_away_) return;
  const std::int64_t all = needs.slots * most_layers;
  const Bytes window = std::ranges::max(a.layers, {}, &BlockBytes::kept).kept;
  bytes.saved += std::min<std::int64_t>(offload_windows, all) * window;
  bytes.saved_on_host = all * window;
}

Bytes TrainingSizes::activations(const ActivationSizes& a, const architecture::Shard& shard,
                                 const schedule::Needs& needs) const {
  TrainingBytes bytes;
  save(bytes, a, shard, needs);
  return bytes.saved + a.scratch + a.logits_scratch + (shard.has_head() ? a.head_scratch : 0);
}

Bytes TrainingSizes::optimizer(const ArenaSizes& arenas) const {
  return (narrow() ? aligned(arenas.state_elements * accumulate_) : 0) +
         states_.all * aligned(arenas.state_elements * moment_) +
         states_.others * aligned(arenas.other_elements * moment_) +
         aligned(arenas.rows * accumulate_) + aligned(arenas.columns * accumulate_);
}

/// Transfer buffers are the receive buffers that are posted at the same time, the send buffers of
/// each channel to another rank, the messages to the same rank, and the messages of a shared
/// vocabulary.
TrainingBytes TrainingSizes::bytes(const ActivationSizes& a, const ArenaSizes& arenas,
                                   const architecture::Shard& shard,
                                   const schedule::Needs& needs) const {
  TrainingBytes bytes;
  bytes.weights = arenas.elements * element_;
  bytes.gradients = arenas.gradient_elements * gradient_;
  if (two_versions_) {
    bytes.second_weights = bytes.weights;
    bytes.second_gradients = bytes.gradients;
  }
  bytes.optimizer = optimizer(arenas);
  bytes.muon = arenas.muon;
  bytes.means = arenas.means;
  bytes.local = arenas.local + (optimizer_away_ ? 0 : arenas.local_state);
  bytes.local_on_host = optimizer_away_ ? arenas.local_state : 0;
  bytes.optimizer_on_host = optimizer_away_;
  save(bytes, a, shard, needs);
  std::int64_t channels = 0;
  for (const Stage stage : shard.stages)
    channels += (stage < shard.last_stage() && !shard.holds(stage + 1) ? 1 : 0) +
                (stage > 0 && !shard.holds(stage - 1) ? 1 : 0);
  bytes.transfer =
      (needs.received_activations + needs.received_gradients + channels * needs.send_buffers) *
          a.message +
      needs.handed_over * a.handed_over + a.logits_messages;
  const bool head = shard.has_head();
  bytes.logits = head ? a.logits : 0;
  Bytes scales = 0;
  for (const Stage stage : shard.stages) scales += of_layers(a, shard, stage, &BlockBytes::scales);
  bytes.scratch =
      a.scratch + a.logits_scratch + (head ? a.head_scratch : 0) + (two_versions_ ? 2 : 1) * scales;
  bytes.workspace = workspace_;
  // Also counted with cuBLASLt, which may not support all products.
  bytes.widened = narrow() ? widened_workspace_bytes : 0;
  bytes.fp8 = fp8_;
  bytes.reductions = arenas.reductions + std::max(a.tensor_sum, arenas.tensor_sum);
  bytes.audits = audits_;
  bytes.reserve = reserve_;
  return bytes;
}

}  // namespace trireme::plan
