// Divides layers into stages by FLOPs, arrays into slices along the tensor axis, and slices into
// pieces that the same tensor ranks hold.
#include <trireme/architecture/shard.hpp>
#include <trireme/base/check.hpp>
#include <trireme/layout/split.hpp>

#include <algorithm>
#include <limits>
#include <utility>

namespace trireme::architecture {

using layout::Slice;

namespace {

/// Multiplications in all passes of an operation, or only in its forward pass, which has
/// `products`. If all weight matrices are frozen, backward_weight is not counted, not even for
/// trained adapters.
double passes_of(const Operation& op, double products, bool only_forward = false) {
  double factors = product_factor(op, Pass::forward);
  if (!only_forward) factors += product_factor(op, Pass::backward_input);
  const bool weighs = op.arrays.empty() || op.trains_product();
  if (!only_forward && weighs) factors += product_factor(op, Pass::backward_weight);
  return factors * products;
}

/// Multiplications per token in the passes of the layers.
struct BlockCosts {
  /// Multiplications of the layers before each layer, and of all layers.
  std::vector<double> before;
  bool equal = true;
};

BlockCosts layer_costs(const Architecture& a) {
  std::vector<double> forward, all;  // by kind
  for (const BlockDescription& layer : a.layer_kinds()) {
    forward.push_back(0);
    all.push_back(0);
    for (const Operation& op : layer.operations) {
      const double products = products_per_token(layer, op, a.model);
      forward.back() += passes_of(op, products, true);
      all.back() += passes_of(op, products);
    }
  }
  BlockCosts costs;
  costs.before.reserve(static_cast<std::size_t>(a.model.all_layers()) + 1);
  costs.before.push_back(0);
  for (std::int64_t layer = 0; layer < a.model.all_layers(); ++layer) {
    const double cost =
        (block_of_layer(layer) < a.first_backward ? forward : all)[a.kind_of(layer)];
    costs.before.push_back(costs.before.back() + cost);
    costs.equal = costs.equal && cost == costs.before[1];
  }
  return costs;
}

/// Multiplications per token in the passes of the head.
double head_cost(const Architecture& a) {
  double products = 0;  // multiplications per sample
  for (const Operation& op : a.head().operations) {
    const Tensor& output = a.head().tensors[static_cast<std::size_t>(op.output)];
    products += passes_of(op, products_per_row(op)) *
                static_cast<double>(rows_per_sample(output.rows, a.model));
  }
  return products / static_cast<double>(a.model.sequence);
}

/// Stages with the last `last` layers in the last stage and the other layers in earlier stages.
/// With equal costs, split() gives the same stages as cut_by_cost(), without a search.
std::vector<Slice> cut_before(const BlockCosts& costs, std::int64_t layers, int stages,
                              std::int64_t last) {
  std::vector<Slice> cuts;
  if (stages > 1 && costs.equal)
    for (Stage s = 0; s + 1 < stages; ++s)
      cuts.push_back(layout::split(layers - last, stages - 1, s));
  else if (stages > 1)
    cuts = layout::cut_by_cost(costs.before, layers - last, stages - 1);
  cuts.push_back({layers - last, last});
  return cuts;
}

std::vector<Slice> cut_by_hand(const std::vector<std::int64_t>& extents, std::int64_t layers,
                               int stages) {
  std::vector<Slice> cuts;
  std::int64_t end = 0;
  for (const std::int64_t extent : extents)
    cuts.push_back({std::exchange(end, end + extent), extent});
  check(std::ssize(cuts) == stages && end == layers, "a partition of ", end, " layers into ",
        cuts.size(), " stages, but ", layers, " layers and ", stages, " stages");
  return cuts;
}

/// Largest number of multiplications of a rank in a V, because a rank alternates between its
/// stages; otherwise the largest number of a stage.
double longest(const BlockCosts& costs, const std::vector<Slice>& cuts, double head,
               const layout::StageMap& map) {
  const auto cost = [&](Stage s) {
    const Slice& layers = cuts[static_cast<std::size_t>(s)];
    return costs.before[static_cast<std::size_t>(layers.end())] -
           costs.before[static_cast<std::size_t>(layers.offset)] +
           (s == map.last_stage() ? head : 0);
  };
  double most = 0;
  if (map.placement != StagePlacement::v)
    for (Stage s = 0; s < map.stages(); ++s) most = std::max(most, cost(s));
  else
    for (Rank r = 0; r < map.ranks; ++r) {
      double sum = 0;
      for (const Stage s : map.stages_of(r)) sum += cost(s);
      most = std::max(most, sum);
    }
  return most;
}

}  // namespace

std::vector<Slice> partition(const Architecture& architecture,
                             const deck::ParallelConfig& parallel) {
  const layout::StageMap map = parallel.stage_map();
  const int stages = map.stages();
  check(stages >= 1, "a partition into ", stages, " stages");
  const std::int64_t layers = architecture.model.all_layers();
  if (!parallel.partition.empty()) return cut_by_hand(parallel.partition, layers, stages);
  const BlockCosts costs = layer_costs(architecture);
  const double head = parallel.shares_vocabulary() ? 0 : head_cost(architecture);
  std::vector<Slice> best = cut_before(costs, layers, stages, layers);
  double lowest = std::numeric_limits<double>::infinity();
  // In the best partition, the layers of the last stage cost at most the mean of all stages,
  // because this stage also has the head, except for rounding to whole layers.
  const double average = costs.before.back() / stages;
  for (std::int64_t n = 0; n <= layers && stages > 1; ++n) {
    const std::int64_t all_but_two = std::min(layers, layers - n + 2);
    if (costs.before.back() - costs.before[static_cast<std::size_t>(all_but_two)] > average) break;
    std::vector<Slice> cuts = cut_before(costs, layers, stages, n);
    const double time = longest(costs, cuts, head, map);
    if (time > lowest) continue;  // ties: largest n, with the fewest layers in other stages
    lowest = time;
    best = std::move(cuts);
  }
  return best;
}

std::int64_t longest_stage(const Architecture& architecture, const deck::ParallelConfig& parallel) {
  const std::vector<Slice> stages = partition(architecture, parallel);
  return std::ranges::max(stages, {}, &Slice::extent).extent;
}

bool Shard::holds(Stage stage) const {
  return std::ranges::binary_search(stages, stage);
}

Slice Shard::holders(std::int64_t n, std::int64_t group, std::int64_t i) const {
  const std::int64_t first = layout::part_with(n * group, tensor_size, i * group);
  const std::int64_t last = layout::part_with(n * group, tensor_size, (i + 1) * group - 1);
  return {first, last - first + 1};
}

Stage Shard::stage_of(std::int64_t block) const {
  if (block < block_of_layer(0)) return 0;
  // The last of the stages that begin at or before this layer: empty stages begin where the next
  // stage does.
  const std::int64_t layer = block - block_of_layer(0);
  const auto behind = std::ranges::upper_bound(stage_layers, layer, {}, &Slice::offset);
  return static_cast<Stage>(behind - stage_layers.begin()) - 1;
}

Shard make_shard(const Architecture& architecture, const deck::ParallelConfig& parallel,
                 const layout::Coordinates& at) {
  Shard shard;
  shard.stage_layers = partition(architecture, parallel);
  shard.stages = parallel.stage_map().stages_of(at[Axis::pipeline]);
  shard.tensor_size = static_cast<int>(parallel.tensor);
  shard.tensor_rank = at[Axis::tensor];
  shard.context_size = static_cast<int>(parallel.context);
  shard.context_rank = at[Axis::context];
  shard.expert_size = static_cast<int>(parallel.expert);
  shard.expert_rank = parallel.expert_rank(at);
  shard.expert_batches = static_cast<int>(parallel.expert_batches());
  if (parallel.shares_vocabulary()) shard.vocabulary_stages = static_cast<int>(parallel.pipeline);
  return shard;
}

Shard make_shard(const Architecture& architecture, const deck::ParallelConfig& parallel,
                 int pipeline_rank, int tensor_rank) {
  layout::Coordinates at;
  at[Axis::pipeline] = pipeline_rank;
  at[Axis::tensor] = tensor_rank;
  return make_shard(architecture, parallel, at);
}

std::int64_t product(const std::vector<std::int64_t>& extents, std::size_t begin, std::size_t end) {
  std::int64_t n = 1;
  for (std::size_t axis = begin; axis < end; ++axis) n *= extents[axis];
  return n;
}

Shard whole_model(const Architecture& architecture) {
  return make_shard(architecture, deck::ParallelConfig{}, 0, 0);
}

namespace {

/// Indices of the split axis that the same tensor ranks hold.
struct Run {
  Slice indices;
  Slice holders;
};

/// Runs of this rank's indices. Only the first and the last index can have several holders: see
/// shared_heads().
std::vector<Run> runs_of(const Shard& shard, std::int64_t n, std::int64_t group) {
  const Slice mine = shard.groups(n, group);
  std::vector<Run> runs;
  for (std::int64_t i = mine.offset; i < mine.end(); ++i) {
    const Slice holders = shard.holders(n, group, i);
    if (!runs.empty() && runs.back().holders == holders)
      ++runs.back().indices.extent;
    else
      runs.push_back({{i, 1}, holders});
  }
  return runs;
}

/// One piece if no other rank holds a part of the array. Otherwise one piece for each run and each
/// index of the axes before the split axis, such as keys and values.
std::vector<Piece> pieces_of(const RankArray& local, std::size_t axis, const std::vector<Run>& runs,
                             int tensor_rank) {
  if (runs.size() <= 1 && (runs.empty() || runs.front().holders.extent == 1))
    return {{local.offset, local.extent, 0, {tensor_rank, 1}, true}};
  std::vector<Piece> pieces;
  const std::int64_t inner = product(local.extent, axis + 1, local.extent.size());
  const std::int64_t outer = product(local.extent, 0, axis);
  for (std::int64_t o = 0; o < outer; ++o)
    for (const Run& run : runs) {
      Piece piece{local.offset, local.extent, 0, run.holders, run.holders.offset == tensor_rank};
      std::int64_t rest = o;
      for (std::size_t a = axis; a-- > 0;) {
        piece.offset[a] += rest % local.extent[a];
        piece.extent[a] = 1;
        rest /= local.extent[a];
      }
      piece.offset[axis] = run.indices.offset;
      piece.extent[axis] = run.indices.extent;
      piece.first = (o * local.extent[axis] + run.indices.offset - local.offset[axis]) * inner;
      pieces.push_back(std::move(piece));
    }
  return pieces;
}

}  // namespace

Slice Shard::part_of(const ArrayCut& cut, std::int64_t n) const {
  switch (cut.divide) {
    case Divide::none:
    case Divide::ranks:
      break;
    case Divide::evenly:
      return part(n);
    case Divide::groups:
      return groups(n, cut.group);
    case Divide::experts:
      return layout::split(n, expert_size * tensor_size, expert_rank * tensor_size + tensor_rank);
    case Divide::replicas:
      return layout::split(n, expert_size, expert_rank);
    case Divide::vocabulary:
      return vocabulary_part(n);
  }
  return {0, n};
}

namespace {

RankArray slice_of(const Architecture& architecture, const Shard& shard, std::size_t number,
                   Stage stage) {
  const ArraySpec& spec = architecture.arrays[number];
  RankArray local;
  local.number = number;
  local.stage = stage;
  local.offset.assign(spec.shape.size(), 0);
  local.extent = spec.shape;
  local.frozen = spec.frozen;
  local.matrix = matrix_kind(spec, architecture.model.all_layers());
  local.of_vocabulary = spec.of_vocabulary() && shard.shares_vocabulary();
  local.of_experts = spec.of_experts() && shard.expert_size > 1;
  for (const ArrayCut& cut : spec.cuts) {
    const auto d = static_cast<std::size_t>(cut.dimension);
    const Slice part = shard.part_of(cut, spec.shape[d]);
    local.offset[d] = part.offset;
    local.extent[d] = part.extent;
  }
  if (const ArrayCut* cut = spec.tensor_cut(); cut != nullptr) {
    const auto d = static_cast<std::size_t>(cut->dimension);
    local.split = true;
    const std::vector<Run> runs = cut->divide == Divide::groups
                                      ? runs_of(shard, spec.shape[d], cut->group)
                                      : std::vector<Run>{};
    local.pieces = pieces_of(local, d, runs, shard.tensor_rank);
  } else {
    local.partial_gradient = spec.partial_gradient;
    local.pieces = {
        {local.offset, local.extent, 0, {0, shard.tensor_size}, shard.tensor_rank == 0}};
  }
  return local;
}

void mark_copy(RankArray& array) {
  array.copy = true;
  for (Piece& piece : array.pieces) piece.counted = false;
}

}  // namespace

std::int64_t Piece::elements() const {
  return product(extent, 0, extent.size());
}

std::int64_t RankArray::elements() const {
  return product(extent, 0, extent.size());
}

std::vector<std::int64_t> shared_heads(const deck::ModelConfig& model, int tensor_size) {
  Shard shard;
  shard.tensor_size = tensor_size;
  std::vector<std::int64_t> heads;
  for (std::int64_t head = 0; head < model.key_value_heads; ++head)
    if (shard.holders(model.key_value_heads, model.heads_per_group(), head).extent > 1)
      heads.push_back(head);
  return heads;
}

std::vector<RankArray> rank_arrays(const Architecture& architecture, const Shard& shard) {
  const auto visit = [&](const auto& visited) {
    std::int64_t block = -1;  // block of the previous array; the arrays of a block are consecutive
    Stage stage = 0;
    bool holds = false;
    for (std::size_t i = 0; i < architecture.arrays.size(); ++i) {
      const ArraySpec& array = architecture.arrays[i];
      if (std::exchange(block, array.block) != array.block) {
        stage = shard.stage_of(block);
        holds = shard.holds(stage);
      }
      const bool of_all = array.shared || (array.of_vocabulary() && shard.shares_vocabulary());
      if (holds || of_all) visited(i, stage, holds);
    }
  };
  std::size_t n = 1;  // for the copy of a tied table
  visit([&n](std::size_t, Stage, bool) { ++n; });
  std::vector<RankArray> arrays;
  arrays.reserve(n);
  visit([&](std::size_t i, Stage stage, bool holds) {
    arrays.push_back(slice_of(architecture, shard, i, holds ? stage : shard.stages.front()));
    arrays.back().shared = architecture.arrays[i].shared;
    if (arrays.back().of_vocabulary) arrays.back().stage = shard.stages.front();
    if (!holds && !arrays.back().of_vocabulary) mark_copy(arrays.back());
  });
  const bool tied = architecture.model.tied_embeddings;
  if (tied && !shard.shares_vocabulary() && shard.has_head() && !shard.has_embedding()) {
    arrays.push_back(slice_of(architecture, shard, 0, shard.last_stage()));
    mark_copy(arrays.back());
  }
  return arrays;
}

}  // namespace trireme::architecture
