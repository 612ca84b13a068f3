#pragma once

#include <trireme/plan/memory.hpp>
#include <trireme/plan/ranks.hpp>
#include <trireme/plan/traffic.hpp>

#include <vector>

/// Memory and messages of the ranks of parameter servers. `shard`: shard of the worker ranks with
/// the same tensor and pipeline coordinates.
namespace trireme::plan {

/// Bytes that a server rank allocates, arena by arena.
std::vector<MemoryRow> server_memory(const deck::Config& config,
                                     const architecture::Architecture& architecture,
                                     const architecture::Shard& shard, const Machine& machine);

/// Bytes of a server rank's share of a checkpoint, on the server that writes the most.
Bytes server_share_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                         const architecture::Shard& shard, const Machine& machine);

/// Gradients that a worker rank sends in a step.
TrafficRow worker_messages(const deck::Config& config,
                           const architecture::Architecture& architecture,
                           const architecture::Shard& shard, const Machine& machine);
/// Weights that a rank of server number `server` sends in a step, and its sums with other server
/// ranks.
std::vector<TrafficRow> server_messages(const deck::Config& config,
                                        const architecture::Architecture& architecture,
                                        const architecture::Shard& shard, int server,
                                        const Machine& machine);

/// Among the ranks of the first server, the plan of the rank that needs the most memory.
RankPlan plan_server(const deck::Config& config, const architecture::Architecture& architecture,
                     const Machine& machine);

}  // namespace trireme::plan
