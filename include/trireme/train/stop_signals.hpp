#pragma once

#include <csignal>
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

}  // namespace trireme::train
