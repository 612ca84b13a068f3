#include <support/shell.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <sstream>
#include <string>
#include <vector>

// Runs programs under mpiexec in which a rank dies or hangs. The job must end, and a message must
// name the rank and its activity.

namespace trireme::testing {
namespace {

constexpr double limit_seconds = 2;
/// Time allowed beyond the limit, on a busy machine: one check, the report, the end of all
/// processes and the start of the job.
constexpr double grace_seconds = 8;

class Hangs : public ::testing::Test {
 protected:
  /// The driver's exit code; `timeout` makes it 124 if the job does not end.
  int run(int ranks, const std::string& arguments, const std::string& driver = "grid_hang_driver") {
    for (const char* name : {"log.txt", "events.jsonl"})
      std::filesystem::remove(folder_.file(name));
    const auto begin = std::chrono::steady_clock::now();
    const int code =
        shell(folder_, "timeout -s KILL 60 " TRIREME_MPIEXEC " -n " + std::to_string(ranks) + " " +
                           driver + " '" + folder_.path().string() + "' " +
                           std::to_string(limit_seconds) + " " + arguments);
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return code;
  }

  /// Repeats run until a death is reported, because a launcher that ends all processes at once can,
  /// in rare cases, be faster than the report.
  int run_until_reported(int ranks, const std::string& arguments) {
    int code = 0;
    for (int attempt = 0; attempt < 3; ++attempt) {
      code = run(ranks, arguments);
      if (read_file(folder_.file("err")).find("has died") != std::string::npos) break;
    }
    return code;
  }

  /// The events `stop` of the last run.
  std::vector<nlohmann::json> stops() const {
    std::vector<nlohmann::json> found;
    std::istringstream in(read_file(folder_.file("events.jsonl")));
    for (std::string line; std::getline(in, line);)
      if (auto event = nlohmann::json::parse(line); event["event"] == "stop")
        found.push_back(std::move(event));
    return found;
  }

  void expect_report(const std::string& part) {
    expect_error(folder_, part);
    EXPECT_EQ(occurrences(read_file(folder_.file("err")), "trireme: error"), 1) << "one message";
    EXPECT_NE(read_file(folder_.file("log.txt")), "");
    EXPECT_EQ(read_file(folder_.file("out")).find("finished"), std::string::npos);
    ASSERT_EQ(stops().size(), 1u);
    EXPECT_EQ(stops().front()["cause"], "watchdog");
    const auto message = stops().front()["message"].get<std::string>();
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' in: " << message;
  }

  static int occurrences(const std::string& text, const std::string& part) {
    int n = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  }

