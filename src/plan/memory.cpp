// Bytes of each arena of a training rank, from the lists of operations and the program's needs.
// The same sizes as the allocations of model/, optim/ and train/; tests compare them.
#include <trireme/architecture/ends.hpp>
#include <trireme/architecture/placement.hpp>
#include <trireme/architecture/saved.hpp>
#include <trireme/architecture/state.hpp>
#include <trireme/base/attention_memory.hpp>
#include <trireme/base/matmul_memory.hpp>
#include <trireme/base/narrow.hpp>
#include <trireme/base/reduction.hpp>
#include <trireme/base/text.hpp>
#include <trireme/plan/choices.hpp>
#include <trireme/plan/local_sizes.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/plan/recompute.hpp>
#include <trireme/plan/reduction_scratch.hpp>

#include <algorithm>

namespace trireme::plan {
namespace {

constexpr Bytes line = 64;  // alignment of arrays in an arena
Bytes up(Bytes bytes) {
  return (bytes + line - 1) / line * line;
}

/// Bytes of the activations beside the layers', in terms of one rank's sizes.
class Activations {
 public:
  Activations(const LocalSizes& sizes, const deck::Config& config,
              const architecture::Architecture& architecture, const Machine& machine)
      : s_(sizes),
        a_(architecture),
        cudnn_gradient_(has_cudnn_gradient(config.precision, machine)) {}

  Bytes residual() const { return up(s_.rows * s_.hidden * s_.element); }    // [R, D]
  Bytes gathered() const { return up(s_.tokens * s_.hidden * s_.element); }  // [T, D]
  /// [B, h, S], and of narrow numbers what tensor cores take.
  Bytes attention_work() const {
    if (!s_.narrow()) return up(s_.micro * s_.heads * s_.sequence * s_.accumulate);
    const AttentionSizes sizes{s_.micro, s_.sequence, s_.heads, s_.key_value_heads, s_.head_size};
    return up(4 * narrow_attention_workspace(sizes, cudnn_gradient_));
  }

  /// Everything that one slot keeps of a stage beside its layers.
  Bytes slot(std::int64_t layers, bool embedding, bool head, bool splits_backward) const {
    Bytes bytes = layers == 0 && !head ? residual() : 0;  // x
    for (const Home home : {Home::batch, Home::slot, Home::split}) {
      if (home == Home::split && !splits_backward) continue;
      if (embedding) bytes += at(home, a_.embedding);
      if (head) bytes += at(home, a_.head);
    }
    return bytes;
  }
  /// What one slot keeps of a layer. Other programs keep more: their kernels are less fused, and
  /// they may keep inputs of products for all tokens.
  Bytes layer(const architecture::LayerProgram& program, const Machine::Software& software) const {
    Bytes gathered = 0;
    for (const architecture::Operation& op : a_.layer.operations)
      if (op.kind == architecture::OperationKind::linear && op.cut == architecture::Cut::outputs)
        gathered += (s_.tokens - s_.rows) * s_.hidden * s_.element;
    const auto kept = static_cast<double>(program.kept_bytes + program.work_bytes);
    return static_cast<Bytes>(software.activation_ratio * kept) +
           (software.keeps_gathered ? gathered : 0);
  }
  Bytes head_scratch() const { return at(Home::scratch, a_.head); }

 private:
  using Home = architecture::Home;
  Bytes at(Home home, const architecture::LayerDescription& part) const {
    return architecture::bytes_at(home, part, s_, s_.element, s_.accumulate);
  }

