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

/// Text such as "step 3, forward stage 2 micro 5".
std::string describe_activity(const RankState& state);
/// Text such as "receive \"activation\" from rank 3, channel 5 on pipeline".
std::string describe_wait(const RankState& state);

/// One line: "rank 2 (pid 4242 on a) has died in step 3, forward: …".
std::string death_report(const Sighting& dead);

/// Report with one line per group of ranks with the same activity, suspects first. `limit`: the
/// watchdog's limit, or 0 after a death, for a report without headline and marks of suspects.
std::string hang_report(const std::vector<Sighting>& ranks, Seconds limit);

}  // namespace trireme::grid
