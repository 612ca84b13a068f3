#pragma once

#include <trireme/schedule/program.hpp>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::schedule {

/// The only statement of how long an instruction takes.
using Cost = std::function<Seconds(const Instr&)>;

/// Each forward, evaluation and half of a backward pass takes 1, the whole backward pass 2,
/// everything else 0.
Seconds unit_cost(const Instr& instr);

struct Event {
  Rank rank = 0;
  int position = 0;  ///< in the rank's row of the program
  Instr instr;
  Seconds begin = 0;
  Seconds end = 0;
  bool operator==(const Event&) const = default;
};

/// When each instruction ran, in virtual or in measured time. The event of a receive is, in virtual
/// time, the time between the moment when both sides were ready and the arrival; in measured time
/// the moment of its posting, since the arrival is noticed when its consumer asks. What a measured
/// rank waits for a transfer is therefore idle time before the consumer.
struct Timeline {
  ProgramLayout layout;
  std::vector<Event> events;  ///< in any order

  Seconds begin() const;  ///< of the first computing event, 0 if there is none
  Seconds end() const;    ///< of the last computing event
  Seconds span() const { return end() - begin(); }
  /// Part of ranks · span in which nothing was computed. Transfers, reductions and the update do
  /// not count as busy, and the span does not include them.
  double idle_share() const;
  bool operator==(const Timeline&) const = default;
};

/// Mean seconds of each (operation, stage) of a measured timeline, 0 where there was none: playing
/// a program with it predicts what the measured machine would take.
Cost mean_costs(const Timeline& timeline);

/// One event per line, in a format that read_timeline reads back exactly.
std::string write_timeline(const Timeline& timeline);
/// Throws UsageError with file and line where the text is not such a timeline.
Timeline read_timeline(std::string_view text, std::string_view file_name);

}  // namespace trireme::schedule
