#include <trireme/plan/stages.hpp>

#include <trireme/architecture/shard.hpp>
#include <trireme/plan/cost.hpp>

namespace trireme::plan {
namespace {

/// Number of parameters of a shared vocabulary's tables on the ranks of a stage.
std::int64_t shared_parameters(const architecture::Architecture& architecture,
                               const deck::ParallelConfig& p, std::int64_t stage) {
  std::int64_t sum = 0;
  for (const architecture::ArraySpec& array : architecture.arrays)
    for (std::int64_t t = 0; array.of_vocabulary() && t < p.tensor; ++t)
      sum += layout::split(array.shape[0], p.vocabulary_parts(), stage * p.tensor + t).extent *
             array.shape[1];
  return sum;
}

/// Numbers of parameters by block, without the tables of the vocabulary if `shared`.
std::vector<std::int64_t> parameters_by_block(const architecture::Architecture& architecture,
                                              bool shared) {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(architecture.model.all_layers() + 2));
  for (const architecture::ArraySpec& array : architecture.arrays)
    if (!shared || !array.of_vocabulary())
      sums[static_cast<std::size_t>(array.block)] += array.elements();
  return sums;
}

}  // namespace

std::vector<StageGroup> group_stages(const architecture::Architecture& architecture,
                                     const deck::ParallelConfig& parallel) {
  const bool shared = parallel.shares_vocabulary();
  const std::vector<layout::Slice> stage_layers = architecture::partition(architecture, parallel);
  const std::vector<std::int64_t> parameters = parameters_by_block(architecture, shared);
  const std::vector<StageFlops> flops = stage_flops(
      architecture, stage_layers, {},
      shared ? architecture::HeadGradient::shared : architecture::HeadGradient::with_losses);
  std::vector<StageGroup> groups;
  for (std::size_t s = 0; s < stage_layers.size(); ++s) {
    const layout::Slice& layers = stage_layers[s];
    StageGroup stage{static_cast<Stage>(s), static_cast<Stage>(s), layers, layers.extent, 0,
                     flops[s].sum()};
    for (std::int64_t layer = layers.offset; layer < layers.end(); ++layer)
      stage.parameters += parameters[static_cast<std::size_t>(architecture::block_of_layer(layer))];
    if (s == 0) stage.parameters += parameters.front();
    if (s + 1 == stage_layers.size()) stage.parameters += parameters.back();
    if (shared)
      stage.parameters += shared_parameters(architecture, parallel, static_cast<std::int64_t>(s));
    const bool alike = !groups.empty() && groups.back().layers_each == stage.layers_each &&
                       groups.back().parameters == stage.parameters &&
                       groups.back().flops == stage.flops;
    if (!alike) {
      groups.push_back(stage);
      continue;
    }
    groups.back().last = stage.last;
    groups.back().layers.extent += layers.extent;
  }
  return groups;
}

}  // namespace trireme::plan
