#include <trireme/plan/cost.hpp>
#include <trireme/plan/stages.hpp>

namespace trireme::plan {
namespace {

/// Parameters before the layers, of each layer, and after the layers: L + 2 numbers.
std::vector<std::int64_t> parameters_by_layer(const architecture::Architecture& architecture) {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(architecture.model.layers + 2));
  for (const architecture::ArraySpec& array : architecture.arrays)
    sums[static_cast<std::size_t>(array.layer + 1)] += array.elements();
  return sums;
}

}  // namespace

std::vector<StageGroup> group_stages(const architecture::Architecture& architecture,
                                     const std::vector<layout::Slice>& stage_layers) {
  const std::vector<std::int64_t> parameters = parameters_by_layer(architecture);
  const std::vector<StageFlops> flops = stage_flops(architecture, stage_layers);
  std::vector<StageGroup> groups;
  for (std::size_t s = 0; s < stage_layers.size(); ++s) {
    const layout::Slice& layers = stage_layers[s];
    StageGroup stage{static_cast<Stage>(s), static_cast<Stage>(s), layers, layers.extent, 0,
                     flops[s].sum()};
    for (std::int64_t layer = layers.offset; layer < layers.end(); ++layer)
      stage.parameters += parameters[static_cast<std::size_t>(layer + 1)];
    if (s == 0) stage.parameters += parameters.front();
    if (s + 1 == stage_layers.size()) stage.parameters += parameters.back();
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
