#include <commands/training_runs.hpp>
#include <support/watch.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

/// Runs that are told to stop, on several ranks.
namespace trireme::commands {
namespace {

using namespace commands::testing;

class Stops : public TrainingRuns {
 protected:
  /// Each rank's own exit code goes to a file `code.RANK`: what a launcher makes of them is its
  /// own.
  static std::string job(int ranks, const std::string& arguments) {
    return std::string(TRIREME_MPIEXEC) + " -n " + std::to_string(ranks) +
           " sh -c 'trireme train deck.toml run.steps=1000000 checkpoint.restart=latest " +
           arguments + "; echo $? > code.$PMI_RANK'";
  }

  static bool send(const std::vector<pid_t>& to, int signal) {
    return std::all_of(to.begin(), to.end(), [&](pid_t pid) { return kill(pid, signal) == 0; });
  }

  mutable std::string err_of_stop_;  ///< standard error of the last expect_stop()'s job

  /// Runs a job, does something to it when it has taken some steps, and expects a stop.
  void expect_stop(int ranks, const std::string& arguments,
                   const std::function<void(Job&, const std::vector<pid_t>&)>& act,
                   std::optional<events::StopCause> cause = events::StopCause::signal) const {
    ASSERT_EQ(run("rm -rf run code.*; mkdir -p run/checkpoints"), 0);
    {
      Job started(folder_, job(ranks, arguments));
      ASSERT_TRUE(started.until([&] { return last_step("run") >= 2; })) << out() << err();
      const auto processes = started.ranks(ranks);
      ASSERT_EQ(std::ssize(processes), ranks);
      act(started, processes);
      started.wait();
    }
    err_of_stop_ = err();
    expect_stopped(ranks, cause);
  }

  void expect_stopped(int ranks, std::optional<events::StopCause> cause) const {
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(file("code." + std::to_string(rank)), "75\n") << rank << err();
    for (const char* name : {"run/stop", "run/checkpoint"})
      EXPECT_FALSE(std::filesystem::exists(folder_.file(name))) << name << " is left over";
    const auto step = last_step("run");
    ASSERT_TRUE(last_job().stop);
    EXPECT_EQ(last_job().stop->exit_code, 75);
    EXPECT_EQ(last_job().stop->cause, cause.value_or(last_job().stop->cause));
    EXPECT_EQ(last_job().last_step, step);
    EXPECT_EQ(newest_step("run/checkpoints"), step);
    EXPECT_EQ(names("run/checkpoints", ".partial"), std::vector<std::string>());
    EXPECT_EQ(occurrences(err(), "trireme: error"), 0) << err();
    EXPECT_EQ(run("trireme inspect --verify run/checkpoints/" + folder_name(step)), 0) << err();
    ASSERT_EQ(run(train(1, "checkpoint.restart=latest run.steps=" + std::to_string(step + 1))), 0)
        << err();
    EXPECT_EQ(last_job().restored, step);
  }
};

TEST_F(Stops, ASignalEndsAllRanksAfterTheSameStep) {
  expect_stop(2, "parallel.pipeline=2 parallel.schedule=2bw",
              [](Job&, const std::vector<pid_t>& processes) {
                EXPECT_TRUE(send({processes.back()}, SIGTERM));
              });
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    const std::string layout = ranks == 4 ? "parallel.pipeline=2" : "";
    if (soak() || ranks == 4)
      expect_stop(ranks, layout, [](Job&, const std::vector<pid_t>& processes) {
        EXPECT_TRUE(send({processes.back()}, SIGTERM));
      });
    if (soak() || ranks == 2)
      expect_stop(ranks, layout, [](Job&, const std::vector<pid_t>& processes) {
        EXPECT_TRUE(send(processes, SIGUSR1));
      });
  }
}

TEST_F(Stops, ASignalDuringTheStartStopsAfterTheFirstStep) {
  ASSERT_EQ(run("rm -rf run code.*"), 0);
  bool early = false;
  {
    Job started(folder_, job(2, ""));
    std::vector<pid_t> processes;
    ASSERT_TRUE(started.until([&] { return std::ssize(processes = started.ranks(2)) == 2; }));
    EXPECT_TRUE(send(processes, SIGUSR1));
    early = last_step("run") == 0;  // almost always
    started.wait();
  }
  expect_stopped(2, events::StopCause::signal);
  if (early) {
    EXPECT_EQ(newest_step("run/checkpoints"), 1 + 1) << "the stop's and one step more";
  }
}

TEST_F(Stops, RepeatedSignalsCountAsOne) {
  expect_stop(2, "", [](Job&, const std::vector<pid_t>& processes) {
    EXPECT_TRUE(send(processes, SIGTERM));
    send(processes, SIGTERM);
  });
  expect_stop(2, "checkpoint.every=3", [](Job&, const std::vector<pid_t>& processes) {
    EXPECT_TRUE(send({processes[0]}, SIGUSR1));
    send({processes[1]}, SIGTERM);
    send({processes[0]}, SIGUSR1);
  });
  // A launcher and the terminal may both deliver one Ctrl-C.
  expect_stop(2, "", [](Job&, const std::vector<pid_t>& processes) {
    EXPECT_TRUE(send(processes, SIGINT));
    send(processes, SIGINT);
  });
  EXPECT_EQ(occurrences(err_of_stop_, "trireme: stopping after step "), 1) << err_of_stop_;
}

TEST_F(Stops, ASignalDuringAWriteWaitsForTheLastCheckpoint) {
  for (const char* asynchronous : {"false", "true"}) {
    SCOPED_TRACE(asynchronous);
    expect_stop(2, std::string("checkpoint.every=5 checkpoint.asynchronous=") + asynchronous,
                [&](Job& started, const std::vector<pid_t>& processes) {
                  const Watch made(folder_.file("run/checkpoints"));
                  int begun = 0;
                  for (int i = 0; i < 3000 && begun == 0 && started.runs(); ++i)
                    begun = made.made(".partial", 10);
                  EXPECT_GT(begun, 0) << "no write began";
                  EXPECT_TRUE(send(processes, SIGTERM));
                });
  }
}

TEST_F(Stops, ATimeLimitStopsTheRunBetweenCheckpoints) {
  for (const char* asynchronous : {"false", "true"}) {
    SCOPED_TRACE(asynchronous);
    ASSERT_EQ(run("rm -rf run code.*"), 0);
    Job(folder_, job(2, std::string("run.time_limit=00:00:02 checkpoint.every=4 checkpoint.keep=2 "
                                    "checkpoint.asynchronous=") +
                            asynchronous))
        .wait();
    expect_stopped(2, events::StopCause::time_limit);
    EXPECT_LE(std::ssize(saved_steps("run/checkpoints")), 12);
  }
}

TEST_F(Stops, AStopFileEndsTheRunAndIsRemoved) {
  for (const int ranks : {1, 2, 4}) {
    if (!soak() && ranks != 2) continue;
    SCOPED_TRACE(ranks);
    expect_stop(
        ranks, "checkpoint.every=5",
        [&](Job&, const std::vector<pid_t>&) { folder_.write("run/stop", ""); },
        events::StopCause::stop_file);
  }
}

/// Else it would stop the next part behind its first step. The files come between two looks, and
/// the signal at once behind them.
TEST_F(Stops, RequestFilesDuringTheEndAreRemoved) {
  expect_stop(
      2, "",
      [&](Job&, const std::vector<pid_t>& processes) {
        folder_.write("run/checkpoint", "");
        folder_.write("run/stop", "");
        EXPECT_TRUE(send(processes, SIGUSR1));
      },
      std::nullopt);
  // The end of the last step is no stop: nothing is left to go on with.
  const std::string next = std::to_string(last_step("run") + 1);
  folder_.write("run/stop", "");
  EXPECT_EQ(run(train(2, "checkpoint.restart=latest run.steps=" + next)), 0) << err();
  EXPECT_EQ(last_step("run"), std::stoll(next));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("run/stop")));
}

