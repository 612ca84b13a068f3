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
/// handler has a separate stack, because generated code of matrix products keeps data on the
/// interrupted stack where the kernel would write the signal's frame. A SIGINT more than a second
/// after the first SIGINT ends the process at once. The constructor unblocks SIGUSR1, which
/// `trireme train` blocks at the start. The destructor restores the former handlers and signal
/// mask.
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

/// Finds requests to stop or to save: the time limit, a signal, and the files `stop` and
/// `checkpoint` in the run's directory.
class Requests {
 public:
  explicit Requests(const deck::RunConfig& config);

  /// Call before each step. `may_be_last`: a request that arrives during the step ends the run
  /// after this step.
  void begin_step(std::int64_t step, bool may_be_last);
  /// Starts the measurement of step times.
  void begin_steps();
  /// Call after each step. Only `first_rank` looks for files, and removes the files that it finds.
  /// `saving`: time for the checkpoint in progress and another checkpoint. Requests a stop if
  /// `saving` and `next_steps` further steps do not fit into the time limit.
  Request ask(bool first_rank, Seconds saving, double next_steps);
  /// Call after the run has ended and saved: `first_rank` removes request files that appeared since
  /// the last call of ask(), because the next run would obey them.
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
