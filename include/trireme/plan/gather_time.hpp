#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/plan/network_time.hpp>
#include <trireme/plan/step_costs.hpp>

#include <cstdint>

namespace trireme::plan {

/// Number of passes per step through a stage that find none of its layers in the windows.
struct Refills {
  double forward = 0;
  double backward = 0;
};
/// Refills of each stage of pipeline rank `rank`, which has `layers` layers in all its stages.
Refills refills_of(const deck::ParallelConfig& parallel, Rank rank, std::int64_t layers,
                   std::int64_t micro_batches);

/// Adds the time for which passes and updates wait for weights that replicas divide
/// (optim::WeightGather). `costs` must have the times of all stages, `sums` the times of their
/// gradient sums, `element` the bytes of a weight, and `turns` the ratio of the passes' times to
/// the times in `parts`. No effect unless replicas divide state.
void add_gathers(StepCosts& costs, const deck::Config& config,
                 const architecture::Architecture& architecture, const BlockTimes& parts,
                 const StageSizes& sizes, const std::vector<Seconds>& sums, double element,
                 double turns, const NetworkTime& network, const Machine& machine);

}  // namespace trireme::plan
