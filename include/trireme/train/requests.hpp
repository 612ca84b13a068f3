#pragma once

#include <trireme/base/clock.hpp>
#include <trireme/base/events.hpp>
#include <trireme/deck/config.hpp>

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::train {

/// Catches SIGTERM, SIGUSR1 and SIGINT during its lifetime; one object at a time per process. The
/// handler has a separate stack: code of matrix-product libraries may keep data below the stack
/// pointer, where a signal's frame would overwrite the data. A SIGINT more than a second after the
/// first SIGINT ends the process. The constructor unblocks SIGUSR1. The destructor restores the
/// former handlers and signal mask.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The last signal received; 0: none.
  int caught() const;

 private:
  std::vector<char> stack_;
  stack_t former_stack_{};
  sigset_t former_mask_{};
  struct sigaction former_[3] = {};
};

/// A rank's requests at the end of a step. All ranks obey the maximum over all ranks.
struct Request {
  /// 1 + events::StopCause: save, and end with ExitCode::restartable; 0: continue.
  std::int64_t stop = 0;
  std::int64_t checkpoint = 0;  ///< 1: save and continue
};

inline std::int64_t stop_because(events::StopCause cause) {
  return 1 + static_cast<std::int64_t>(cause);
}
inline events::StopCause cause_of(const Request& request) {
  return static_cast<events::StopCause>(request.stop - 1);
}

/// Requests to stop or to save: the time limit, signals, and the request files `stop` and
/// `checkpoint` in the run's folder.
class Requests {
 public:
  explicit Requests(const deck::RunConfig& config);

  /// Call before each step. `may_be_last`: a request during the step ends the run after this step.
  void begin_step(std::int64_t step, bool may_be_last);
  /// Starts the measurement of step times.
  void begin_steps();
  /// Call after each step. If `first_rank`, looks for request files, and removes them. `saving`:
  /// time reserved for checkpoints. Requests a stop if `saving` and `next_steps` further steps do
  /// not fit into the time limit.
  Request ask(bool first_rank, Seconds saving, double next_steps);
  /// Call after the run has saved and ended. If `first_rank`, removes the request files.
  void end(bool first_rank) const;

 private:
  bool out_of_time(Seconds saving, double next_steps) const;
  bool take(const char* name) const;

  const deck::RunConfig& config_;
  StopSignals signals_;
  Clock::time_point steps_began_;
  Clock::time_point looked_;
  std::int64_t steps_ = 0;
};

}  // namespace trireme::train
