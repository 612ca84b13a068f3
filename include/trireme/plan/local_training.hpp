#pragma once

#include <trireme/architecture/outer_steps.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/plan/memory_parts.hpp>
#include <trireme/plan/traffic.hpp>

#include <cstdint>
#include <vector>

/// Memory and messages of local training ([local]).
namespace trireme::plan {

/// Numbers of elements of a rank in local training.
struct LocalElements {
  std::int64_t parked = 0;    ///< weights of a worker that is not selected
  std::int64_t fragment = 0;  ///< largest fragment of an outer step
};
/// Sets the bytes of local training in `arenas`: shared weights and outer momentum, weights and
/// state of the workers that are not selected, and buffers of messages. No effect with one worker.
void add_local(ArenaSizes& arenas, const deck::Config& config, const LocalElements& elements,
               const TrainingSizes& sizes);

/// Messages of outer steps (axis "workers") that a rank of the first worker group sends in
/// `inner_steps` steps, in addition to the messages of each step; empty if there is one group. If
/// replicas divide state, the rank's own part is assumed to have the average size.
std::vector<TrafficRow> outer_traffic(const deck::Config& config,
                                      const architecture::Architecture& architecture,
                                      const architecture::Shard& shard, const Machine& machine);

}  // namespace trireme::plan
