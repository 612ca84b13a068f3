#pragma once

#include <trireme/base/types.hpp>
#include <trireme/grid/heartbeat.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::grid {

/// What a watchdog knows of one rank.
struct Sighting {
  enum class Condition : std::uint8_t {
    runs,
    stopped,  ///< By SIGSTOP or a debugger.
    dead,
    silent,  ///< Its node gives no sign of life.
  };
  RankState state;
  std::string node;
  Condition condition = Condition::runs;
  Seconds age = 0;  ///< Since the last progress.
};

/// "step 3, forward stage 2 micro 5"; of a rank that has not said anything, "the start".
std::string describe_activity(const RankState& state);
/// "all_reduce \"gradients\", number 17 on data"; "receive \"activation\" from rank 3, channel 5 on
/// pipeline".
std::string describe_wait(const RankState& state);

/// "rank 2 (pid 4242 on a) has died in step 3, forward, …", a line.
std::string death_report(const Sighting& dead);

/// A line per group of ranks that do the same, suspects first: the dead, the silent, the stopped,
/// those that compute while others wait, then those that wait, small groups first. `limit` is the
/// watchdog's and makes the headline; 0 where a death and no lapse of time is the cause.
std::string hang_report(const std::vector<Sighting>& ranks, Seconds limit);

}  // namespace trireme::grid
