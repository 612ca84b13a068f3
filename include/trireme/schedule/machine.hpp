#pragma once

#include <trireme/schedule/program.hpp>
#include <trireme/schedule/timeline.hpp>

#include <optional>
#include <string>
#include <vector>

namespace trireme::schedule {

struct PlayOptions {
  std::optional<Transport> transport;  ///< null: the one for which the program was lowered
  /// Send buffers of each channel (stage, direction); 0: the smallest number ≥ 2 with which the
  /// program completes, or as many as micro-batches if it never does.
  int send_buffers = 0;
};

struct Played {
  Timeline timeline;                  ///< events rank by rank, in the order of each row
  std::vector<std::string> mistakes;  ///< empty if every instruction ran; else why which did not
  int send_buffers = 0;               ///< that were there for each channel
};

/// Plays a lowered program in virtual time. Each rank runs its row in order; an instruction begins
/// when the rank is free and all that it reads exists.
///
/// A transfer arrives cost(receive) after its send was started and its receive posted, and occupies
/// neither rank; under ordered groups it also waits its turn in both ranks' queues and for the
/// others of its group. A send begins once fewer than `send_buffers` earlier ones of its channel
/// are under way, and occupies its rank for cost(send), the time to start it. A collective begins
/// when all its members are there. Ranks wait for one another only by bounded first-in-first-out
/// channels, so whether the program completes depends on no cost (Kahn 1974; Parks 1995).
Played play(const Program& program, const Cost& cost, const PlayOptions& options = {});

}  // namespace trireme::schedule
