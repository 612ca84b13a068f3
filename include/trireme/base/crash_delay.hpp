#pragma once

#include <chrono>

namespace trireme {

/// While it exists, a signal that would end this process (SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL)
/// first waits for `wait()`. A communication library may crash in the milliseconds in which another
/// process dies; a thread that watches that process then has time to report the death and to end
/// this process. Signals with a handler of their own are left alone. One object at a time.
class CrashDelay {
 public:
  CrashDelay();
  ~CrashDelay();
  CrashDelay(const CrashDelay&) = delete;
  CrashDelay& operator=(const CrashDelay&) = delete;

  /// Sleeps for `delay` if such an object exists.
  static void wait();

  static constexpr std::chrono::milliseconds delay{1000};
};

}  // namespace trireme
