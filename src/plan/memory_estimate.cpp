// Memory of a layout from parts that many layouts share: the elements of a layer, of the embedding
// and of the head by tensor ranks, activations by micro-batch, and layers by stage.
#include <trireme/plan/memory_estimate.hpp>

#include <trireme/architecture/arrangement.hpp>
#include <trireme/architecture/hidden_matrices.hpp>
#include <trireme/architecture/placement.hpp>
#include <trireme/base/reduction.hpp>
#include <trireme/plan/choices.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/plan/muon.hpp>
#include <trireme/plan/ranks.hpp>

#include <algorithm>
#include <set>

namespace trireme::plan {
namespace {

using architecture::Shard;

/// A shard of four stages: the embedding, one layer, the other layers, and the head.
Shard parted(const architecture::Architecture& a, int tensor, int tensor_rank) {
  const std::int64_t layers = a.model.layers;
  Shard shard;
  shard.stage_layers = {{0, 0}, {0, 1}, {1, layers - 1}, {layers, 0}};
  shard.tensor_size = tensor;
  shard.tensor_rank = tensor_rank;
  return shard;
}

architecture::Placement placed(const architecture::Architecture& a, const Shard& shard) {
  return architecture::place(a, shard, architecture::local_arrays(a, shard));
}

ActivationParts largest(const ActivationParts& a, const ActivationParts& b) {
  return {std::max(a.layer, b.layer),
          std::max(a.input, b.input),
          std::max(a.embedding, b.embedding),
          std::max(a.head, b.head),
          std::max(a.scratch, b.scratch),
          std::max(a.head_scratch, b.head_scratch),
          std::max(a.logits, b.logits),
          std::max(a.message, b.message),
          std::max(a.tensor_sum, b.tensor_sum),
          std::max(a.logits_slot, b.logits_slot),
          std::max(a.logits_scratch, b.logits_scratch),
          std::max(a.logits_messages, b.logits_messages),
          std::max(a.positions, b.positions),
          std::max(a.layer_scales, b.layer_scales)};
}

std::int64_t part_of(std::int64_t n, std::int64_t parts) {
  return (n + parts - 1) / parts;
}

}  // namespace

MemoryEstimate::MemoryEstimate(const deck::Config& config,
                               const architecture::Architecture& architecture,
                               const Machine& machine, bool arrays_only)
    : architecture_(architecture),
      machine_(machine),
      arrays_only_(arrays_only),
      sizes_(config, machine),
      grouped_(transport(config.parallel, machine) == schedule::Transport::ordered_groups) {}

/// Every array begins at a multiple of 32 elements, so that the arenas are sums over the parts.
const MemoryEstimate::ModelParts& MemoryEstimate::model_parts(int tensor) {
  const auto [found, is_new] = models_.try_emplace(tensor);
  ModelParts& parts = found->second;
  if (!is_new) return parts;
  for (const int rank : tensor_ranks_.at(tensor)) {
    Shard shard = parted(architecture_, tensor, rank);
    const auto elements = [&](std::vector<Stage> stages) {
      shard.stages = std::move(stages);
      return placed(architecture_, shard);
    };
    parts.embedding = std::max(parts.embedding, elements({0}).elements);
    parts.layer = std::max(parts.layer, elements({1}).elements);
    parts.head = std::max(parts.head, elements({3}).elements);
    const architecture::Placement ends = elements({0, 3});
    parts.ends = std::max(parts.ends, ends.elements);
    parts.ends_tied = std::max(parts.ends_tied, ends.gradient_elements - ends.elements);
    parts.table = std::max(parts.table, ends.tied_elements);
  }
  return parts;
}

/// The first and the last rank, and between them the first of each number of layers per stage:
/// later ranks have the same number of slots or fewer.
const std::vector<MemoryEstimate::Rank>& MemoryEstimate::ranks_of(
    const deck::ParallelConfig& parallel) {
  const layout::StageMap map = parallel.stage_map();
  const auto [found, is_new] = stages_.try_emplace(
      {map.ranks, map.chunks, static_cast<int>(map.placement)});  // on which the partition depends
  if (!is_new) return found->second;
  const bool shares = architecture_.model.shared_layers > 0;  // some hold originals, others copies
  Rank rank{0, architecture::make_shard(architecture_, parallel, 0, 0), 0};
  std::set<std::vector<std::int64_t>> known;
  for (int p = 0; p < map.ranks; ++p) {
    rank.shard.stages = map.stages_of(p);
    std::vector<std::int64_t> layers;
    rank.layers = 0;
    for (const Stage stage : rank.shard.stages) {
      layers.push_back(rank.shard.stage_layers[static_cast<std::size_t>(stage)].extent);
      rank.layers += layers.back();
    }
    if (shares) layers.push_back(rank.shard.stages.front());
    rank.number = p;
    const bool end = p == 0 || p + 1 == map.ranks;
    if (end || known.insert(layers).second) found->second.push_back(rank);
  }
  return found->second;
}

const ActivationParts& MemoryEstimate::activations_of(const deck::Config& config, bool split) {
  const deck::ParallelConfig& p = config.parallel;
  const auto [found, is_new] =
      activations_.try_emplace({p.tensor, config.batch.micro, p.recompute, p.sequence_parallel,
                                split, architecture::head_gradient(p)});
  if (!is_new) return found->second;
  Shard shard = parted(architecture_, static_cast<int>(p.tensor), 0);
  for (const int rank : tensor_ranks_.at(static_cast<int>(p.tensor))) {
    shard.tensor_rank = rank;
    const auto layer = layer_program(config, architecture_, shard, split, machine_);
    found->second = largest(found->second,
                            activation_parts(config, architecture_, shard, layer, split, machine_));
  }
  return found->second;
}

ArenaParts MemoryEstimate::arenas_of(const deck::Config& config, const Rank& rank) {
  const deck::ParallelConfig& p = config.parallel;
  const ModelParts& parts = model_parts(static_cast<int>(p.tensor));
  ArenaParts arenas;
  const bool exact = architecture_.model.shared_layers > 0 || architecture_.has_frozen();
  std::int64_t trained = 0;
  if (exact) {
    Shard shard = rank.shard;
    shard.tensor_size = static_cast<int>(p.tensor);
    const architecture::Placement all = placed(architecture_, shard);
    arenas.elements = all.elements;
    arenas.gradient_elements = all.gradient_elements;
    trained = all.trained;
  } else {
    const bool first = rank.shard.has_embedding(), last = rank.shard.has_head();
    arenas.elements = rank.layers * parts.layer;
    if (first) arenas.elements += last ? parts.ends : parts.embedding;
    if (last && !first) arenas.elements += parts.head;
    arenas.gradient_elements = arenas.elements + (first && last ? parts.ends_tied : 0);
  }
  const std::int64_t all = arenas.elements;
  if (!exact) trained = all;
  arenas.state_elements = trained;
  if (p.divides_state()) {
    // Each part of a bucket ends at the next block of the norm; each stage has its own buckets.
    const std::int64_t bucket =
        std::max<std::int64_t>(norm_block, p.bucket_bytes / sizes_.accumulate());
    const std::int64_t buckets = trained / bucket + 3 * p.chunks + 2;
    arenas.state_elements =
        std::min(trained, part_of(trained, p.shard_ranks()) + buckets * norm_block);
    // Own parts, and windows of two layers and of the embedding or the head.
    const bool first = rank.shard.has_embedding(), last = rank.shard.has_head();
    const std::int64_t windows =
        std::min<std::int64_t>(2, rank.layers) * parts.layer + (first && last ? parts.ends
                                                                : first       ? parts.embedding
                                                                : last        ? parts.head
                                                                              : 0);
    const std::int64_t divided = arenas.state_elements + rank.layers * norm_block + windows;
    const architecture::Division division = architecture::division_of(config);
    if (architecture_.model.shared_layers == 0) {
      if (division.weights) arenas.elements = divided + part_of(all - trained, p.shard_ranks());
      if (division.gradients) arenas.gradient_elements += divided - all;
    }
  }
  arenas.second_elements = arenas.state_elements;
  if (config.optimizer.kind == OptimizerKind::muon) {
    Shard layer = parted(architecture_, static_cast<int>(p.tensor), 0);
    layer.stages = {1};
    const architecture::MatrixRounds rounds(architecture_, layer,
                                            architecture::local_arrays(architecture_, layer),
                                            static_cast<int>(p.shard_ranks()));
    std::int64_t matrices = 0;
    for (const auto& m : rounds.matrices()) matrices += m.elements_on(0);
    arenas.second_elements = std::max<std::int64_t>(
        0, arenas.state_elements -
               part_of(rank.layers * matrices, p.divides_state() ? p.shard_ranks() : 1));
    arenas.muon = muon_bytes(rounds, sizes_.accumulate());
  }
  if (grouped_) arenas.reductions = reductions_of(config, rank, arenas, parts);
  return arenas;
}

/// As reduction_scratch(), with buckets of full size.
Bytes MemoryEstimate::reductions_of(const deck::Config& config, const Rank& rank,
                                    const ArenaParts& arenas, const ModelParts& parts) const {
  const deck::ParallelConfig& p = config.parallel;
  const auto data = static_cast<int>(p.replicas());
  const std::int64_t longest =
      std::min(arenas.elements, std::max(norm_block, p.bucket_bytes / sizes_.accumulate()));
  Bytes bytes = 0;
  if (p.divides_state() && p.shard_ranks() == p.replicas())
    bytes += std::min((part_of(longest, p.replicas()) + norm_block) * sizes_.accumulate(),
                      device_reduction_segment_bytes(data)) *
             (data - 1);
  else
    bytes += device_reduction_scratch_bytes(longest * sizes_.accumulate(), data);
  const bool end = rank.shard.has_embedding() || rank.shard.has_head();
  if (config.model.tied_embeddings && p.pipeline > 1 && end)
    bytes += device_reduction_scratch_bytes(parts.table * sizes_.accumulate(), 2);
  return bytes;
}

/// The process of a host's rank, its sums over the data axis and its copy for checkpoints.
Bytes MemoryEstimate::on_host(const deck::Config& config, const ArenaParts& arenas) const {
  const std::int64_t data = config.parallel.replicas();
  Bytes bytes = process_bytes(config);
  const std::int64_t every = config.checkpoint.every;
  if (config.checkpoint.asynchronous && every > 0 && every < config.run.steps)
    bytes += part_of(arenas.elements, data) *
             (sizes_.states() * sizes_.accumulate() + (sizes_.narrow() ? 0 : sizes_.element()));
  if (data == 1 || grouped_) return bytes;
  const Bytes bucket = config.parallel.bucket_bytes;
  const Bytes all = arenas.gradient_elements * sizes_.accumulate();
  const auto segments = [&](Bytes size) {
    return std::min(part_of(size, data), reduction_segment_bytes) * (data - 1);
  };
  return bytes + all / bucket * segments(bucket) + segments(all % bucket);
}

Bytes MemoryEstimate::most_bytes(const deck::Config& config) {
  const deck::ParallelConfig& p = config.parallel;
  const auto tensor = static_cast<int>(p.tensor);
  if (!tensor_ranks_.contains(tensor))
    tensor_ranks_[tensor] =
        different_tensor_ranks(config, parted(architecture_, tensor, 0), machine_);
  const schedule::ProgramLayout layout{
      static_cast<int>(p.pipeline),
      static_cast<int>(config.micro_batches()),
      static_cast<int>(p.chunks),
      config.model.tied_embeddings,
      grouped_ ? schedule::Transport::ordered_groups : schedule::Transport::independent_channels,
      p.stage_map().placement};
  const ActivationParts& activations = activations_of(config, p.splits_backward());
  Bytes most = 0;
  for (const Rank& rank : ranks_of(p)) {
    const ArenaParts arenas = arenas_of(config, rank);
    const TrainingBytes bytes = sizes_.bytes(
        activations, arenas, rank.shard, schedule::expected_needs(p.schedule, layout, rank.number));
    const bool process = !machine_.on_device() && !arrays_only_;
    most =
        std::max(most, process ? bytes.all() + on_host(config, arenas) : bytes.where_kernels_run());
  }
  return most;
}

}  // namespace trireme::plan