  const LocalSizes& s_;
  const architecture::Architecture& a_;
  bool cudnn_gradient_;
};

Bytes scratch(const LocalSizes& sizes, const Activations& a, const architecture::Shard& shard,
              const architecture::LayerProgram& layer) {
  Bytes bytes = line;  // the loss
  if (shard.has_head()) bytes += a.head_scratch();
  if (sizes.cuts_tokens) bytes += a.gathered();
  bytes += a.attention_work();
  bytes += layer.transient_bytes;
  return bytes + 2 * a.residual();  // output and dx
}

/// Buckets of gradients, as a run cuts them.
std::vector<architecture::Bucket> buckets_of(const deck::Config& config,
                                             const architecture::Architecture& architecture,
                                             const architecture::Shard& shard,
                                             const std::vector<architecture::LocalArray>& arrays,
                                             const architecture::Placement& placement,
                                             const Machine& machine) {
  const LocalSizes sizes = local_sizes(config, shard, machine);
  return architecture::gradient_buckets(
      architecture, shard, arrays, placement,
      std::max<std::int64_t>(1, config.parallel.bucket_bytes / sizes.accumulate),
      static_cast<int>(config.parallel.data));
}

bool shares_state(const deck::Config& config) {
  return config.parallel.distributed_optimizer && config.parallel.data > 1;
}

/// Receive buffers that are posted at the same time, and the send buffers of each channel: outputs
/// of all stages but the last, gradients of all but the first.
std::int64_t transfer_buffers(const architecture::Shard& shard, const schedule::Needs& needs) {
  std::int64_t channels = 0;
  for (const Stage stage : shard.stages)
    channels += (stage < shard.last_stage() ? 1 : 0) + (stage > 0 ? 1 : 0);
  return needs.received_activations + needs.received_gradients + channels * needs.send_buffers;
}

struct SavedActivations {
  Bytes device = 0;
  Bytes host = 0;
};

/// Bytes of all slots, each as large as the largest of the rank's stages needs. With offloaded
/// layers, the device has some windows in which the layers of all slots take turns.
SavedActivations saved_activations(const deck::Config& config, const Activations& activations,
                                   const architecture::Shard& shard, const schedule::Needs& needs,
                                   const architecture::LayerProgram& program,
                                   const Machine& machine) {
  const Bytes layer = activations.layer(program, machine.software);
  const bool away = offloads_activations(config.parallel, machine);
  Bytes slot = 0;
  std::int64_t most_layers = 0;
  for (const Stage stage : shard.stages) {
    const std::int64_t layers = shard.stage_layers[static_cast<std::size_t>(stage)].extent;
    most_layers = std::max(most_layers, layers);
    slot = std::max(slot, (away ? 0 : layers * layer) +
                              activations.slot(layers, stage == 0, stage == shard.last_stage(),
                                               needs.split_backward));
  }
  if (!away) return {needs.slots * slot, 0};
  const std::int64_t all = needs.slots * most_layers;
  return {needs.slots * slot + std::min<std::int64_t>(offload_windows, all) * layer, all * layer};
}

/// Adds the memory that kernels need besides their operands, as kernels/handle.cpp allocates it.
void add_products(std::vector<MemoryRow>& rows, bool narrow, const Machine& machine) {
  if (const Bytes bytes = machine.product_workspace(); bytes > 0)
    rows.push_back({"kernel workspace", bytes});
  // With cuBLASLt too: for the products that it might not have.
  if (narrow) rows.push_back({"widened operands", widened_workspace_bytes});
}

}  // namespace

architecture::LayerProgram layer_program(const deck::Config& config,
                                         const architecture::Architecture& architecture,
                                         const architecture::Shard& shard, bool split_backward,
                                         const Machine& machine) {
  const LocalSizes sizes = local_sizes(config, shard, machine);
  return architecture::lower(architecture.layer, sizes,
                             {kept_tensors(config.parallel, architecture.layer), true,
                              split_backward, sizes.element, sizes.accumulate});
}

Bytes activation_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                       const architecture::Shard& shard, const schedule::Needs& needs,
                       const Machine& machine) {
  const LocalSizes sizes = local_sizes(config, shard, machine);
  const Activations activations(sizes, config, architecture, machine);
  const auto layer = layer_program(config, architecture, shard, needs.split_backward, machine);
  return saved_activations(config, activations, shard, needs, layer, machine).device +
         scratch(sizes, activations, shard, layer);
}

std::vector<MemoryRow> training_memory(const deck::Config& config,
                                       const architecture::Architecture& architecture,
                                       const architecture::Shard& shard,
                                       const schedule::Needs& needs, const Machine& machine) {
  const LocalSizes sizes = local_sizes(config, shard, machine);
  const auto arrays = architecture::local_arrays(architecture, shard);
  const architecture::Placement elements = architecture::place(architecture, shard, arrays);
  const auto buckets = buckets_of(config, architecture, shard, arrays, elements, machine);
  const std::int64_t state =
      shares_state(config) ? architecture::most_state_elements(
                                 arrays, elements, buckets, static_cast<int>(config.parallel.data))
                           : elements.elements;
  const auto state_arrays =
      static_cast<std::int64_t>(architecture::state_arrays(config.optimizer).size());
  const Activations activations(sizes, config, architecture, machine);
  const architecture::LayerProgram layer =
      layer_program(config, architecture, shard, needs.split_backward, machine);
  const SavedActivations saved =
      saved_activations(config, activations, shard, needs, layer, machine);
  const std::int64_t masters = sizes.narrow() ? 1 : 0;
  const MemoryRow optimizer{"optimizer state",
                            (state_arrays + masters) * up(state * sizes.accumulate)};
  const bool away = offloads_optimizer(config.parallel, machine);
  const Machine::Software& software = machine.software;
  const Bytes gradient = software.gradient_bytes > 0 ? software.gradient_bytes : sizes.accumulate;
  std::vector<MemoryRow> rows{{"weights", elements.elements * sizes.element},
                              {"gradients", elements.gradient_elements * gradient}};
  if (!away) rows.push_back(optimizer);
  rows.push_back({"saved activations", saved.device});
  if (software.logit_bytes > 0 && shard.has_head())
    rows.push_back(
        {"logits", static_cast<Bytes>(software.logit_bytes * static_cast<double>(sizes.targets) *
                                      static_cast<double>(sizes.vocabulary))});
  rows.push_back({"transfer buffers",
                  transfer_buffers(shard, needs) * up(sizes.slice * sizes.hidden * sizes.element)});
  rows.push_back({"scratch", scratch(sizes, activations, shard, layer)});
  add_products(rows, sizes.narrow(), machine);
  const Bytes reductions = reduction_scratch(config, architecture, shard, buckets, machine).total();
  if (reductions > 0) rows.push_back({"reductions", reductions});
  if (software.reserve > 0) rows.push_back({"driver and libraries", software.reserve});
  if (away) rows.push_back({"optimizer state (host)", optimizer.bytes, true});
  if (saved.host > 0) rows.push_back({"saved activations (host)", saved.host, true});
  return rows;
}

