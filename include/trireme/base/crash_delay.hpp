#pragma once

#include <chrono>

namespace trireme {

/// While an object exists, SIGABRT, SIGSEGV, SIGBUS, SIGFPE and SIGILL first call wait(), unless
/// they already have a handler or are ignored. When another process dies, a communication library
/// may crash this process; the delay gives a watching thread time to report the death. Only one
/// object may exist at a time.
class CrashDelay {
 public:
  CrashDelay();
  ~CrashDelay();
  CrashDelay(const CrashDelay&) = delete;
  CrashDelay& operator=(const CrashDelay&) = delete;

  /// Sleeps for `delay` if an object of this class exists.
  static void wait();

  static constexpr std::chrono::milliseconds delay{1000};
};

}  // namespace trireme
