#include <trireme/plan/gathers.hpp>

#include <trireme/architecture/frozen.hpp>
#include <trireme/plan/program.hpp>

#include <algorithm>

namespace trireme::plan {
namespace {

using schedule::Op;

/// Layers whose weights a pass reads, in order (architecture::layer_of).
std::vector<std::int64_t> layers_read(const schedule::Instr& instr,
                                      const architecture::Shard& shard,
                                      const architecture::Architecture& architecture,
                                      const architecture::LayerProgram& layer) {
  const layout::Slice own = shard.stage_layers[static_cast<std::size_t>(instr.stage)];
  const bool head = instr.stage == shard.last_stage();
  std::vector<std::int64_t> layers;
  const auto add = [&] {
    for (std::int64_t l = own.offset; l < own.end(); ++l) layers.push_back(l);
  };
  // No layer before all trained arrays has a backward pass.
  const std::int64_t first = std::max(own.offset, architecture::first_trained(architecture));
  const auto add_reversed = [&] {
    for (std::int64_t l = own.end(); l-- > first;) layers.push_back(l);
  };
  const auto add_backward = [&] {
    if (head) layers.push_back(architecture.model.layers);
    add_reversed();
  };
  switch (instr.op) {
    case Op::forward:
      if (instr.stage == 0) layers.push_back(-1);
      add();
      if (head) layers.push_back(architecture.model.layers);
      break;
    case Op::backward:
    case Op::backward_input:
      add_backward();
      break;
    default:
      break;
  }
  // A whole pass of a program that splits others runs as its halves.
  const bool weights =
      instr.op == Op::backward_weight || (instr.op == Op::backward && layer.split_backward);
  if (weights && architecture::reads_weights(layer.backward_weight)) add_reversed();
  return layers;
}

}  // namespace

std::vector<std::int64_t> unit_gathers(const deck::Config& config,
                                       const architecture::Architecture& architecture,
                                       const architecture::Shard& shard,
                                       const architecture::Arrangement& weights,
                                       const architecture::LayerProgram& layer,
                                       const Machine& machine) {
  if (!weights.has_windows()) return {};
  std::vector<std::int64_t> counts(weights.units().size());
  architecture::WindowTurns turns(weights);
  const schedule::Program program = step_program(config, machine);
  const Rank rank = program.layout.rank_of(shard.stages.front());
  for (const schedule::Instr& instr : program.ranks[static_cast<std::size_t>(rank)]) {
    if (!schedule::is_pass(instr.op)) continue;
    for (const std::int64_t read : layers_read(instr, shard, architecture, layer)) {
      const int unit = weights.unit_of(read);
      if (unit < 0 || turns.holds(unit)) continue;
      turns.take(unit);
      ++counts[static_cast<std::size_t>(unit)];
    }
  }
  return counts;
}

}  // namespace trireme::plan
