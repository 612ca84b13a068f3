#pragma once

#include <trireme/plan/memory.hpp>
#include <trireme/plan/traffic.hpp>
#include <trireme/schedule/needs.hpp>
#include <trireme/schedule/program.hpp>

#include <cstdint>
#include <map>
#include <vector>

namespace trireme::plan {

/// Arenas and additional host memory of a rank, which depend only on its arrays.
struct ShardParts {
  ArenaParts arenas;
  Bytes checkpoint_copy = 0;  ///< on the host
  Bytes reduction = 0;        ///< on the host
};

/// Parts by axes, tensor rank and layers of the rank's stages, shared by ranks and layouts that
/// agree in these.
using KnownParts = std::map<std::vector<std::int64_t>, ShardParts>;

/// Memory and messages of one position of the process grid; replicas are equal.
struct RankPlan {
  int pipeline = 0;
  int tensor = 0;
  bool repeats = false;  ///< equal to an earlier rank, except for its position
  schedule::Needs needs;
  ShardParts parts;
  std::vector<MemoryRow> memory;
  Bytes process = 0;  ///< host memory besides all arrays
  std::vector<TrafficRow> traffic;
  int data = 0;  ///< position on the data axis

  /// Total memory of a rank whose kernels run on the host.
  Bytes peak() const { return total(memory) + parts.checkpoint_copy + parts.reduction + process; }
};

/// Plans for every pipeline rank: the first and the last tensor rank, which hold the largest and
/// the smallest parts of split arrays. If tensor ranks share heads of keys and values, other ranks
/// may hold more: then one rank of each kind is planned, ascending. `needs` per pipeline rank, from
/// training_needs(). Traffic is for a full batch.
std::vector<RankPlan> plan_ranks(const deck::Config& config,
                                 const architecture::Architecture& architecture,
                                 const std::vector<schedule::Needs>& needs, const Machine& machine);

/// Tensor ranks that can need different memory: the first and the last rank, and with shared heads
/// of keys and values one rank of each kind.
std::vector<int> different_tensor_ranks(const deck::Config& config,
                                        const architecture::Shard& shard, const Machine& machine);

/// Plans the memory of the same ranks for another [parallel] recompute, which may also move layers
/// between stages. `known` caches arenas between calls.
void replan_memory(std::vector<RankPlan>& ranks, const deck::Config& config,
                   const architecture::Architecture& architecture, const Machine& machine,
                   KnownParts& known);

/// Memory of the rank that needs the most: device memory if kernels run on a device, otherwise all
/// memory of its process. With `arrays_only`, the process's other memory is not counted.
Bytes most_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                 const std::vector<schedule::Needs>& needs, const Machine& machine,
                 bool arrays_only, KnownParts& known);

/// The first rank with the most memory, with the least memory, or with the most traffic.
const RankPlan& most_memory(const std::vector<RankPlan>& ranks);
const RankPlan& least_memory(const std::vector<RankPlan>& ranks);
const RankPlan& most_at_peak(const std::vector<RankPlan>& ranks);
const RankPlan& most_traffic(const std::vector<RankPlan>& ranks);

/// The plan of a run, found from its resolved deck alone.
struct Plan {
  architecture::Architecture architecture;
  std::vector<schedule::Program> programs;  ///< from step_programs()
  std::vector<RankPlan> ranks;              ///< from plan_ranks()
  std::vector<RankPlan> servers;            ///< the first server's rank; empty without servers
};
Plan make_plan(const deck::Config& config, const Machine& machine);

}  // namespace trireme::plan
