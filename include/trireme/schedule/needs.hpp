#pragma once

#include <trireme/schedule/program.hpp>

#include <vector>

namespace trireme::schedule {

/// The memory besides weights that a rank needs to run its row of a lowered program.
struct Needs {
  int slots = 0;                 ///< saved micro-batches alive at the same time
  int received_activations = 0;  ///< receive buffers posted and not consumed at the same time,
  int received_gradients = 0;    ///<   all channels of the rank together
  int send_buffers = 0;          ///< of each channel (stage, direction), the same on all ranks: the
                                 ///<   smallest number ≥ 2 with which the program completes
  bool split_backward = false;   ///< some slot is kept between the halves of a backward pass
  bool operator==(const Needs&) const = default;

  /// What serves both: the larger of each.
  void include(const Needs& other);
};

/// Of one rank; counted from effects(). Plays the program for the number of send buffers.
Needs needs(const Program& program, Rank rank);
/// Of all ranks.
std::vector<Needs> needs(const Program& program);

/// Slots of saved activations that `rank` needs at the same time.
int slots_needed(const Program& program, Rank rank);

}  // namespace trireme::schedule
