#pragma once

#include <trireme/plan/memory.hpp>
#include <trireme/plan/traffic.hpp>
#include <trireme/schedule/needs.hpp>
#include <trireme/schedule/program.hpp>

#include <cstdint>
#include <map>
#include <vector>

namespace trireme::plan {

/// Sizes of a rank that depend only on its arrays: arenas and additional host memory.
struct ShardSizes {
  ArenaSizes arenas;
  Bytes checkpoint_copy = 0;  ///< on the host
  Bytes reduction = 0;        ///< on the host
};

/// Cache of sizes by the values that determine a rank's arrays, for ranks and layouts with equal
/// arrays.
using KnownParts = std::map<std::vector<std::int64_t>, ShardSizes>;

/// Memory and messages of one position of the process grid.
struct RankPlan {
  int pipeline = 0;
  int tensor = 0;
  bool repeats = false;  ///< equal to an earlier rank, except for its position
  schedule::Needs needs;
  ShardSizes parts;
  std::vector<MemoryRow> memory;
  Bytes process = 0;  ///< host memory besides all arrays
  std::vector<TrafficRow> traffic;
  int data = 0;  ///< position on the data axis

  /// Total memory of a rank whose kernels run on the host.
  Bytes peak() const { return total(memory) + parts.checkpoint_copy + parts.reduction + process; }
};

/// Plans of the ranks of different_tensor_ranks() in every pipeline rank. `needs`: per pipeline
/// rank, from training_needs(). Traffic is counted for the full global batch.
std::vector<RankPlan> plan_ranks(const deck::Config& config,
                                 const architecture::Architecture& architecture,
                                 const std::vector<schedule::Needs>& needs, const Machine& machine);

/// Tensor ranks that can need different memory, ascending: the first and the last tensor rank. If
/// ranks share heads of keys and values, also one rank of every other kind: ranks of a kind have
/// parts of equal sizes and share their first and last head alike.
std::vector<int> different_tensor_ranks(const deck::Config& config,
                                        const architecture::Architecture& architecture,
                                        const architecture::Shard& shard, const Machine& machine);

/// Sets the memory of `ranks` for another [parallel] recompute in `config`. `known` caches arenas
/// between calls.
void replan_memory(std::vector<RankPlan>& ranks, const deck::Config& config,
                   const architecture::Architecture& architecture, const Machine& machine,
                   KnownParts& known);

/// Memory of the rank that needs the most: device memory if kernels run on a device, otherwise the
/// memory of its whole process. With `arrays_only`, only arrays in the kernels' memory count.
Bytes most_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                 const std::vector<schedule::Needs>& needs, const Machine& machine,
                 bool arrays_only, KnownParts& known);

/// The first rank with the most memory for its kernels, with the least memory for its kernels, with
/// the largest peak(), or with the most traffic.
const RankPlan& most_memory(const std::vector<RankPlan>& ranks);
const RankPlan& least_memory(const std::vector<RankPlan>& ranks);
const RankPlan& most_at_peak(const std::vector<RankPlan>& ranks);
const RankPlan& most_traffic(const std::vector<RankPlan>& ranks);

/// The plan of a run, computed from its resolved deck and the machine.
struct Plan {
  architecture::Architecture architecture;
  std::vector<schedule::Program> programs;  ///< from step_programs()
  std::vector<RankPlan> ranks;              ///< from plan_ranks()
  std::vector<RankPlan> servers;            ///< result of plan_server(); empty without servers
};
Plan make_plan(const deck::Config& config, const Machine& machine);

}  // namespace trireme::plan
