#include <trireme/base/check.hpp>
#include <trireme/train/stop_signals.hpp>

#include <array>

namespace trireme::train {
namespace {

constexpr std::array<int, 3> signals{SIGTERM, SIGUSR1, SIGINT};
// Room for the state of all vector and matrix registers, which a frame holds.
constexpr std::size_t stack_bytes = 256 * 1024;

volatile std::sig_atomic_t last_signal = 0;

void remember_signal(int signal) {
  last_signal = signal;
  if (signal == SIGINT) std::signal(SIGINT, SIG_DFL);  // a second Ctrl-C does not wait
}

}  // namespace

StopSignals::StopSignals() : stack_(stack_bytes) {
  last_signal = 0;
  stack_t stack{};
  stack.ss_sp = stack_.data();
  stack.ss_size = stack_.size();
  check(sigaltstack(&stack, &former_stack_) == 0, "cannot set a stack for signals");
  struct sigaction action {};
  action.sa_handler = remember_signal;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &action, &former_[i]);
  sigset_t held;
  sigemptyset(&held);
  sigaddset(&held, SIGUSR1);
  pthread_sigmask(SIG_UNBLOCK, &held, &former_mask_);  // one that came before now is caught
}

StopSignals::~StopSignals() {
  pthread_sigmask(SIG_SETMASK, &former_mask_, nullptr);
  for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &former_[i], nullptr);
  sigaltstack(&former_stack_, nullptr);
}

int StopSignals::caught() const {
  return static_cast<int>(last_signal);
}

}  // namespace trireme::train
