#include <commands/training_runs.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

/// Runs with parameter servers.
namespace trireme::commands {
namespace {

using namespace commands::testing;

class ServerRuns : public TrainingRuns {
 protected:
  static std::string served(const std::string& arguments) {
    return "parallel.strategy=server model.layers=2 " + arguments;
  }
};

/// Evaluations, checkpoints in the background and a restart with servers, against all-reduce.
TEST_F(ServerRuns, MatchAllReduceBitForBit) {
  const std::string common =
      "run.evaluate_every=9 run.evaluate_batches=1 data.validation=data/tokens.h5 run.log_every=3 ";
  ASSERT_EQ(run(train(2, common + "model.layers=2 run.steps=24 run.directory=one")), 0) << err();
  ASSERT_EQ(run(train(3, served(common + "run.steps=13 checkpoint.every=5"))), 0) << err();
  ASSERT_EQ(run(train(4, served(common + "run.steps=24 parallel.servers=2 checkpoint.every=7 "
                                         "checkpoint.restart=latest"))),
            0)
      << err();
  EXPECT_EQ(last_job().restored, 13);
  const auto steps = metrics("run", "step");
  for (const char* name : {"loss", "gradient_norm", "learning_rate", "validation_loss"})
    EXPECT_EQ(metrics("run", name).back(), metrics("one", name).back()) << name;
  EXPECT_EQ(std::count(steps.begin(), steps.end(), "9"), 1);
  expect_equal_checkpoints("one/checkpoints/" + folder_name(24),
                           "run/checkpoints/" + folder_name(24));
  expect_all_verified("run/checkpoints");
  ASSERT_EQ(run(train(1, "model.layers=2 run.steps=25 checkpoint.restart=latest")), 0) << err();
  EXPECT_EQ(last_job().restored, 24);
}

TEST_F(ServerRuns, RepeatTheRecordedOrderAfterARestart) {
  for (const char* updates : {"step", "push"}) {
    SCOPED_TRACE(updates);
    ASSERT_EQ(run("rm -rf run again"), 0);
    const std::string stale = served(std::string("parallel.staleness=2 run.log_every=6 "
                                                 "parallel.updates=") +
                                     updates + " ");
    ASSERT_EQ(run(train(3, stale + "run.steps=12 checkpoint.every=6")), 0) << err();
    ASSERT_EQ(
        run(train(3, stale + "run.steps=24 checkpoint.restart=run/checkpoints/" + folder_name(6))),
        0)
        << err();
    const std::string record = file("run/server_events.jsonl");
    EXPECT_EQ(occurrences(record, "\"fetch\""), 2 * 24) << record;
    EXPECT_EQ(occurrences(record, "\"update\""), updates == std::string("push") ? 2 * 24 : 24);
    ASSERT_EQ(run(train(3, stale + "run.steps=24 run.directory=again "
                                   "parallel.replay=run/server_events.jsonl")),
              0)
        << err();
    EXPECT_EQ(metrics("again", "loss").back(), metrics("run", "loss").back());
    expect_equal_checkpoints("run/checkpoints/" + folder_name(24),
                             "again/checkpoints/" + folder_name(24));
  }
  EXPECT_EQ(run(train(4, served("parallel.staleness=2 parallel.updates=push run.directory=other "
                                "parallel.replay=run/server_events.jsonl"))),
            2);
  expect_error(folder_,
               "is the record of a run with 2 workers, staleness = 2 and updates = "
               "\"push\", but this run has 3 workers");
}

TEST_F(ServerRuns, StopAfterASignalAndContinue) {
  for (const char* updates : {"step", "push"}) {
    const std::string stale = served(std::string("parallel.staleness=3 run.log_every=1000 "
                                                 "parallel.updates=") +
                                     updates);
    ASSERT_EQ(run("rm -rf run"), 0);
    {
      Job started(folder_, train(3, stale + " run.steps=1000000"));
      ASSERT_TRUE(started.until([&] {
        return occurrences(file("run/server_events.jsonl"), "\"update\"") > 3;
      })) << out()
          << err();
      const auto processes = started.ranks(3);
      ASSERT_EQ(std::ssize(processes), 3);
      EXPECT_EQ(kill(processes[1], SIGTERM), 0);
      started.wait();
    }
    const std::int64_t step = newest_step("run/checkpoints");
    EXPECT_GT(step, 0) << out() << err();
    ASSERT_TRUE(last_job().stop);
    EXPECT_EQ(last_job().stop->exit_code, 75);
    ASSERT_EQ(
        run(train(3, stale + " checkpoint.restart=latest run.steps=" + std::to_string(step + 2))),
        0)
        << err();
    EXPECT_EQ(last_job().restored, step);
  }
}

/// Killed at any time, a run continues with the bits of the one that was not.
TEST_F(ServerRuns, ContinueAfterAKill) {
  const std::string served_run = served("run.log_every=4 checkpoint.every=4 checkpoint.keep=0 ");
  ASSERT_EQ(run(train(3, served_run + "run.steps=16 run.directory=whole")), 0) << err();
  {
    Job started(folder_, train(3, served_run + "run.steps=1000000"));
    ASSERT_TRUE(started.until([&] { return newest_step("run/checkpoints") >= 8; })) << err();
    started.kill_all();
  }
  ASSERT_EQ(run(train(3, served_run +
                             "run.steps=16 run.directory=after checkpoint.restart=run/"
                             "checkpoints/" +
                             folder_name(8))),
            0)
      << err();
  expect_equal_checkpoints("whole/checkpoints/" + folder_name(16),
                           "after/checkpoints/" + folder_name(16));
}

TEST_F(ServerRuns, WatchdogNamesAHangingServerOrWorker) {
  for (const auto& [rank, name] : {std::pair{1, "worker 1"}, {2, "server 0"}}) {
    ASSERT_EQ(run("rm -rf run"), 0);
    Job started(folder_,
                train(3, served("parallel.staleness=1 run.watchdog=00:00:02 run.log_every=1000 "
                                "run.steps=1000000")));
    ASSERT_TRUE(started.until([&] {
      return occurrences(file("run/server_events.jsonl"), "\"update\"") > 3;
    })) << out()
        << err();
    const auto processes = started.ranks(3);
    ASSERT_EQ(std::ssize(processes), 3);
    EXPECT_EQ(kill(processes[static_cast<std::size_t>(rank)], SIGSTOP), 0);
    EXPECT_NE(started.wait(), 0);
    const std::string report = err();
    const auto at = report.find("is stopped (SIGSTOP)");
    ASSERT_NE(at, std::string::npos) << report;
    EXPECT_NE(report.substr(at, report.find('\n', at) - at).find(name), std::string::npos)
        << report;
  }
}

TEST_F(ServerRuns, CheckShowsMemoryOfWorkersAndServers) {
  ASSERT_EQ(run("trireme check deck.toml --ranks 3 " + served("parallel.staleness=2")), 0) << err();
  for (const char* part :
       {"of the data axis, 2 are workers and 1 is a server; weights lack at most 2 steps' updates",
        "memory per rank of a worker", "memory per rank of a server", "received gradients",
        "gradients: send", "weights: send"})
    EXPECT_NE(out().find(part), std::string::npos) << part << out();
}

}  // namespace
}  // namespace trireme::commands
