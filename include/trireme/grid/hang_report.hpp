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
    stopped,  ///< stopped by SIGSTOP or by a debugger
    dead,
    silent,  ///< on a node that has stopped publishing
  };
  RankState state;
  std::string node;
  Condition condition = Condition::runs;
  Seconds age = 0;  ///< time since the rank's last progress
};

/// Text such as "step 3, forward stage 2 micro 5"; "the start" for a rank that has not published an
/// activity.
std::string describe_activity(const RankState& state);
/// Text such as "all_reduce \"gradients\", number 17 on data" or "receive \"activation\" from rank
/// 3, channel 5 on pipeline".
std::string describe_wait(const RankState& state);

/// One line: "rank 2 (pid 4242 on a) has died in step 3, forward: …".
std::string death_report(const Sighting& dead);

/// One line per group of ranks with the same activity; ranks that have ended are left out. Order:
/// dead, silent, stopped, computing and waiting ranks; within each kind, small groups first. The
/// headline names the watchdog's `limit`, and all groups except waiting ranks are marked as
/// suspects. `limit` = 0 for a death instead of a timeout: the report then has no headline and no
/// marks.
std::string hang_report(const std::vector<Sighting>& ranks, Seconds limit);

}  // namespace trireme::grid