TEST_F(Stops, ACheckpointFileSavesAndTheRunContinues) {
  for (const char* asynchronous : {"false", "true"}) {
    SCOPED_TRACE(asynchronous);
    expect_stop(2, std::string("checkpoint.asynchronous=") + asynchronous,
                [&](Job& started, const std::vector<pid_t>& processes) {
                  for (int i = 1; i <= 2; ++i) {
                    folder_.write("run/checkpoint", "");
                    EXPECT_TRUE(started.until(
                        [&] { return std::ssize(saved_steps("run/checkpoints")) == i; }));
                    EXPECT_FALSE(std::filesystem::exists(folder_.file("run/checkpoint")));
                    const auto saved = newest_step("run/checkpoints");
                    EXPECT_TRUE(started.until([&] { return last_step("run") > saved + 2; }));
                  }
                  EXPECT_TRUE(send(processes, SIGUSR1));
                });
    EXPECT_GE(std::ssize(saved_steps("run/checkpoints")), 4) << "two, the stop's, the next run's";
  }
}

/// Rank 1 stays in MPI_Finalize, and so does rank 0, which waits for it there.
TEST_F(Stops, AHangingFinalizeDoesNotBlockTheEnd) {
  const std::string hung = "rm -rf run; export LD_PRELOAD=" TRIREME_FAILING_CALLS
                           " FAULT_CALL=MPI_Finalize FAULT_RANK=1 TRIREME_END_SECONDS=1; ";
  EXPECT_EQ(run(hung + train(2, "")), 0) << err();
  EXPECT_EQ(last_step("run"), 12);
  EXPECT_EQ(newest_step("run/checkpoints"), 12);
  EXPECT_EQ(occurrences(err(), "MPI_Finalize did not return within 1 s"), 1) << err();
  EXPECT_EQ(run(hung + train(2, "run.directory=/proc/no")), 2) << err();
  EXPECT_EQ(occurrences(err(), "trireme: error"), 1) << err();
  EXPECT_EQ(run("export TRIREME_END_SECONDS=1m; " + train(2, "")), 2);
  EXPECT_EQ(occurrences(err(), "trireme: error"), 1) << err();
  EXPECT_NE(err().find("TRIREME_END_SECONDS = \"1m\" is not"), std::string::npos) << err();
}

}  // namespace
}  // namespace trireme::commands
