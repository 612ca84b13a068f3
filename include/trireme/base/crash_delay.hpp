#pragma once

#include <chrono>

namespace trireme {

/// While an object exists, each signal that would end this process (SIGABRT, SIGSEGV, SIGBUS,
/// SIGFPE, SIGILL) first calls wait(). A communication library may crash in the milliseconds in
/// which another process dies; a thread that watches the other process then has time to report the
/// death and to end this process. Signals that have a handler or are ignored are left alone. Only
/// one object may exist at a time.
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
