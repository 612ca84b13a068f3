// Memory of a layout from parts that many layouts share, such as the elements of a layer for each
// number of tensor ranks.
#include <trireme/plan/memory_estimate.hpp>

#include <trireme/architecture/arrangement.hpp>
#include <trireme/architecture/bucket_cut.hpp>
#include <trireme/architecture/hidden_matrices.hpp>
#include <trireme/architecture/matrix_axes.hpp>
#include <trireme/architecture/placement.hpp>
#include <trireme/architecture/state.hpp>
#include <trireme/base/alignment.hpp>
#include <trireme/base/reduction.hpp>
#include <trireme/plan/choices.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/plan/muon.hpp>
#include <trireme/plan/ranks.hpp>

#include <algorithm>
#include <set>
#include <utility>

namespace trireme::plan {
namespace {

using architecture::Shard;

/// A shard of four stages: the embedding, one layer, the other layers, and the head.
Shard parted(const architecture::Architecture& a, const deck::ParallelConfig& parallel,
             int tensor_rank) {
  const std::int64_t layers = a.model.all_layers();
  Shard shard;
  shard.stage_layers = {{0, 0}, {0, 1}, {1, layers - 1}, {layers, 0}};
  shard.tensor_size = static_cast<int>(parallel.tensor);
  shard.tensor_rank = tensor_rank;
  shard.expert_size = static_cast<int>(parallel.expert);
  return shard;
}

/// Elements of a rank's experts, if replicas divide them.
std::int64_t experts_of(const architecture::Architecture& a, const Shard& shard) {
  std::int64_t elements = 0;
  for (const architecture::RankArray& array : architecture::rank_arrays(a, shard))
    if (array.of_experts && !array.frozen) elements += aligned_elements(array.elements());
  return elements;
}

architecture::Placement placed(const architecture::Architecture& a, const Shard& shard) {
  return architecture::place(a, shard, architecture::rank_arrays(a, shard));
}

ActivationSizes largest(const ActivationSizes& a, const ActivationSizes& b) {
  std::vector<BlockBytes> layers = a.layers;
  layers.resize(b.layers.size());
  for (std::size_t k = 0; k < layers.size(); ++k)
    layers[k] = {std::max(layers[k].kept, b.layers[k].kept),
                 std::max(layers[k].scales, b.layers[k].scales)};
  return {std::move(layers),
          std::max(a.input, b.input),
          std::max(a.embedding, b.embedding),
          std::max(a.head, b.head),
          std::max(a.scratch, b.scratch),
          std::max(a.head_scratch, b.head_scratch),
          std::max(a.logits, b.logits),
          std::max(a.message, b.message),
          std::max(a.handed_over, b.handed_over),
          std::max(a.tensor_sum, b.tensor_sum),
          std::max(a.logits_slot, b.logits_slot),
          std::max(a.logits_scratch, b.logits_scratch),
          std::max(a.logits_messages, b.logits_messages),
          std::max(a.of_slot, b.of_slot)};
}

std::int64_t part_of(std::int64_t n, std::int64_t parts) {
  return (n + parts - 1) / parts;
}

/// Appends the kinds of layers, each with the number of consecutive layers.
void append_kinds(std::vector<std::int64_t>& list, const architecture::Architecture& a,
                  const layout::Slice& layers) {
  for (std::int64_t layer = layers.offset; layer < layers.end(); ++layer) {
    const auto kind = static_cast<std::int64_t>(a.kind_of(layer));
    if (layer > layers.offset && list.end()[-2] == kind)
      ++list.back();
    else
      list.insert(list.end(), {kind, 1});
  }
}

/// Whether layers have different numbers of elements, for example because some have experts.
bool layers_differ(const architecture::Architecture& architecture) {
  std::map<std::int64_t, std::int64_t> elements;  // by block
  for (const architecture::ArraySpec& array : architecture.arrays)
    if (array.block >= 1 && array.block <= architecture.model.all_layers())
      elements[array.block] += array.elements();
  return std::ranges::any_of(
      elements, [&](const auto& layer) { return layer.second != elements.begin()->second; });
}

}  // namespace

MemoryEstimate::MemoryEstimate(const deck::Config& config,
                               const architecture::Architecture& architecture,
                               const Machine& machine, bool arrays_only)
    : architecture_(architecture),
      machine_(machine),
      arrays_only_(arrays_only),
      ranks_differ_(architecture.model.shared_layers > 0 || architecture.has_frozen ||
                    layers_differ(architecture)),
      sizes_(config, architecture, machine),
      grouped_(transport(config.parallel, machine) == schedule::Transport::ordered_groups) {}

/// Every array begins at a multiple of 32 elements, so that the size of an arena is the sum of the
/// sizes of its parts.
const MemoryEstimate::ModelParts& MemoryEstimate::model_parts(
    const deck::ParallelConfig& parallel) {
  const auto [found, is_new] = models_.try_emplace({parallel.tensor, parallel.expert});
  ModelParts& parts = found->second;
  if (!is_new) return parts;
  for (const int rank : tensor_ranks_.at(static_cast<int>(parallel.tensor))) {
    Shard shard = parted(architecture_, parallel, rank);
    const auto elements = [&](std::vector<Stage> stages) {
      shard.stages = std::move(stages);
      return placed(architecture_, shard);
    };
    parts.embedding = std::max(parts.embedding, elements({0}).elements);
    parts.layer = std::max(parts.layer, elements({1}).elements);
    parts.experts = std::max(parts.experts, experts_of(architecture_, shard));
    parts.head = std::max(parts.head, elements({3}).elements);
    const architecture::Placement ends = elements({0, 3});
    parts.ends = std::max(parts.ends, ends.elements);
    parts.ends_tied = std::max(parts.ends_tied, ends.gradient_elements - ends.elements);
    parts.table = std::max(parts.table, ends.tied_elements);
  }
  return parts;
}

/// The first and the last rank; and between them, for each combination of layers per stage, only
/// the first rank, because later ranks have at most as many slots.
const std::vector<MemoryEstimate::Rank>& MemoryEstimate::ranks_of(
    const deck::ParallelConfig& parallel) {
  const layout::StageMap map = parallel.stage_map();
  const auto [found, is_new] = stages_.try_emplace(
      {map.ranks, map.chunks, static_cast<int>(map.placement)});  // the partition depends on these
  if (!is_new) return found->second;
  // Some ranks have originals of shared layers, others have copies.
  const bool shares = architecture_.model.shared_layers > 0;
  Rank rank{0, architecture::make_shard(architecture_, parallel, 0, 0), 0, {}};
  std::set<std::vector<std::int64_t>> known;
  for (int p = 0; p < map.ranks; ++p) {
    rank.shard.stages = map.stages_of(p);
    std::vector<std::int64_t> layers;
    rank.layers = 0;
    rank.parts = {rank.shard.has_embedding(), rank.shard.has_head()};
    if (shares) rank.parts.insert(rank.parts.end(), {map.ranks, map.chunks, p});
    for (const Stage stage : rank.shard.stages) {
      const layout::Slice& mine = rank.shard.stage_layers[static_cast<std::size_t>(stage)];
      const std::vector<std::int64_t> counts = architecture_.count_kinds(mine);
      layers.insert(layers.end(), counts.begin(), counts.end());
      rank.layers += mine.extent;
      if (ranks_differ_) append_kinds(rank.parts, architecture_, mine);
    }
    if (shares) layers.push_back(rank.shard.stages.front());
    rank.number = p;
    const bool end = p == 0 || p + 1 == map.ranks;
    if (end || known.insert(layers).second) found->second.push_back(rank);
  }
  return found->second;
}

const ActivationSizes& MemoryEstimate::activations_of(const deck::Config& config, bool split) {
  const deck::ParallelConfig& p = config.parallel;
  const auto [found, is_new] =
      activations_.try_emplace({p.tensor, p.expert, config.batch.micro, p.recompute,
                                p.sequence_parallel, split, architecture::head_gradient(p)});
  if (!is_new) return found->second;
  Shard shard = parted(architecture_, p, 0);
  for (const int rank : tensor_ranks_.at(static_cast<int>(p.tensor))) {
    shard.tensor_rank = rank;
    found->second =
        largest(found->second, activation_parts(config, architecture_, shard, split, machine_));
  }
  return found->second;
}

/// A bucket holds arrays of only one layer, so that the sizes of parts can be added.
MemoryEstimate::DividedPart MemoryEstimate::divided_part(const deck::Config& config,
                                                         const Shard& shard) const {
  const auto arrays = architecture::rank_arrays(architecture_, shard);
  const architecture::Placement placement = architecture::place(architecture_, shard, arrays);
  const architecture::Division division = architecture::division_of(config);
  const auto cut = [&](architecture::CutOf of) {
    const std::int64_t bucket =
        std::max<std::int64_t>(1, config.parallel.bucket_bytes / sizes_.accumulate());
    return architecture::BucketCut(architecture_, shard, arrays, placement, bucket,
                                   static_cast<int>(config.parallel.shard_ranks()), true, of);
  };
  // All arrays of a part use one window.
  const auto window_of = [](const architecture::Arrangement& places) {
    std::vector<std::int64_t> units(places.units().size());
    for (const auto& run : places.runs())
      if (run.takes_turns)
        units[static_cast<std::size_t>(run.unit)] += aligned_elements(run.size());
    return units.empty() ? 0 : std::ranges::max(units);
  };
  const architecture::BucketCut gradients = cut(architecture::CutOf::gradients);
  const architecture::BucketCut weights = cut(architecture::CutOf::weights);
  const auto of_gradients = architecture::arranged_gradients(gradients, shard, division,
                                                             config.parallel.sequence_parallel, 0);
  const auto of_weights = architecture::arranged_weights(weights, division, 0);
  DividedPart part;
  part.state = architecture::most_state_elements(gradients);
  if (const rules::Matrices matrices = config.optimizer.rule().matrices;
      matrices != rules::Matrices::none)
    part.other_state = architecture::most_state_elements(gradients, matrices);
  part.weight_window = window_of(of_weights);
  part.weights = of_weights.elements() - part.weight_window;
  part.gradient_window = window_of(of_gradients);
  part.gradients = of_gradients.elements() - part.gradient_window;
  return part;
}

const MemoryEstimate::DividedParts& MemoryEstimate::divided_parts(const deck::Config& config) {
  const deck::ParallelConfig& p = config.parallel;
  const architecture::Division division = architecture::division_of(config);
  const auto [found, is_new] =
      divided_.try_emplace({p.tensor, p.expert, p.shard_ranks(), division.weights,
                            division.gradients, p.sequence_parallel});
  if (!is_new) return found->second;
  // Rank 0 has the largest parts, unless tensor ranks share heads.
  Shard shard = parted(architecture_, p, 0);
  const auto of = [&](std::vector<Stage> stages) {
    shard.stages = std::move(stages);
    return divided_part(config, shard);
  };
  found->second = {of({1}), of({0}), of({3}), of({0, 3})};
  return found->second;
}

/// Sets the elements of divided arenas: own parts, windows of two layers, and the window of the
/// embedding or the head.
void MemoryEstimate::divide(const deck::Config& config, const Rank& rank, RankElements& elements) {
  const DividedParts& parts = divided_parts(config);
  const architecture::Division division = architecture::division_of(config);
  const bool first = rank.shard.has_embedding(), last = rank.shard.has_head();
  const DividedPart none;
  const DividedPart& ends = first && last ? parts.ends
                            : first       ? parts.embedding
                            : last        ? parts.head
                                          : none;
  const std::int64_t n = rank.layers, windows = std::min<std::int64_t>(2, n);
  ArenaSizes& arenas = elements.arenas;
  arenas.state_elements = n * parts.layer.state + ends.state;
  arenas.other_elements = config.optimizer.rule().matrices != rules::Matrices::none
                              ? n * parts.layer.other_state + ends.other_state
                              : arenas.state_elements;
  if (division.weights)
    arenas.elements = n * parts.layer.weights + ends.weights + windows * parts.layer.weight_window +
                      ends.weight_window;
  if (!division.gradients) return;
  elements.summed = windows * parts.layer.gradient_window + ends.gradient_window;
  arenas.gradient_elements = n * parts.layer.gradients + ends.gradients + elements.summed;
}

/// Like divide(), for models whose ranks differ by more than their number of layers.
void MemoryEstimate::divide_exactly(const deck::Config& config, const Rank& rank,
                                    RankElements& elements) {
  const deck::ParallelConfig& p = config.parallel;
  const architecture::Division division = architecture::division_of(config);
  std::vector<std::int64_t> key{p.tensor,
                                p.pipeline,
                                p.data,
                                p.expert,
                                p.shard_ranks(),
                                division.gradients ? 1 : 0,
                                division.weights ? 1 : 0,
                                division.gradients && p.sequence_parallel ? 1 : 0};
  key.insert(key.end(), rank.parts.begin(), rank.parts.end());
  const auto [found, is_new] = exact_.try_emplace(std::move(key));
  if (is_new) {
    Shard shard = rank.shard;
    shard.tensor_size = static_cast<int>(p.tensor);
    shard.expert_size = static_cast<int>(p.expert);
    found->second = arena_parts(config, architecture_, shard, machine_);
  }
  elements.arenas = found->second;
  elements.summed = elements.arenas.gradient_elements;
}

/// Sets lower bounds of what divide_exactly() sets.
void MemoryEstimate::divide_evenly(const deck::Config& config, RankElements& elements) const {
  const architecture::Division division = architecture::division_of(config);
  const std::int64_t ranks = config.parallel.shard_ranks();
  ArenaSizes& arenas = elements.arenas;
  arenas.state_elements = elements.trained / ranks;
  arenas.other_elements = 0;
  arenas.muon = 0;
  if (division.weights) arenas.elements /= ranks;
  if (division.gradients) arenas.gradient_elements /= ranks;
  elements.summed = arenas.gradient_elements;
}

const MemoryEstimate::PlacedElements& MemoryEstimate::placed_elements(const deck::ParallelConfig& p,
                                                                      const Rank& rank) {
  std::vector<std::int64_t> key{p.tensor, p.expert};
  key.insert(key.end(), rank.parts.begin(), rank.parts.end());
  const auto [found, is_new] = placed_.try_emplace(std::move(key));
  if (!is_new) return found->second;
  Shard shard = rank.shard;
  shard.tensor_size = static_cast<int>(p.tensor);
  shard.expert_size = static_cast<int>(p.expert);
  const architecture::Placement placement = placed(architecture_, shard);
  found->second = {placement.elements, placement.gradient_elements, placement.trained,
                   p.expert > 1 ? experts_of(architecture_, shard) : 0};
  return found->second;
}

/// Adds what rules with matrices need. Without differences between layers, one layer stands for
/// all.
void MemoryEstimate::add_matrices(const deck::Config& config, const Rank& rank,
                                  ArenaSizes& arenas) const {
  const deck::ParallelConfig& p = config.parallel;
  const rules::Description& rule = config.optimizer.rule();
  std::int64_t matrices = 0, experts = 0;  // experts: of experts that replicas divide
  const auto add = [&](Shard shard, std::int64_t times) {
    shard.tensor_size = static_cast<int>(p.tensor);
    shard.expert_size = static_cast<int>(p.expert);
    const auto arrays = architecture::rank_arrays(architecture_, shard);
    for (const architecture::RankArray& array : arrays)
      if (!array.frozen && rules::as_matrices(rule.matrices, array.matrix))
        (array.of_experts ? experts : matrices) += times * aligned_elements(array.elements());
    const auto factors = architecture::factors(architecture_, arrays, config.optimizer);
    arenas.rows += times * factors.rows;
    arenas.columns += times * factors.columns;
    if (times > 0 && rule.has(rules::PassKind::whole_matrices, config.optimizer))
      arenas.muon = std::max(
          arenas.muon, muon_bytes(architecture::matrix_rounds(architecture_, shard, arrays,
                                                              static_cast<int>(p.shard_ranks())),
                                  sizes_.accumulate()));
  };
  if (ranks_differ_) {
    add(rank.shard, 1);
  } else {
    Shard part = parted(architecture_, p, 0);
    part.stages = {1};
    add(part, rank.layers);
    part.stages.clear();
    if (rank.shard.has_embedding()) part.stages.push_back(0);
    if (rank.shard.has_head()) part.stages.push_back(3);
    if (!part.stages.empty()) add(part, 1);
  }
  arenas.means = aligned(architecture::Factors{{}, arenas.rows, arenas.columns}.sum_bytes());
  arenas.other_elements = std::max<std::int64_t>(
      0, arenas.state_elements - part_of(matrices, p.divides_state() ? p.shard_ranks() : 1) -
             part_of(experts, p.divides_state() ? p.shard_ranks() / p.expert : 1));
}

MemoryEstimate::RankElements MemoryEstimate::elements_of(const deck::Config& config,
                                                         const Rank& rank, bool least) {
  const deck::ParallelConfig& p = config.parallel;
  const ModelParts& parts = model_parts(p);
  RankElements all;
  ArenaSizes& arenas = all.arenas;
  std::int64_t trained = 0, experts = 0;  // experts: of the trained elements
  if (ranks_differ_) {
    const PlacedElements& placement = placed_elements(p, rank);
    arenas.elements = placement.all;
    arenas.gradient_elements = placement.gradients;
    trained = placement.trained;
    experts = placement.experts;
  } else {
    const bool first = rank.shard.has_embedding(), last = rank.shard.has_head();
    arenas.elements = rank.layers * parts.layer;
    if (first) arenas.elements += last ? parts.ends : parts.embedding;
    if (last && !first) arenas.elements += parts.head;
    arenas.gradient_elements = arenas.elements + (first && last ? parts.ends_tied : 0);
    trained = arenas.elements;
    experts = rank.layers * parts.experts;
  }
  all.whole = arenas.elements;
  all.trained = trained;
  all.summed = arenas.gradient_elements;
  arenas.state_elements = trained;
  if (p.divides_state()) {
    // Each part of a bucket ends at the end of a block of the norm; each stage has separate
    // buckets.
    const std::int64_t bucket =
        std::max<std::int64_t>(norm_block, p.bucket_bytes / sizes_.accumulate());
    const std::int64_t buckets = trained / bucket + (p.expert > 1 ? 4 : 3) * p.chunks + 2;
    const std::int64_t own =
        part_of(trained - experts, p.shard_ranks()) + part_of(experts, p.shard_ranks() / p.expert);
    arenas.state_elements = std::min(trained, own + buckets * norm_block);
  }
  arenas.other_elements = arenas.state_elements;
  if (const rules::Description& rule = config.optimizer.rule();
      rule.matrices != rules::Matrices::none)
    add_matrices(config, rank, arenas);
  if (architecture::division_of(config).by_block()) {
    if (ranks_differ_ && least) {
      divide_evenly(config, all);
      return all;
    }
    if (ranks_differ_)
      divide_exactly(config, rank, all);
    else
      divide(config, rank, all);
  }
  if (grouped_) arenas.reductions = reductions_of(config, rank, arenas, parts);
  return all;
}

/// Estimate of reduction_scratch(), with buckets of full size.
Bytes MemoryEstimate::reductions_of(const deck::Config& config, const Rank& rank,
                                    const ArenaSizes& arenas, const ModelParts& parts) const {
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

/// Bytes on the host: a rank's process, its sums over the data axis and its copy for checkpoints.
Bytes MemoryEstimate::on_host(const deck::Config& config, const RankElements& elements) const {
  const deck::ParallelConfig& p = config.parallel;
  const std::int64_t data = p.replicas();
  Bytes bytes = process_bytes(config);
  const Bytes share = part_of(elements.whole, p.divides_state() ? p.shard_ranks() : data) *
                          sizes_.state_of_weight() +
                      part_of(elements.arenas.other_elements, p.divides_state() ? 1 : data) *
                          sizes_.other_state_of_weight() +
                      part_of(elements.whole, p.divides_weights() ? p.shard_ranks() : data) *
                          (sizes_.narrow() ? 0 : sizes_.element());
  bytes += checkpoint_copies(config) * share;
  if (data == 1 || grouped_) return bytes;
  const Bytes bucket = config.parallel.bucket_bytes;
  const Bytes all = elements.summed * sizes_.accumulate();
  const auto segments = [&](Bytes size) {
    return std::min(part_of(size, data), reduction_segment_bytes) * (data - 1);
  };
  return bytes + all / bucket * segments(bucket) + segments(all % bucket);
}

Bytes MemoryEstimate::most_bytes(const deck::Config& config) {
  return bytes_of(config, false);
}

Bytes MemoryEstimate::least_bytes(const deck::Config& config) {
  const bool is_slow = ranks_differ_ && architecture::division_of(config).by_block();
  return is_slow ? bytes_of(config, true) : 0;
}

Bytes MemoryEstimate::bytes_of(const deck::Config& config, bool least) {
  const deck::ParallelConfig& p = config.parallel;
  const auto tensor = static_cast<int>(p.tensor);
  if (!tensor_ranks_.contains(tensor))
    tensor_ranks_[tensor] =
        different_tensor_ranks(config, architecture_, parted(architecture_, p, 0), machine_);
  const schedule::ProgramLayout layout{
      static_cast<int>(p.pipeline),
      static_cast<int>(config.micro_batches()),
      static_cast<int>(p.chunks),
      config.model.tied_embeddings,
      grouped_ ? schedule::Transport::ordered_groups : schedule::Transport::independent_channels,
      p.stage_map().placement};
  const ActivationSizes& activations = activations_of(config, p.splits_backward());
  Bytes most = 0;
  for (const Rank& rank : ranks_of(p)) {
    const RankElements elements = elements_of(config, rank, least);
    const TrainingBytes bytes =
        sizes_.bytes(activations, elements.arenas, rank.shard,
                     schedule::expected_needs(p.schedule, layout, rank.number));
    const bool process = !machine_.on_device() && !arrays_only_;
    most = std::max(most,
                    process ? bytes.all() + on_host(config, elements) : bytes.where_kernels_run());
  }
  return most;
}

}  // namespace trireme::plan
