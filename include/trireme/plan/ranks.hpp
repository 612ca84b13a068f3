#pragma once

#include <trireme/plan/memory.hpp>
#include <trireme/plan/traffic.hpp>
#include <trireme/schedule/needs.hpp>

#include <vector>

namespace trireme::plan {

/// What one place of the process grid holds and sends; replicas are alike.
struct RankPlan {
  int pipeline = 0;
  int tensor = 0;
  schedule::Needs needs;
  std::vector<MemoryRow> memory;
  Bytes checkpoint_copy = 0;  ///< on the host
  Bytes reduction = 0;        ///< on the host
  Bytes process = 0;          ///< on the host, beside all arrays
  std::vector<TrafficRow> traffic;

  /// Of a rank whose device is its host.
  Bytes peak() const { return total(memory) + checkpoint_copy + reduction + process; }
};

/// Of every pipeline rank the first and the last tensor rank, which hold the largest and the
/// smallest parts of what the tensor axis cuts; where tensor ranks share heads of keys and values,
/// so that others may hold more, one of each kind, ascending. `needs` of each pipeline rank, as
/// training_needs() has them. Traffic is that of a full batch.
std::vector<RankPlan> plan_ranks(const deck::Config& config,
                                 const architecture::Architecture& architecture,
                                 const std::vector<schedule::Needs>& needs, const Machine& machine);

/// The first of those that need most or least memory, or send most.
const RankPlan& most_memory(const std::vector<RankPlan>& ranks);
const RankPlan& least_memory(const std::vector<RankPlan>& ranks);
const RankPlan& most_at_peak(const std::vector<RankPlan>& ranks);
const RankPlan& most_traffic(const std::vector<RankPlan>& ranks);

}  // namespace trireme::plan
