#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/plan/network_time.hpp>
#include <trireme/plan/step_costs.hpp>

#include <cstdint>

namespace trireme::plan {

/// Passes of a pipeline rank in a step that begin while the windows hold other layers than the
/// first that the pass reads. Before the others, the windows still hold these.
struct Refills {
  double forward = 0;
  double backward = 0;
};
/// `layers`: of the rank. Exact for one stage on the rank; with several, layers of other stages
/// take the windows before each pass.
Refills refills_of(const deck::ParallelConfig& parallel, Rank rank, std::int64_t layers,
                   std::int64_t micro_batches);

/// Adds the time for which passes and updates wait for weights that replicas divide. Each layer
/// hides the gather of the next one (optim::WeightGather), and the next step's first passes hide
/// gathers of new weights. `costs` has the times of all stages, `sums` are their sums
/// of gradients, `element` the bytes of a weight, and `turns` how much longer passes take than
/// those of `parts`.
void add_gathers(StepCosts& costs, const deck::Config& config,
                 const architecture::Architecture& architecture, const PartTimes& parts,
                 const StageSizes& sizes, const std::vector<Seconds>& sums, double element,
                 double turns, const NetworkTime& network, const Machine& machine);

}  // namespace trireme::plan