Bytes checkpoint_copy_bytes(const deck::Config& config,
                            const architecture::Architecture& architecture,
                            const architecture::Shard& shard, const Machine& machine) {
  const std::int64_t every = config.checkpoint.every;
  if (!config.checkpoint.asynchronous || every == 0 || every >= config.run.steps) return 0;
  const LocalSizes sizes = local_sizes(config, shard, machine);
  const auto arrays = architecture::local_arrays(architecture, shard);
  // For two-byte weights the master weights are saved, like the state.
  const std::int64_t masters = sizes.narrow() ? 1 : 0;
  const auto state_arrays =
      static_cast<std::int64_t>(architecture::state_arrays(config.optimizer).size()) + masters;
  const auto replicas = static_cast<int>(config.parallel.data);
  const auto placement = architecture::place(architecture, shard, arrays);
  const auto buckets = buckets_of(config, architecture, shard, arrays, placement, machine);
  Bytes most = 0;
  for (int replica = 0; replica < replicas; ++replica) {
    Bytes bytes = 0;
    for (const auto& part :
         architecture::saved_parts(architecture, shard, arrays, replicas, replica)) {
      if (!sizes.narrow()) bytes += architecture::saved_bytes(part.elements() * sizes.element);
      if (!shares_state(config))
        bytes += state_arrays * architecture::saved_bytes(part.elements() * sizes.accumulate);
    }
    if (shares_state(config))
      for (const auto& block :
           architecture::owned_state(arrays, placement, buckets, replica).blocks)
        if (block.counted)
          bytes += state_arrays * architecture::saved_bytes(block.elements() * sizes.accumulate);
    most = std::max(most, bytes);
  }
  return most;
}

Bytes reduction_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                      const architecture::Shard& shard, const Machine& machine) {
  const std::int64_t replicas = config.parallel.data;
  if (replicas == 1 || transport(config.parallel, machine) == schedule::Transport::ordered_groups)
    return 0;
  const auto arrays = architecture::local_arrays(architecture, shard);
  const auto placement = architecture::place(architecture, shard, arrays);
  const Bytes element = local_sizes(config, shard, machine).accumulate;
  Bytes bytes = 0;
  for (const auto& bucket : buckets_of(config, architecture, shard, arrays, placement, machine)) {
    const Bytes part = ((bucket.end - bucket.begin) * element + replicas - 1) / replicas;
    bytes += std::min(part, reduction_segment_bytes) * (replicas - 1);
  }
  return bytes;
}

Bytes process_bytes(const deck::Config& config) {
  constexpr Bytes program = Bytes{43} << 20;
  constexpr Bytes packed_blocks = Bytes{8} << 20;  // of oneDNN's products
  constexpr Bytes watchdog = Bytes{32} << 20;
  constexpr Bytes cells = Bytes{4} << 20;  // of MPI in shared memory, which sums of gradients fill
  return program + (config.precision.compute == DType::fp64 ? 0 : packed_blocks) +
         (config.run.watchdog > 0 ? watchdog : 0) + (config.parallel.data > 1 ? cells : 0);
}

Bytes total(const std::vector<MemoryRow>& rows) {
  Bytes sum = 0;
  for (const MemoryRow& row : rows) sum += row.bytes;
  return sum;
}

Bytes device_total(const std::vector<MemoryRow>& rows) {
  Bytes sum = 0;
  for (const MemoryRow& row : rows) sum += row.on_host ? 0 : row.bytes;
  return sum;
}

std::string table(const std::vector<MemoryRow>& rows, Bytes checkpoint_copy) {
  std::string out;
  const auto add = [&out](const std::string& what, Bytes bytes) {
    const std::string amount = human_bytes(bytes);
    out += "  " + what + std::string(what.size() < 26 ? 26 - what.size() : 1, ' ');
    out += std::string(amount.size() < 10 ? 10 - amount.size() : 0, ' ') + amount + "\n";
  };
  for (const MemoryRow& row : rows)
    if (!row.on_host) add(row.what, row.bytes);
  add("sum", device_total(rows));
  for (const MemoryRow& row : rows)
    if (row.on_host) add(row.what, row.bytes);
  if (checkpoint_copy > 0) add("checkpoint copy (host)", checkpoint_copy);
  out.pop_back();
  return out;
}

}  // namespace trireme::plan
