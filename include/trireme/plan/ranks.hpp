#pragma once

#include <trireme/plan/memory.hpp>
#include <trireme/plan/traffic.hpp>
#include <trireme/schedule/needs.hpp>
#include <trireme/schedule/program.hpp>

#include <cstdint>
#include <map>
#include <vector>

namespace trireme::plan {

/// Arenas of a rank and what its host holds besides, which depend on its arrays only.
struct ShardParts {
  ArenaParts arenas;
  Bytes checkpoint_copy = 0;  ///< on the host
  Bytes reduction = 0;        ///< on the host
};

/// By axes, tensor rank and layers of the rank's stages: ranks and layouts that differ in something
/// else share them.
using KnownParts = std::map<std::vector<std::int64_t>, ShardParts>;

/// Memory and messages of one place of the process grid; replicas are equal.
struct RankPlan {
  int pipeline = 0;
  int tensor = 0;
  bool repeats = false;  ///< equal to a rank before it, but for its place
  schedule::Needs needs;
  ShardParts parts;
  std::vector<MemoryRow> memory;
  Bytes process = 0;  ///< on the host, besides all arrays
  std::vector<TrafficRow> traffic;
  int data = 0;  ///< place on the data axis

  /// Total of a rank whose kernels run on the host.
  Bytes peak() const { return total(memory) + parts.checkpoint_copy + parts.reduction + process; }
};

/// For every pipeline rank: the first and the last tensor rank, which hold the largest and the
/// smallest parts of split arrays. If tensor ranks share heads of keys and values, others may hold
/// more: then one rank of each kind, ascending. `needs` per pipeline rank, from training_needs().
/// Traffic is that of a full batch.
std::vector<RankPlan> plan_ranks(const deck::Config& config,
                                 const architecture::Architecture& architecture,
                                 const std::vector<schedule::Needs>& needs, const Machine& machine);

/// Tensor ranks that can need different memory: the first and the last one, and with shared heads
/// of keys and values one of each kind.
std::vector<int> different_tensor_ranks(const deck::Config& config,
                                        const architecture::Shard& shard, const Machine& machine);

/// Plans the memory of the same ranks again, with another [parallel] recompute, which may also move
/// layers between stages. `known` keeps arenas between calls.
void replan_memory(std::vector<RankPlan>& ranks, const deck::Config& config,
                   const architecture::Architecture& architecture, const Machine& machine,
                   KnownParts& known);

/// Memory of the rank that needs the most: where the kernels run on a device, otherwise all that
/// its process uses. With `arrays_only`, a host's process is not counted either.
Bytes most_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                 const std::vector<schedule::Needs>& needs, const Machine& machine,
                 bool arrays_only, KnownParts& known);

/// The first rank with the most memory, with the least memory, or with the most traffic.
const RankPlan& most_memory(const std::vector<RankPlan>& ranks);
const RankPlan& least_memory(const std::vector<RankPlan>& ranks);
const RankPlan& most_at_peak(const std::vector<RankPlan>& ranks);
const RankPlan& most_traffic(const std::vector<RankPlan>& ranks);

/// What a run will need, found from its resolved deck alone.
struct Plan {
  architecture::Architecture architecture;
  std::vector<schedule::Program> programs;  ///< of step_programs()
  std::vector<RankPlan> ranks;              ///< of plan_ranks()
  std::vector<RankPlan> servers;            ///< the first server's rank; empty without servers
};
Plan make_plan(const deck::Config& config, const Machine& machine);

}  // namespace trireme::plan
