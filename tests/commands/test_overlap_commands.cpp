#include <trireme/base/text.hpp>

#include <commands/training_runs.hpp>

#include <gtest/gtest.h>

#include <string>

/// Runs with 2bw, whose steps overlap.
namespace trireme::commands {
namespace {

using namespace commands::testing;

class OverlapRuns : public TrainingRuns {
 protected:
  static std::string with(const std::string& arguments) {
    return "parallel.schedule=2bw model.layers=3 run.evaluate_every=9 run.evaluate_batches=1 "
           "data.validation=data/tokens.h5 checkpoint.every=10 " +
           arguments;
  }
};

/// Evaluations, checkpoints and restarts end the overlap at different steps of the two runs.
TEST_F(OverlapRuns, WriteTheSameBitsOnEveryPipelineAndAfterRestarts) {
  ASSERT_EQ(run(train(1, with("run.steps=24 run.directory=one"))), 0) << err();
  ASSERT_EQ(run(train(2, with("run.steps=13 parallel.pipeline=2"))), 0) << err();
  ASSERT_EQ(run(train(3, with("run.steps=24 parallel.pipeline=3 checkpoint.restart=latest "
                              "checkpoint.every=7"))),
            0)
      << err();
  EXPECT_EQ(last_job().restored, 13);
  for (const char* name : {"step", "loss", "gradient_norm", "learning_rate", "tokens"}) {
    const auto expected = metrics("one", name);
    EXPECT_EQ(expected.size(), 24u) << name;
    EXPECT_EQ(metrics("run", name), expected) << name;
  }
  EXPECT_EQ(metrics("one", "validation_loss").size(), 3u) << "after 9, 18 and 24 steps";
  expect_equal_checkpoints("one/checkpoints/" + folder_name(24),
                           "run/checkpoints/" + folder_name(24));
  expect_all_verified("run/checkpoints");
}

/// The layers of every stage add their losses in backward passes, after the next step has begun.
TEST_F(OverlapRuns, ReportTheLossesOfLayersOnEveryPipeline) {
  const std::string experts =
      " model.biases=none experts.number=4 experts.feed_forward=16 run.log_every=1 run.steps=6 "
      "run.directory=";
  for (const int stages : {1, 2, 3})
    ASSERT_EQ(run(train(stages, with(text("parallel.pipeline=", stages, experts, "run", stages)))),
              0)
        << err();
  for (const char* name : {"loss", "balance_loss"}) {
    const auto expected = metrics("run1", name);
    EXPECT_EQ(expected.size(), 6U) << name;
    EXPECT_EQ(metrics("run2", name), expected) << name;
    EXPECT_EQ(metrics("run3", name), expected) << name;
  }
  const auto loads = [&](const std::string& run) {
    std::string found;
    const std::string lines = file(run + "/metrics.jsonl");
    for (std::size_t at = 0; (at = lines.find("\"expert_loads\"", at)) != std::string::npos; ++at)
      found += lines.substr(at, lines.find(']', at) - at) + "\n";
    return found;
  };
  EXPECT_EQ(loads("run1").find("[0.0"), std::string::npos) << loads("run1");
  EXPECT_EQ(loads("run2"), loads("run1"));
  EXPECT_EQ(loads("run3"), loads("run1"));
}

TEST_F(OverlapRuns, ContinueFromAndToOtherSchedulesWithANote) {
  ASSERT_EQ(run(train(2, "run.steps=4 parallel.pipeline=2")), 0) << err();
  ASSERT_EQ(run(train(2,
                      "run.steps=8 parallel.pipeline=2 parallel.schedule=2bw "
                      "checkpoint.restart=latest")),
            0)
      << err();
  EXPECT_NE(out().find("holds one version of the weights in fp32"), std::string::npos) << out();
  EXPECT_NE(out().find("\"2bw\"  (changes the numbers from here on)"), std::string::npos) << out();
  ASSERT_EQ(run(train(1, "run.steps=9 checkpoint.restart=latest")), 0) << err();
  EXPECT_NE(out().find("(changes the numbers from here on)"), std::string::npos) << out();
  EXPECT_EQ(last_job().restored, 8);
}

TEST_F(OverlapRuns, DrawShowsTheMeasuredRepeatedStep) {
  const std::string deck = with("run.steps=6 parallel.pipeline=2 checkpoint.every=0 ");
  ASSERT_EQ(run(train(2, deck + "run.evaluate_every=0 run.timeline=true")), 0) << err();
  EXPECT_NE(file("run/timeline.jsonl").find("ranks 2 micro_batches 12 chunks 1 tied 1 steps 3"),
            std::string::npos);
  ASSERT_EQ(run("trireme draw deck.toml --ranks 2 " + deck), 0) << err();
  EXPECT_NE(out().find("12 micro-batches, 3 steps without a flush"), std::string::npos) << out();
  EXPECT_NE(out().find("measured: idle"), std::string::npos) << out();
  ASSERT_EQ(run("trireme report run -o report.html"), 0) << err();
  EXPECT_NE(file("report.html").find("steps without a flush"), std::string::npos);
  EXPECT_EQ(run("trireme draw deck.toml --ranks 2 --format program " + deck), 2);
  expect_error(folder_, "has no program of one step");
}

}  // namespace
}  // namespace trireme::commands
