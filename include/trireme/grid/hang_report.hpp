#pragma once

#include <trireme/base/types.hpp>
#include <trireme/grid/heartbeat.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::grid {

/// A watchdog's information about one rank.
struct Sighting {
  enum class Condition : std::uint8_t {
    runs,
    stopped,  ///< By SIGSTOP or a debugger.
    dead,
    silent,  ///< Its node has stopped publishing.
  };
  RankState state;
  std::string node;
  Condition condition = Condition::runs;
  Seconds age = 0;  ///< Since the last progress.
};

/// "step 3, forward stage 2 micro 5"; "the start" for a rank that has not published anything.
std::string describe_activity(const RankState& state);
/// "all_reduce \"gradients\", number 17 on data"; "receive \"activation\" from rank 3, channel 5 on
/// pipeline".
std::string describe_wait(const RankState& state);

/// One line: "rank 2 (pid 4242 on a) has died in step 3, forward, …".
std::string death_report(const Sighting& dead);

/// One line per group of ranks with the same activity. Order: dead, silent, stopped, computing
/// while others wait, waiting; small groups first. The headline names the watchdog's `limit`.
/// `limit` = 0 means that a death, not a timeout, is the cause.
std::string hang_report(const std::vector<Sighting>& ranks, Seconds limit);

}  // namespace trireme::grid
