#pragma once

#include <trireme/schedule/program.hpp>
#include <trireme/schedule/timeline.hpp>

#include <vector>

namespace trireme::schedule {

/// Durations by stage: of passes, including the start of their sends, and of transfers.
struct StageCosts {
  std::vector<Seconds> forward, backward, backward_input, backward_weight;
  std::vector<Seconds> to_next, to_previous;  ///< times from the end of a pass to the arrival
};
StageCosts stage_costs(const ProgramLayout& layout, const Cost& cost);

/// Rule by which a rank selects one of the passes that can begin.
struct ListRule {
  bool split = true;           ///< backward_input and backward_weight are separate passes
  bool forward_first = false;  ///< forward passes before backward passes, otherwise after them
  bool deepest_first = true;   ///< deepest chunk first, otherwise the pass that waits longest
  /// Weight gradients (backward_weight) before other passes, otherwise in idle time.
  bool weights_at_once = false;
  /// backward_weight waits if another pass can begin within this fraction of its own duration.
  double patience = 0;
  std::vector<int> slots;  ///< maximum of saved micro-batches, by rank; at least 1 per chunk
  bool operator==(const ListRule&) const = default;
};

/// A program in which each rank selects its next pass by the rule, in virtual time. Not lowered.
struct ListSchedule {
  Program program;
  Seconds seconds = 0;  ///< end of the last pass, in virtual time
};
ListSchedule list_schedule(const ProgramLayout& layout, const StageCosts& costs,
                           const ListRule& rule);

}  // namespace trireme::schedule
