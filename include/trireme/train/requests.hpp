#pragma once

#include <trireme/base/clock.hpp>
#include <trireme/base/events.hpp>
#include <trireme/deck/config.hpp>

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::train {

/// Catches SIGTERM, SIGUSR1 and SIGINT while it lives; one at a time per process. The handler runs
/// on a stack of its own: generated code of matrix products keeps data where a signal's frame would
/// be written on the interrupted stack, and was seen to be corrupted by it. A second SIGINT ends
/// the process at once. A SIGUSR1 that `trireme train` has held back while the run started counts;
/// one that comes later than this object's life is held back again.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The last signal that came; 0: none.
  int caught() const;

 private:
  std::vector<char> stack_;
  stack_t former_stack_{};
  sigset_t former_mask_{};
  struct sigaction former_[3] = {};
};

/// What a rank asks for at a step's end; the maximum over all ranks is what they do.
struct Request {
  /// Save and end, restartable: 1 plus the events::StopCause, of several the last one; 0: train on.
  std::int64_t stop = 0;
  std::int64_t checkpoint = 0;  ///< 1: save and go on
};

inline std::int64_t stop_because(events::StopCause cause) {
  return 1 + static_cast<std::int64_t>(cause);
}
inline events::StopCause cause_of(const Request& request) {
  return static_cast<events::StopCause>(request.stop - 1);
}

/// Asks a run to stop or to save: the time limit, a signal, and the files `stop` and `checkpoint`
/// that somebody leaves in the run's directory.
class Requests {
 public:
  explicit Requests(const deck::RunConfig& config);

  /// Begins to measure the steps.
  void begin_steps();
  /// To be asked behind each step. `first_rank` alone looks for files, no more than twice a second,
  /// and removes those that it finds. `saving`: what it will take to bring the checkpoint under way
  /// to its end and to write another one; it must fit into the time limit with one more step, which
  /// is as long as `next_steps` of those behind begin_steps() on average.
  Request ask(bool first_rank, Seconds saving, double next_steps);
  /// To be called when the run has ended and saved: `first_rank` removes files that came since the
  /// last look, which ask for what has been done. The next run would obey them.
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
