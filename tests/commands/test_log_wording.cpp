#include <trireme/base/text.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "commands/engine_commands.hpp"

/// The wording of a run's log, which people read. All other tests take facts from events.jsonl, so
/// that a change of words changes this file alone.
namespace trireme::commands {
namespace {

class LogWording : public EngineCommands {
 protected:
  void train(int code, const std::string& overrides) {
    ASSERT_EQ(run("trireme train deck.toml run.log_every=1 checkpoint.every=2 " + overrides), code)
        << err();
  }
  void restart(int code, const std::string& overrides) {
    train(code, "checkpoint.restart=latest " + overrides);
  }

  /// Each of these is a whole line of the log. N stands for a number, * for any words.
  void expect_lines(const std::vector<std::string>& expected) const {
    const std::string log = file("run/log.txt");
    for (const std::string& line : expected)
      EXPECT_TRUE(std::regex_search(log, std::regex(pattern(line)))) << line << "\nin:\n" << log;
  }

 private:
  static std::string pattern(const std::string& line) {
    std::string out = "(^|\n)";
    for (const char c : line) {
      if (c == 'N')
        out += "[-+0-9.,e]+";
      else if (c == '*')
        out += ".+";
      else if (std::string("()[]{}+?.^$|\\").find(c) != std::string::npos)
        out += std::string("\\") + c;
      else
        out += c;
    }
    return out + "(?=\n)";
  }
};

TEST_F(LogWording, CoversACompleteRun) {
  train(0, "run.steps=4 batch.ramp_start=2 batch.ramp_increment=2 batch.ramp_samples=8");
  expect_lines(
      {"trireme: N rank, Kokkos N *",
       "deck deck.toml: N parameters, fp32, data N · pipeline N · tensor N",
       "data data/tokens.h5: N tokens, N samples of 32 tokens per epoch; 4 per step, 4 steps",
       "schedule 1f1b: N micro-batches per rank and step on N stage",
       "batch grows from 2 to 4 samples in 2 sizes, the full batch from step 5 on",
       "memory per rank", "  sum *", "matrix-product peak of all ranks, measured: N GFLOP/s (*)",
       "step 4/4 epoch N batch N  loss N norm N  * tok/s*eta N:N",
       "step 4: validation loss N nats per token, N bits per byte",
       "checkpoint run/checkpoints/step_00000004 (N s)", "mean speed: N tokens/s, MFU N %",
       "peak memory of a rank: N MiB resident, N bytes"});
}

TEST_F(LogWording, CoversARestart) {
  restart(0, "run.steps=4 checkpoint.asynchronous=true");
  expect_lines(
      {"no checkpoint in run/checkpoints: starting at step 1",
       "checkpoint run/checkpoints/step_00000002 (N s in the background, the run waited N s)"});
  restart(0, "run.steps=5 model.dropout=0.2 run.seed=3 data.train=data/../data/tokens.h5");
  expect_lines(
      {"restarted from run/checkpoints/step_00000004 after step 4, 16 samples",
       "differs from the deck of run/checkpoints/step_00000004:", "  run.steps              4 -> 5",
       "  run.seed               1 -> 3 *  (changes the numbers from here on)",
       "  model.dropout          0.1 -> 0.2 *  (changes the numbers from here on)",
       "  data.train             \"data/tokens.h5\" -> \"data/../data/tokens.h5\"  (the "
       "same samples)"});
  restart(0, "run.steps=5 model.dropout=0.2 run.seed=3");
  expect_lines({"nothing to do: step 5 of 5 is done"});
  train(0, "run.steps=2");
  expect_lines(
      {"checkpoints that do not belong to this run were moved to "
       "run/checkpoints/previous-1: step_00000005, step_00000004, step_00000002"});
  std::ofstream(folder_.file("run/checkpoints/step_00000002/manifest.json")) << "{}";
  restart(0, "run.steps=2");
  expect_lines({"trireme: warning: checkpoint run/checkpoints/step_00000002 is skipped: *",
                "no intact checkpoint in run/checkpoints: starting at step 1"});
}

TEST_F(LogWording, OmitsADeckThatDiffersOnlyInItsFolder) {
  restart(0, "run.steps=2");
  restart(0, "run.steps=2");
  EXPECT_EQ(count(file("run/log.txt"), "differs"), 0);
}

TEST_F(LogWording, CoversAStopAndSkippedSteps) {
  restart(75, "run.steps=10000000 run.time_limit=00:00:01");
  expect_lines(
      {"stopped early after step N of 10000000; start the same command with "
       "checkpoint.restart=latest to continue"});
  std::filesystem::remove_all(folder_.file("run"));
  train(1, "run.steps=12 optimizer.learning_rate=1e30 optimizer.maximum_skips=2");
  expect_lines(
      {"step N was skipped: its loss or gradient is not finite*; N step skipped so far, N in a "
       "row",
       "trireme: error: step N: loss *, gradient norm *; the last 2 steps were skipped *"});
}

TEST_F(LogWording, CoversWeightsWithoutAnOptimizer) {
  train(0, "run.steps=2 model.vocabulary=257");
  ASSERT_EQ(run("trireme export run/checkpoints exported && rm -r run && trireme import exported "
                "deck.toml model.vocabulary=257"),
            0)
      << err();
  ASSERT_EQ(run(mpiexec(2) + "trireme train deck.toml model.vocabulary=257 run.steps=2 "
                             "checkpoint.restart=latest"),
            0)
      << err();
  expect_lines({"run/checkpoints/step_00000000 holds no optimizer state; it starts at zero"});
  EXPECT_EQ(count(out(), "holds no optimizer state"), 1) << "one rank speaks";
}

}  // namespace
}  // namespace trireme::commands
