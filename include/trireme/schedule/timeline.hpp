#pragma once

#include <trireme/schedule/program.hpp>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::schedule {

/// Duration of an instruction.
using Cost = std::function<Seconds(const Instr&)>;

/// Forward pass, evaluation, half of a backward pass: 1; whole backward pass: 2; others: 0.
Seconds unit_cost(const Instr& instr);

struct Event {
  Rank rank = 0;
  int position = 0;  ///< in the rank's row of the program
  Instr instr;
  Seconds begin = 0;
  Seconds end = 0;
  bool operator==(const Event&) const = default;
};

/// The time of each instruction, virtual or measured. In virtual time, the event of a receive lasts
/// from the moment when both sides are ready to the arrival. In measured time, the event is the
/// moment when the receive was posted, and a wait for the arrival is idle time before the consumer.
struct Timeline {
  ProgramLayout layout;
  std::vector<Event> events;  ///< in any order

  Seconds begin() const;  ///< start of the first computing event; 0 if there is none
  Seconds end() const;    ///< end of the last computing event; 0 if there is none
  Seconds span() const { return end() - begin(); }
  /// Fraction of ranks · span without computation. Transfers, reductions and the update count as
  /// idle time within the span, and do not extend the span. For a program of several steps, the
  /// idle share of the repeated step (steady_step()).
  double idle_share() const;
  bool operator==(const Timeline&) const = default;
};

/// Mean duration of each operation of each stage in a measured timeline; 0 for operations that the
/// timeline does not have.
Cost mean_costs(const Timeline& timeline);

/// The timeline as text with one event per line. read_timeline reads back all but the layout's
/// transport and the groups of transfers.
std::string write_timeline(const Timeline& timeline);
/// Throws UsageError with file and line if the text is not a valid timeline.
Timeline read_timeline(std::string_view text, std::string_view file_name);

}  // namespace trireme::schedule
