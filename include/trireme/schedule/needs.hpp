#pragma once

#include <trireme/schedule/program.hpp>

#include <vector>

namespace trireme::schedule {

/// Memory besides weights that a rank needs to run its row of a lowered program. Counts are maxima
/// over time.
struct Needs {
  int slots = 0;                 ///< saved micro-batches
  int received_activations = 0;  ///< posted receive buffers that are not yet consumed,
  int received_gradients = 0;    ///<   over all channels of the rank
  int handed_over = 0;           ///< messages to the same rank that are not yet consumed
  int send_buffers = 0;          ///< per channel (stage, direction) to another rank, equal
                                 ///<   on all ranks: the smallest number ≥ 2 with which the
                                 ///<   program completes
  int logits_slots = 0;          ///< kept softmaxes of micro-batches, with a shared vocabulary
  bool split_backward = false;   ///< a slot is kept between the halves of a backward pass
  bool operator==(const Needs&) const = default;

  /// Takes the maximum of each need, so that the result suffices for both rows.
  void include(const Needs& other);
};

/// The needs of one rank, counted from effects(). Simulates the program to find the number of send
/// buffers.
Needs needs(const Program& program, Rank rank);
/// The needs of all ranks.
std::vector<Needs> needs(const Program& program);

/// The needs of a rank in a generated schedule and in evaluations, by formulas. Slots equal those
/// of needs(); in a V, the largest of all ranks. Buffers may differ by a few, because they depend
/// on the order of transfers in the whole program.
Needs expected_needs(ScheduleKind kind, const ProgramLayout& layout, Rank rank);

/// Slots of saved activations that `rank` needs at once.
int slots_needed(const Program& program, Rank rank);

}  // namespace trireme::schedule
