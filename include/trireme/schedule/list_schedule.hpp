#pragma once

#include <trireme/schedule/program.hpp>
#include <trireme/schedule/timeline.hpp>

#include <vector>

namespace trireme::schedule {

/// Durations of a step by stage.
struct StageCosts {
  std::vector<Seconds> forward, backward, backward_input, backward_weight;
  std::vector<Seconds> to_next, to_previous;  ///< from the end of a pass to the arrival
};
StageCosts stage_costs(const ProgramLayout& layout, const Cost& cost);

/// The rule by which a rank chooses among the passes that can begin.
struct ListRule {
  bool split = true;             ///< the halves of a backward pass are apart
  bool forward_first = false;    ///< before backward passes, otherwise after them
  bool deepest_first = true;     ///< of a rank's chunks, otherwise the one that waits longest
  bool weights_at_once = false;  ///< weight halves before other passes, otherwise in idle time
  /// A weight half begins only if no other pass arrives within this part of its time.
  double patience = 0;
  std::vector<int> slots;  ///< by rank: saved micro-batches, at least one for each chunk
  bool operator==(const ListRule&) const = default;
};

/// The program in which each rank takes the next pass by the rule, in virtual time. Not lowered.
struct ListSchedule {
  Program program;
  Seconds seconds = 0;
};
ListSchedule list_schedule(const ProgramLayout& layout, const StageCosts& costs,
                           const ListRule& rule);

}  // namespace trireme::schedule
