#pragma once

#include <trireme/architecture/arrangement.hpp>
#include <trireme/architecture/layer_program.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>

#include <cstdint>
#include <vector>

namespace trireme::plan {

/// How often a rank gathers each unit of its weights in a step, from its row of the program: before
/// each pass that reads the unit, unless its window still holds it. `layer`: program of a layer.
/// Empty if no weights take turns.
std::vector<std::int64_t> unit_gathers(const deck::Config& config,
                                       const architecture::Architecture& architecture,
                                       const architecture::Shard& shard,
                                       const architecture::Arrangement& weights,
                                       const architecture::LayerProgram& layer,
                                       const Machine& machine);

}  // namespace trireme::plan
