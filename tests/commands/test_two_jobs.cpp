#include <commands/training_runs.hpp>
#include <trireme/base/text.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

/// Two jobs that want the same folders.
namespace trireme::commands {
namespace {

using namespace commands::testing;

class TwoJobs : public TrainingRuns {
 protected:
  /// Starts both commands, the second one `offset` seconds after the first, waits until one of them
  /// has ended, asks the other one to stop, and waits for it.
  void run_pair(const std::string& first, const std::string& second, double offset) {
    const auto job = [](const std::string& command, const std::string& name) {
      return command + " >" + name + ".out 2>" + name + ".err; echo $? >" + name + ".code";
    };
    ASSERT_EQ(run("rm -f *.code; (" + job(first, "a") + ") & (sleep " + std::to_string(offset) +
                  "; " + job(second, "b") +
                  ") & while [ ! -s a.code ] && [ ! -s b.code ]; do sleep 0.02; done; "
                  "sleep 0.3; touch run/stop other/stop 2>/dev/null; wait"),
              0)
        << err();
  }

  /// Exactly one job has run; returns its name.
  std::string expect_one_winner() const {
    std::vector<std::string> codes{file("a.code"), file("b.code")};
    EXPECT_NE(std::ranges::find(codes, "75\n"), codes.end()) << codes[0] << codes[1];
    EXPECT_NE(std::ranges::find(codes, "2\n"), codes.end()) << codes[0] << codes[1];
    const std::string loser = codes[0] == "2\n" ? "a" : "b";
    const std::string error = file(loser + ".err");
    EXPECT_EQ(occurrences(error, "trireme: error"), 1) << error;
    EXPECT_NE(error.find("belongs to a job that is running: process "), std::string::npos) << error;
    EXPECT_EQ(file(loser + ".out"), "") << "it has changed something";
    return loser == "a" ? "b" : "a";
  }

  /// The files of one run that nobody has disturbed.
  void expect_whole(const std::string& directory, const std::string& checkpoints) const {
    const auto steps = metrics(directory, "step");
    ASSERT_FALSE(steps.empty());
    for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], std::to_string(i + 1));
    EXPECT_EQ(occurrences(file(directory + "/events.jsonl"), "\"event\":\"start\""), 1);
    EXPECT_EQ(newest_step(checkpoints), last_step(directory));
    for (const auto step : saved_steps(checkpoints))
      EXPECT_NE(file(checkpoints + "/" + folder_name(step) + "/deck.toml"), "") << step;
    expect_all_verified(checkpoints);
    for (const std::string& folder : {directory, checkpoints})
      for (const std::string& name : names(folder, ""))
        EXPECT_FALSE(name.starts_with("owner") || name.find("previous") != std::string::npos ||
                     name.find(".partial") != std::string::npos)
            << folder << "/" << name;
  }

  /// The owner file of a job that was killed.
  void leave_dead_owner() {
    Job job(folder_, train(1, "run.steps=1000000"));
    EXPECT_TRUE(job.until([&] { return last_step("run") >= 1; })) << err();
    job.kill_all();
    EXPECT_EQ(run("mv run/owner . && rm -r run/* && mkdir run/checkpoints && mv owner run"), 0);
  }
};

