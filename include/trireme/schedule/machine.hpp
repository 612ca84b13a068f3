#pragma once

#include <trireme/schedule/program.hpp>
#include <trireme/schedule/timeline.hpp>

#include <optional>
#include <string>
#include <vector>

namespace trireme::schedule {

struct SimulateOptions {
  std::optional<Transport> transport;  ///< empty: the program's own transport
  /// Send buffers per channel (stage, direction). 0: the smallest number ≥ 2 with which the program
  /// completes; if it never completes, the number of micro-batches in all steps, at least 3.
  int send_buffers = 0;
};

struct Simulation {
  Timeline timeline;                  ///< events rank by rank, in the order of each row
  std::vector<std::string> mistakes;  ///< empty if every instruction ran; otherwise the reasons
  int send_buffers = 0;               ///< send buffers per channel in this simulation
};

/// Simulates a lowered program in virtual time. Each rank runs its row in order. An instruction
/// begins when the rank is free and all its inputs exist.
///
/// A transfer arrives cost(receive) after its send was started and its receive posted, and occupies
/// neither rank. Under ordered groups, it also waits for its turn in both ranks' queues. A send to
/// another rank begins once fewer than `send_buffers` earlier sends of its channel are in flight. A
/// send occupies its rank for cost(send), the time to start it. In a program of one step, a
/// collective begins when all its members have entered. Channels are bounded first-in-first-out
/// queues, so that completion does not depend on the costs (Kahn 1974; Parks 1995).
Simulation simulate(const Program& program, const Cost& cost, const SimulateOptions& options = {});

}  // namespace trireme::schedule
