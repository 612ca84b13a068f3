#pragma once

#include <trireme/base/types.hpp>
#include <trireme/schedule/program.hpp>

#include <functional>
#include <string>
#include <vector>

namespace trireme::schedule {

/// The only statement of how long an instruction takes.
using Cost = std::function<Seconds(const Instr&)>;

struct Event {
  Rank rank = 0;
  int position = 0;
  Instr instr;
  Seconds begin = 0;
  Seconds end = 0;
};

/// When each instruction ran, in virtual or in measured time.
struct Timeline {
  std::vector<Event> events;
  int ranks = 1;
  Seconds span() const;
  /// Part of ranks · span in which nothing ran.
  double idle_share() const;
};

struct Played {
  Timeline timeline;
  std::vector<std::string> mistakes;  ///< empty if every instruction ran
};

/// Plays the program in virtual time: each rank runs its row in order, an instruction begins when
/// the rank is free and all that it reads exists. Transfers are instantaneous and independent per
/// (peer, direction).
Played play(const Program& program, const Cost& cost);

}  // namespace trireme::schedule
