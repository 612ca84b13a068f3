#pragma once

#include <trireme/schedule/program.hpp>

#include <vector>

namespace trireme::schedule {

/// The memory, besides weights, that a rank needs to run its row of a lowered program.
struct Needs {
  int slots = 0;                 ///< saved micro-batches alive at once
  int received_activations = 0;  ///< receive buffers posted and not yet consumed, at once,
  int received_gradients = 0;    ///<   over all channels of the rank
  int handed_over = 0;           ///< messages to the same rank, not yet consumed, at once
  int send_buffers = 0;          ///< of each channel (stage, direction) to another rank, the same
                                 ///<   on all ranks: the smallest number ≥ 2 with which the
                                 ///<   program completes
  int logits_slots = 0;          ///< of a shared vocabulary: softmax of a micro-batch, kept at once
  bool split_backward = false;   ///< a slot is kept between the halves of a backward pass
  bool operator==(const Needs&) const = default;

  /// Takes the maximum of each, which satisfies both.
  void include(const Needs& other);
};

/// The needs of one rank, counted from effects(). Plays the program to find the number of send
/// buffers.
Needs needs(const Program& program, Rank rank);
/// The needs of all ranks.
std::vector<Needs> needs(const Program& program);

/// The needs of a rank in a generated schedule and in evaluations, by formulas. Slots are those of
/// needs(); in a V, those of the rank with the most. Buffers may be a few more or fewer: the order
/// of transfers in the whole program determines them.
Needs expected_needs(ScheduleKind kind, const ProgramLayout& layout, Rank rank);

/// Slots of saved activations that `rank` needs at once.
int slots_needed(const Program& program, Rank rank);

}  // namespace trireme::schedule
