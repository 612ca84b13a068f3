#pragma once

#include <trireme/schedule/program.hpp>
#include <trireme/schedule/schedules.hpp>

#include <vector>

namespace trireme::schedule {

/// Memory besides weights that a rank needs for its row of a lowered program: maxima over time.
struct Needs {
  int slots = 0;  ///< number of saved micro-batches
  /// Receive buffers of all channels of the rank that are posted and not yet consumed.
  int received_activations = 0;
  int received_gradients = 0;
  int handed_over = 0;  ///< number of messages to the same rank that are not yet consumed
  /// Send buffers per channel (stage, direction) to another rank: the smallest number ≥ 2 with
  /// which the program completes. Equal on all ranks.
  int send_buffers = 0;
  int logits_slots = 0;         ///< with a shared vocabulary: micro-batches whose softmax is kept
  bool split_backward = false;  ///< a slot is kept between the halves of a backward pass
  bool operator==(const Needs&) const = default;

  /// Takes the maximum of each need, so that the result suffices for both rows.
  void include(const Needs& other);
};

/// Counted from effects(). The number of send buffers is found by simulation.
Needs needs(const Program& program, Rank rank);
std::vector<Needs> needs(const Program& program);

/// Usual buffers of a rank for messages, and no slots. They may differ by a few from those of
/// needs(program).
Needs buffers_needed(const ProgramLayout& layout, Rank rank);
/// Needs of a rank in a named schedule without a shared vocabulary: slots as the schedule repeats
/// them (row_counts()), and the usual buffers.
Needs expected_needs(ScheduleKind kind, const ProgramLayout& layout, Rank rank);

/// Number of slots of saved activations that `rank` needs at once.
int slots_needed(const Program& program, Rank rank);

}  // namespace trireme::schedule
