#include <trireme/base/crash_delay.hpp>

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace trireme {
namespace {

class CrashDelays : public ::testing::TestWithParam<int> {};

/// Another thread reports within the delay and ends the process.
[[noreturn]] void crash_beside_a_report(int number) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  const CrashDelay delay;
  std::thread([] {
    std::this_thread::sleep_for(CrashDelay::delay / 5);
    _exit(42);
  }).detach();
  ::raise(number);
  _exit(1);
}

TEST_P(CrashDelays, ReportingThreadEndsTheProcess) {
  EXPECT_EXIT(crash_beside_a_report(GetParam()), ::testing::ExitedWithCode(42), "");
}

INSTANTIATE_TEST_SUITE_P(Signals, CrashDelays,
                         ::testing::Values(SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL));

TEST(CrashDelay, ProcessEndsByTheSignalWithoutAReport) {
  const auto crash = [] {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    const CrashDelay delay;
    std::abort();
  };
  EXPECT_EXIT(crash(), ::testing::KilledBySignal(SIGABRT), "");
}

TEST(CrashDelay, KeepsForeignHandlersAndRestoresDefaults) {
  const auto handler = [](int number) {
    struct sigaction present {};
    ::sigaction(number, nullptr, &present);
    return present.sa_handler;
  };
  struct sigaction ignored {};
  struct sigaction before {};
  ignored.sa_handler = SIG_IGN;
  ::sigaction(SIGFPE, &ignored, &before);
  const auto of_abort = handler(SIGABRT);
  {
    const CrashDelay delay;
    EXPECT_EQ(handler(SIGFPE), SIG_IGN);
    EXPECT_NE(handler(SIGABRT), of_abort);
  }
  EXPECT_EQ(handler(SIGABRT), of_abort);
  ::sigaction(SIGFPE, &before, nullptr);
}

TEST(CrashDelay, WaitReturnsAtOnceWithoutADelay) {
  const auto begin = std::chrono::steady_clock::now();
  CrashDelay::wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, CrashDelay::delay / 2);
}

}  // namespace
}  // namespace trireme