TEST_F(TwoJobs, ExactlyOneJobRunsInARunFolder) {
  const char* given = std::getenv("TRIREME_SEED");
  const auto seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::printf("TRIREME_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const int pairs = soak() ? 200 : 4;
  int first_won = 0;
  for (int pair = 0; pair < pairs && !HasFailure(); ++pair) {
    SCOPED_TRACE("pair " + std::to_string(pair));
    ASSERT_EQ(run("rm -rf run other"), 0);
    if (pair % 4 == 1) leave_dead_owner();
    const int ranks = pair % 4 == 3 ? 2 : 1;
    const std::string common = "run.steps=1000000 checkpoint.every=3 checkpoint.keep=4";
    // Half of the pairs start within the time that a job needs to take a folder.
    const double offset =
        std::uniform_real_distribution<double>(0, pair % 2 == 0 ? 0.02 : 0.6)(random);
    const bool share_checkpoints = pair % 8 == 2;
    const std::string elsewhere =
        share_checkpoints ? " run.directory=other checkpoint.directory=run/checkpoints" : "";
    run_pair(train(ranks, common), train(ranks, common + elsewhere), offset);
    const std::string winner = expect_one_winner();
    first_won += winner == "a" ? 1 : 0;
    expect_whole(share_checkpoints && winner == "b" ? "other" : "run", "run/checkpoints");
    if (share_checkpoints && winner == "a") {
      EXPECT_FALSE(std::filesystem::exists(folder_.file("other")));
    }
    if (pair % 4 == 1) {
      const std::string took = "took the run's folders over from process ";
      EXPECT_EQ(occurrences(file("run/log.txt"), took), 1) << file("run/log.txt");
      EXPECT_TRUE(last_job().start.took_over);
    }
  }
  std::printf("%d pairs, the first one won %d times\n", pairs, first_won);
}

TEST_F(TwoJobs, ImportRejectsTheFolderOfARunningJob) {
  ASSERT_EQ(run(train(1, "run.steps=1 run.directory=before") +
                " && trireme export before/checkpoints model"),
            0)
      << err();
  Job job(folder_, train(1, "run.steps=1000000"));
  ASSERT_TRUE(job.until([&] { return last_step("run") >= 1; })) << err();
  EXPECT_EQ(run("trireme import model deck.toml 2>import.err"), 2);
  EXPECT_NE(file("import.err").find("belongs to a job that is running"), std::string::npos)
      << file("import.err");
  EXPECT_EQ(saved_steps("run/checkpoints"), std::vector<std::int64_t>());
}

TEST_F(TwoJobs, RunEndsIfItsFolderIsRemoved) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    ASSERT_EQ(run("rm -rf run gone"), 0);
    Job job(folder_, train(ranks, "run.steps=1000000"));
    ASSERT_TRUE(job.until([&] { return last_step("run") >= 2; })) << err();
    std::filesystem::rename(folder_.file("run"), folder_.file("gone"));
    EXPECT_EQ(job.wait(), 1);
    expect_one_error({"run was removed or renamed while this run was writing to it"});
    EXPECT_FALSE(std::filesystem::exists(folder_.file("run")));
  }
}

/// `trireme train ... | head`: the log goes on.
TEST_F(TwoJobs, RunContinuesAfterItsOutputIsClosed) {
  ASSERT_EQ(run("(" + train(1, "run.steps=40") + "; echo $? >code) | head -n 1"), 0);
  EXPECT_EQ(file("code"), "0\n") << err();
  EXPECT_EQ(last_step("run"), 40);
  EXPECT_EQ(newest_step("run/checkpoints"), 40);
  const std::string log = file("run/log.txt");
  EXPECT_EQ(occurrences(log, "standard output was closed; the run continues"), 1) << log;
  EXPECT_NE(log.find("step 40/40"), std::string::npos) << log;
}

/// All ranks fail from the same cause, each for itself.
TEST_F(TwoJobs, ErrorOfAllRanksIsPrintedOnce) {
  for (const char* watchdog : {"00:10:00", "00:00:00"}) {
    SCOPED_TRACE(watchdog);
    ASSERT_EQ(run("rm -rf run && cp data/tokens.h5 data/cut.h5"), 0);
    Job job(folder_, train(3, std::string("run.steps=1000000 data.train=data/cut.h5 "
                                          "run.watchdog=") +
                                  watchdog));
    ASSERT_TRUE(job.until([&] { return last_step("run") >= 2; })) << err();
    std::filesystem::resize_file(folder_.file("data/cut.h5"), 5000);
    EXPECT_NE(job.wait(), 0);
    expect_one_error({"data/cut.h5", "the file is truncated"});
  }
}

/// Rank 0 does not see the error, and waits for the others.
TEST_F(TwoJobs, ErrorOfAllRanksButTheFirstIsPrintedOnce) {
  for (const char* watchdog : {"00:10:00", "00:00:00"}) {
    SCOPED_TRACE(watchdog);
    const std::string job = train(1, std::string("run.steps=1000000 run.watchdog=") + watchdog);
    EXPECT_NE(run(text("rm -rf run; export FAULT_CALL=pread FAULT_PATH=data/tokens FAULT_AT=200 "
                       "FAULT_TIMES=0 FAULT_ERRNO=5; ",
                       TRIREME_MPIEXEC, " -n 1 ", job,
                       " : -n 2 env LD_PRELOAD=", TRIREME_FAILING_CALLS, " ", job)),
              0);
    expect_one_error({"data/tokens.h5", "Input/output error"});
    EXPECT_GE(last_step("run"), 2);
  }
}

}  // namespace
}  // namespace trireme::commands
