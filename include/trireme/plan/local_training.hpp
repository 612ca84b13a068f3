#pragma once

#include <trireme/architecture/outer_steps.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/plan/memory_parts.hpp>
#include <trireme/plan/traffic.hpp>

#include <cstdint>
#include <vector>

/// Memory and messages of local training ([local]).
namespace trireme::plan {

/// Elements of a worker's weights that are swapped, and of the largest fragment of an outer step.
struct LocalElements {
  std::int64_t parked = 0;
  std::int64_t fragment = 0;
};
/// Sets the bytes of the shared weights, of the workers that are not selected, and of messages.
void add_local(ArenaParts& arenas, const deck::Config& config, const LocalElements& elements,
               const TrainingSizes& sizes);

/// Messages of a rank of the first group in `inner_steps` steps, besides the messages of each step:
/// axis "workers". With divided state, the rank's replica has an average part.
std::vector<TrafficRow> outer_traffic(const deck::Config& config,
                                      const architecture::Architecture& architecture,
                                      const architecture::Shard& shard, const Machine& machine);

}  // namespace trireme::plan
