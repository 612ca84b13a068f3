#include <gtest/gtest.h>

#include <commands/recorded.hpp>
#include <support/shell.hpp>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

/// Runs of `trireme train` on several ranks in several layouts.
namespace trireme::commands {
namespace {

using namespace trireme::testing;

class LayoutCommands : public ::testing::Test {
 protected:
#ifdef TRIREME_ON_DEVICE
  void SetUp() override {
    if (run("trireme-engine --help") == 127)
      GTEST_SKIP() << "trireme-engine does not start here: " << err();
  }
#endif

  LayoutCommands() {
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += "the quick brown fox " + std::to_string(i * i % 97) + " jumps\n";
    folder_.write("text", text);
    folder_.write("deck.toml", R"([run]
directory = "run"
steps = 12
log_every = 1
[model]
layers = 3
hidden = 18
heads = 3
sequence = 29
dropout = 0.1
[batch]
global = 8
micro = 1
[precision]
compute = "fp64"
[optimizer]
learning_rate = 1e-2
warmup_steps = 2
decay_steps = 12
[data]
train = "data/tokens.h5"
)");
    EXPECT_EQ(shell(folder_, "trireme tokenize -o data/tokens.h5 --document-separator '\\n' text"),
              0);
  }

  int run(const std::string& line) {
    return shell(folder_, line);
  }
  std::string err() const {
    return read_file(folder_.file("err"));
  }
  static std::string on(int ranks, const std::string& arguments) {
    return std::string(TRIREME_MPIEXEC) + " -n " + std::to_string(ranks) +
           " trireme train deck.toml " + arguments;
  }

  /// The losses in metrics.jsonl, as they stand there.
  std::vector<std::string> losses() const {
    const std::string lines = read_file(folder_.file("run/metrics.jsonl"));
    std::vector<std::string> found;
    const std::string key = "\"loss\":";
    for (auto at = lines.find(key); at != std::string::npos; at = lines.find(key, at + 1))
      found.push_back(lines.substr(at + key.size(), lines.find(',', at) - at - key.size()));
    return found;
  }

  void expect_losses(const std::vector<std::string>& expected) const {
    const auto found = losses();
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double a = std::atof(found[i].c_str());
      const double b = std::atof(expected[i].c_str());
      EXPECT_LE(std::abs(a - b), 1e-10 * b) << "step " << i + 1;
    }
  }

