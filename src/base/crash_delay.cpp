#include <trireme/base/crash_delay.hpp>

#include <signal.h>
#include <time.h>

#include <array>
#include <atomic>

namespace trireme {
namespace {

constexpr std::array fatal_signals{SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
std::atomic<bool> exists{false};

/// After this handler returns, the signal has its default action again: the processor repeats the
/// instruction that caused the signal, or abort() raises the signal again.
extern "C" void delay_the_end(int) {
  CrashDelay::wait();
}

/// Sets the handler `to` for each fatal signal whose handler is `from`.
void exchange_handlers(void (*from)(int), void (*to)(int)) {
  struct sigaction next {};
  next.sa_handler = to;
  next.sa_flags = SA_RESETHAND;
  for (const int number : fatal_signals) {
    struct sigaction present {};
    ::sigaction(number, nullptr, &present);
    if ((present.sa_flags & SA_SIGINFO) == 0 && present.sa_handler == from)
      ::sigaction(number, &next, nullptr);
  }
}

}  // namespace

CrashDelay::CrashDelay() {
  exists = true;
  exchange_handlers(SIG_DFL, delay_the_end);
}

CrashDelay::~CrashDelay() {
  exists = false;
  exchange_handlers(delay_the_end, SIG_DFL);
}

void CrashDelay::wait() {
  using std::chrono::nanoseconds;
  constexpr auto whole = std::chrono::duration_cast<std::chrono::seconds>(delay);
  const timespec pause{whole.count(), (delay - whole) / nanoseconds(1)};
  if (exists) ::nanosleep(&pause, nullptr);  // a system call, safe in a signal handler
}

}  // namespace trireme