  TemporaryFolder folder_;
  double seconds_ = 0;
};

TEST_F(Hangs, HealthyRanksAreNotReported) {
  for (const int ranks : {1, 2, 4}) {
    EXPECT_EQ(run(ranks, "0 none"), 0);
    expect_output(folder_, "finished");
    EXPECT_EQ(read_file(folder_.file("err")), "");
  }
}

TEST_F(Hangs, KilledRankIsNamedAtOnce) {
  for (const int ranks : {2, 3, 4}) {
    const std::string victim = std::to_string(ranks - 1);
    EXPECT_NE(run_until_reported(ranks, victim + " kill"), 0);
    EXPECT_LT(seconds_, grace_seconds) << "without waiting for the watchdog's time";
    expect_report("rank " + victim + " (pid ");
    expect_report("has died in step 3, forward stage 0 micro 5: killed");
  }
}

TEST_F(Hangs, CrashedRankIsNamedAtOnce) {
  EXPECT_NE(run_until_reported(3, "0 crash"), 0);
  expect_report("rank 0 (pid ");
  expect_report("has died in step 3");
}

TEST_F(Hangs, RankInAnEndlessLoopIsTheSuspect) {
  for (const int ranks : {2, 4}) {
    EXPECT_NE(run(ranks, "1 loop"), 0);
    EXPECT_GT(seconds_, limit_seconds);
    EXPECT_LT(seconds_, limit_seconds + grace_seconds);
    expect_report("suspect: rank 1 (pid ");
    expect_report("computes: step 3, forward stage 0 micro 5");
    expect_report("\"gradients\"");
  }
}

TEST_F(Hangs, StoppedRankIsNamedAndEnds) {
  for (const int ranks : {2, 3}) {
    EXPECT_NE(run(ranks, "0 stop"), 0);
    EXPECT_LT(seconds_, limit_seconds + grace_seconds);
    expect_report("suspect: rank 0 (pid ");
    expect_report("is stopped (SIGSTOP) in step 3, forward stage 0 micro 5");
  }
}

TEST_F(Hangs, DeadlockedRanksAreReported) {
  EXPECT_NE(run(3, "2 absent"), 0);
  EXPECT_LT(seconds_, limit_seconds + grace_seconds);
  expect_report("rank 2 (pid ");
  expect_report("waits in receive \"what nobody sends\" from rank 0, channel 77 on world");
  expect_report("ranks 0-1 wait in all_reduce \"gradients\"");
}

TEST_F(Hangs, LongWaitForAProgressingRankIsNoHang) {
  EXPECT_EQ(run(2, "1 slow"), 0);
  EXPECT_GT(seconds_, 2 * limit_seconds);
  expect_output(folder_, "finished");
  EXPECT_EQ(read_file(folder_.file("err")), "");
}

TEST_F(Hangs, ExceptionIsTheOnlyMessage) {
  for (int repetition = 0; repetition < 5; ++repetition) {
    EXPECT_NE(run(3, "1 throw"), 0);
    EXPECT_LT(seconds_, grace_seconds);
    expect_error(folder_, "trireme: error: rank 1: this rank's data are broken");
    EXPECT_EQ(occurrences(read_file(folder_.file("err")), "trireme: error"), 1);
    EXPECT_EQ(read_file(folder_.file("log.txt")), "") << "nothing of the watchdog's";
    ASSERT_EQ(stops().size(), 1u);
    EXPECT_EQ(stops().front()["cause"], "error");
  }
}

TEST_F(Hangs, TwoNodesPrintOneReport) {
  EXPECT_NE(run(4, "3 loop 2"), 0);
  EXPECT_LT(seconds_, limit_seconds + grace_seconds);
  expect_report("suspect: rank 3 (pid ");
  expect_report("on node1) computes: step 3, forward");
  expect_report("\"gradients\"");
}

TEST_F(Hangs, SilentNodeIsReportedByTheOthers) {
  // SIGSTOP for all ranks of the second node: no process there can report.
  EXPECT_NE(run(4, "-2 stop 2"), 0);
  EXPECT_LT(seconds_, limit_seconds + 4 + grace_seconds) << "four seconds make a node silent";
  expect_report("do not respond, last seen in step 3, forward stage 0 micro 5");
}

/// Sums and messages use a transport with NCCL's rules that moves host memory.
class TransportHangs : public Hangs {
 protected:
#ifdef TRIREME_ON_DEVICE
  void SetUp() override {
    GTEST_SKIP() << "the imitated transport moves the memory of hosts";
  }
#endif
  int run_on_transport(int ranks, const std::string& mishap) {
    return run(ranks, mishap, "grid_transport_hang_driver");
  }
};

TEST_F(TransportHangs, HealthyRanksAreNotReported) {
  for (const char* kind : {"none", "streams"}) {
    EXPECT_EQ(run_on_transport(3, kind), 0);
    expect_output(folder_, "finished");
    EXPECT_EQ(read_file(folder_.file("err")), "");
  }
}

TEST_F(TransportHangs, VerbThatARankNeverEntersIsNamed) {
  EXPECT_NE(run_on_transport(3, "absent"), 0);
  EXPECT_LT(seconds_, limit_seconds + grace_seconds);
  expect_report("ranks 0-1 wait in all_reduce \"activations\", number 5 on tensor, during step 3");
  expect_report("rank 2 (pid ");
  expect_report("waits in barrier \"what only this rank does\", number ");
}

TEST_F(TransportHangs, MissingMessageIsNamed) {
  EXPECT_NE(run_on_transport(3, "silent"), 0);
  expect_report("rank 0 (pid ");
  expect_report("waits in receive \"a message\" from rank 2, channel 0 on data, during step 3");
  expect_report("ranks 1-2 wait in all_reduce \"head\", number 6 on tensor, during step 4");
}

TEST_F(TransportHangs, ComputingRankIsTheSuspectIfOthersWait) {
  EXPECT_NE(run_on_transport(2, "loop"), 0);
  expect_report("suspect: rank 1 (pid ");
  expect_report("waits in all_reduce \"activations\", number 5 on tensor, during step 3");
}

/// The host has launched the whole step, and verbs before the one that hangs end while it waits.
TEST_F(TransportHangs, WaitForTheDeviceNamesTheHangingVerb) {
  EXPECT_NE(run_on_transport(3, "streams-absent"), 0);
  EXPECT_LT(seconds_, limit_seconds + grace_seconds);
  expect_report(
      "ranks 0-1 wait in all_reduce \"loss of a step\", number 5 on tensor, during step 3");
  expect_report("waits in barrier \"what only this rank does\", number ");
}

}  // namespace
}  // namespace trireme::testing