  TemporaryFolder folder_;
};

TEST_F(LayoutCommands, LayoutsGiveTheSameLossesAndContinueEachOther) {
  ASSERT_EQ(run("trireme train deck.toml"), 0) << err();
  const auto expected = losses();
  ASSERT_EQ(expected.size(), 12u);
  ASSERT_EQ(run(on(4,
                   "parallel.tensor=2 parallel.pipeline=2 parallel.schedule=interleaved "
                   "parallel.chunks=2 parallel.sequence_parallel=true")),
            0)
      << err();
  expect_losses(expected);

  const std::string restart = " checkpoint.restart=latest";
  ASSERT_EQ(run("rm -r run; " + on(3, "parallel.tensor=3 run.steps=4")), 0) << err();
  ASSERT_EQ(run(on(4, "parallel.pipeline=4 parallel.schedule=zb-h1 run.steps=8" + restart)), 0)
      << err();
  ASSERT_EQ(run(on(2, restart)), 0) << err();
  expect_losses(expected);
}

TEST_F(LayoutCommands, EvalRunsOnTheDecksLayoutOrAnyOther) {
  ASSERT_EQ(run("trireme train deck.toml run.steps=2"), 0) << err();
  std::string expected;
  for (const char* command :
       {" -n 1 trireme eval deck.toml", " -n 2 trireme eval deck.toml parallel.pipeline=2",
        " -n 4 trireme eval deck.toml parallel.tensor=2 parallel.sequence_parallel=true",
        " -n 4 trireme eval deck.toml parallel.pipeline=2 parallel.tensor=2",
        " -n 2 trireme eval deck.toml parallel.pipeline=2 parallel.partition=0,3",
        " -n 3 trireme eval deck.toml parallel.pipeline=2",  // one whole model each
        " -n 3 trireme eval deck.toml parallel.pipeline=2 parallel.partition=[3,0]"}) {
    ASSERT_EQ(run(std::string(TRIREME_MPIEXEC) + command + " --data data/tokens.h5"), 0) << err();
    const std::string out = read_file(folder_.file("out"));
    const std::string loss = out.substr(out.find("\nloss "));
    if (expected.empty()) expected = loss;
    EXPECT_EQ(loss, expected) << command;
  }
}

TEST_F(LayoutCommands, ProgramFromAFileMatchesItsScheduleBitForBit) {
  const std::string pipeline = "parallel.pipeline=2 ";
  ASSERT_EQ(run(on(2, pipeline + "run.steps=4")), 0) << err();
  const auto expected = losses();
  ASSERT_EQ(run("trireme draw deck.toml --ranks 2 --format program -o by_hand.txt " + pipeline), 0)
      << err();
  ASSERT_EQ(run(on(2, pipeline + "run.steps=4 parallel.schedule=file "
                                 "parallel.program=by_hand.txt")),
            0)
      << err();
  EXPECT_EQ(losses(), expected);
}

TEST_F(LayoutCommands, ProgramsMixWholeAndSplitBackwardPasses) {
  const std::string arguments = "parallel.pipeline=2 batch.micro=2 run.steps=4 ";
  ASSERT_EQ(run(on(2, arguments)), 0) << err();
  const auto expected = losses();
  folder_.write("mixed.txt", "F0 F1 B0 F2 I1 F3 W1 B2 I3 W3\nF0 I0 F1 W0 B1 F2 I2 F3 I3 W2 W3\n");
  ASSERT_EQ(run(on(2, arguments + "parallel.schedule=file parallel.program=mixed.txt")), 0)
      << err();
  EXPECT_EQ(losses(), expected);
}

TEST_F(LayoutCommands, RejectProgramsThatDoNotTrainOrChangeTheBits) {
  const std::string check =
      "trireme check deck.toml --ranks 2 parallel.pipeline=2 batch.micro=4 "
      "parallel.schedule=file parallel.program=p.txt";
  folder_.write("p.txt", "E0 E1\nE0 E1\n");
  EXPECT_EQ(run(check), 2);
  expect_error(folder_, "does not train");
  // The last stage adds to the loss in its forward pass: 0 first.
  folder_.write("p.txt", "F1 F0 B0 B1\nF1 F0 B0 B1\n");
  EXPECT_EQ(run(check), 2);
  expect_error(folder_, "p.txt");
}

TEST_F(LayoutCommands, DrawShowsMeasuredAndPredictedTimelines) {
  ASSERT_EQ(run(on(2, "parallel.pipeline=2 run.steps=2 run.timeline=true")), 0) << err();
  ASSERT_EQ(run("trireme draw deck.toml --ranks 2 parallel.pipeline=2"), 0) << err();
  expect_output(folder_, "measured");
  ASSERT_EQ(run("trireme draw deck.toml --ranks 2 parallel.pipeline=2 --format trace -o t.json"), 0)
      << err();
  EXPECT_EQ(run("python3 -m json.tool t.json"), 0) << "a trace is JSON";
}

/// A job of 3 ranks, one of which gets `signal` after step 3.
std::string signalled(const std::string& train, const std::string& signal) {
  return train +
         " run.steps=1000000 run.watchdog=00:00:02 & job=$!\n"
         "for i in $(seq 300); do grep -q '\"step\":3,' run/metrics.jsonl 2>/dev/null && break; "
         "sleep 0.1; done\n"
         "proxy=$(pgrep -P $job hydra_pmi_proxy)\n"
         "kill -" +
         signal +
         " $(pgrep -P ${proxy:-$job} | tail -1)\n"
         "wait $job";
}

TEST_F(LayoutCommands, StoppedOrKilledRankEndsTheJobAndIsNamed) {
  if (run("command -v pgrep") != 0) GTEST_SKIP() << "pgrep (procps) is missing";
  const std::string job = on(3, "parallel.pipeline=3");
  EXPECT_NE(run(signalled(job, "STOP")), 0);
  expect_error(folder_, "trireme: error");
  expect_error(folder_, "rank 2");
  const auto message_of = [&] {
    const auto stop = recorded_last<events::Stop>(folder_, "run");
    return stop && stop->cause == events::StopCause::watchdog ? stop->message.value_or("") : "";
  };
  EXPECT_NE(message_of().find("rank 2"), std::string::npos) << message_of();

  std::string killed;
  for (int attempt = 0; attempt < 3 && killed.find("has died") == std::string::npos; ++attempt) {
    // A launcher that ends all processes at once can rarely be too fast for the report.
    EXPECT_NE(run("rm -r run; " + signalled(job, "KILL")), 0);
    killed = message_of();
  }
  EXPECT_NE(killed.find("has died"), std::string::npos) << killed << err();
}

}  // namespace
}  // namespace trireme::commands
