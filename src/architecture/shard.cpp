#include <trireme/architecture/shard.hpp>
#include <trireme/base/check.hpp>

#include <algorithm>
#include <limits>

namespace trireme::architecture {

using layout::Slice;

std::vector<Slice> partition(const Architecture& architecture, int stages) {
  check(stages >= 1, "a partition into ", stages, " stages");
  const deck::ModelConfig& m = architecture.model;
  // FLOPs per token, relative to a layer's: all layers cost the same.
  const double head = architecture.head_products();
  const double all = architecture.model_flops_per_token() / 6;
  const double layer = (all - head) / static_cast<double>(m.layers);
  std::int64_t last = m.layers;
  double lowest = std::numeric_limits<double>::infinity();
  for (std::int64_t n = 0; stages > 1 && n <= m.layers; ++n) {
    const std::int64_t most = (m.layers - n + stages - 2) / (stages - 1);
    const double longest =
        std::max(static_cast<double>(most), static_cast<double>(n) + head / layer);
    if (longest > lowest) continue;  // of equals the largest n, which leaves least to the others
    lowest = longest;
    last = n;
  }
  std::vector<Slice> layers;
  for (int s = 0; s + 1 < stages; ++s)
    layers.push_back(layout::split(m.layers - last, stages - 1, s));
  layers.push_back({m.layers - last, last});
  return layers;
}

bool Shard::holds(Stage stage) const {
  return std::ranges::find(stages, stage) != stages.end();
}

Stage Shard::stage_of(std::int64_t layer) const {
  if (layer < 0) return 0;
  // The last of the stages that begin at or before it: those without a layer begin where the next
  // one does.
  const auto behind = std::ranges::upper_bound(stage_layers, layer, {}, &Slice::offset);
  return static_cast<Stage>(behind - stage_layers.begin()) - 1;
}

Shard make_shard(const Architecture& architecture, int pipeline_size, int chunks, int pipeline_rank,
                 int tensor_size, int tensor_rank) {
  Shard shard;
  shard.stage_layers = partition(architecture, pipeline_size * chunks);
  for (int c = 0; c < chunks; ++c) shard.stages.push_back(c * pipeline_size + pipeline_rank);
  shard.tensor_size = tensor_size;
  shard.tensor_rank = tensor_rank;
  return shard;
}

Shard whole_model(const Architecture& architecture) {
  return make_shard(architecture, 1, 1, 0, 1, 0);
}

std::int64_t LocalArray::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t e : extent) n *= e;
  return n;
}

namespace {

LocalArray slice_of(const Architecture& architecture, const Shard& shard, std::size_t number,
                    Stage stage) {
  const ArraySpec& spec = architecture.arrays[number];
  LocalArray local;
  local.number = number;
  local.stage = stage;
  local.offset.assign(spec.shape.size(), 0);
  local.extent = spec.shape;
  if (spec.split_axis >= 0) {
    const auto axis = static_cast<std::size_t>(spec.split_axis);
    const Slice part = shard.part(spec.shape[axis], spec.split_unit);
    local.offset[axis] = part.offset;
    local.extent[axis] = part.extent;
    local.split = true;
  }
  return local;
}

}  // namespace

std::vector<LocalArray> local_arrays(const Architecture& architecture, const Shard& shard) {
  std::vector<LocalArray> arrays;
  for (std::size_t i = 0; i < architecture.arrays.size(); ++i) {
    const Stage stage = shard.stage_of(architecture.arrays[i].layer);
    if (shard.holds(stage)) arrays.push_back(slice_of(architecture, shard, i, stage));
  }
  const bool tied = architecture.model.tied_embeddings;
  if (tied && shard.has_head() && !shard.has_embedding()) {
    arrays.push_back(slice_of(architecture, shard, 0, shard.last_stage()));
    arrays.back().copy = true;
  }
  return arrays;
}

}  // namespace trireme::architecture
