#include <commands/training_runs.hpp>

#include <trireme/deck/deck.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <limits>
#include <string>
#include <vector>

/// [parallel] layout = "auto": each job of a run chooses the layout for its ranks.
namespace trireme::commands {
namespace {

using namespace commands::testing;

/// 2 layers, 4 heads, a global batch of 12, fp64, without micro.
class AutoLayout : public TrainingRuns {
 protected:
  AutoLayout() {
    write_deck(2, 36, 4, 29);
    std::string deck = file("deck.toml");
    const std::string micro = "micro = 1\n";
    deck.erase(deck.find(micro), micro.size());
    folder_.write("deck.toml",
                  deck + "[parallel]\nlayout = \"auto\"\n[precision]\ncompute = \"fp64\"\n");
  }

  void train_until(int ranks, int steps, const std::string& more) const {
    ASSERT_EQ(run(train(ranks, "run.steps=" + std::to_string(steps) + more)), 0) << err();
  }

  /// The layout of the last job, which must be one of so many ranks that is also in the resolved
  /// deck.
  events::Layout last_layout(std::int64_t ranks) const {
    const auto found = recorded_last<events::Layout>(folder_, "run");
    const auto start = recorded_last<events::Start>(folder_, "run");
    if (!found || !start) {
      ADD_FAILURE() << "no layout was recorded";
      return {};
    }
    EXPECT_EQ(found->data * found->pipeline * found->tensor, ranks);
    EXPECT_EQ(start->ranks, ranks);
    EXPECT_EQ(start->tensor, found->tensor);
    EXPECT_FALSE(found->reason.empty());
    const deck::Config c = deck::load_deck(folder_.file("run/deck.toml")).config;
    EXPECT_EQ(c.parallel.layout, LayoutMode::given);
    EXPECT_EQ(c.parallel.data, found->data);
    EXPECT_EQ(c.parallel.pipeline, found->pipeline);
    EXPECT_EQ(c.parallel.tensor, found->tensor);
    EXPECT_EQ(c.parallel.chunks, found->chunks);
    EXPECT_EQ(name_of(c.parallel.schedule), found->schedule);
    EXPECT_EQ(c.batch.micro, found->micro_batch);
    return *found;
  }
};

TEST_F(AutoLayout, ContinuesARunOnAnyNumberOfRanks) {
  train_until(1, 6, " run.directory=reference");
  std::int64_t before = 0;
  for (const int ranks : {2, 4, 3}) {
    SCOPED_TRACE(ranks);
    train_until(ranks, static_cast<int>(before) + 2, " checkpoint.restart=latest");
    if (HasFatalFailure()) return;
    EXPECT_EQ(last_job().restored, before);
    EXPECT_TRUE(last_layout(ranks).fixed.empty());
    before += 2;
  }
  for (const char* name : {"loss", "gradient_norm"}) {
    const auto found = metrics("run", name);
    const auto expected = metrics("reference", name);
    ASSERT_EQ(found.size(), 6u);
    ASSERT_EQ(expected.size(), 6u);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double loss = std::atof(expected[i].c_str());
      EXPECT_LE(std::abs(std::atof(found[i].c_str()) - loss), 1e-10 * loss) << name << " " << i + 1;
    }
  }
}

TEST_F(AutoLayout, KeepsKeysOfTheDeck) {
  train_until(4, 1,
              " parallel.tensor=2 parallel.pipeline=2 batch.micro=3 parallel.recompute=full "
              "parallel.order=data");
  const events::Layout layout = last_layout(4);
  EXPECT_EQ(layout.tensor, 2);
  EXPECT_EQ(layout.pipeline, 2);
  EXPECT_EQ(layout.micro_batch, 3);
  EXPECT_EQ(layout.recompute, "full");
  EXPECT_TRUE(layout.order.starts_with("data, tensor, ")) << layout.order;
  EXPECT_EQ(layout.fixed, (std::vector<std::string>{"parallel.tensor", "parallel.pipeline",
                                                    "parallel.recompute", "batch.micro"}));
  // Stages have a layer each: 2 chunks on 2 pipeline ranks need 4.
  train_until(2, 1,
              " parallel.schedule=interleaved parallel.data=1 parallel.tensor=1 model.layers=4");
  EXPECT_EQ(last_layout(2).pipeline, 2);
  EXPECT_EQ(last_layout(2).chunks, 2);
}

/// The bytes of the smallest layout that divides so much.
Bytes smallest(const std::string& json) {
  Bytes least = std::numeric_limits<Bytes>::max();
  const auto plan = nlohmann::json::parse(json);
  for (const auto& candidate : plan.at("candidates"))
    least = std::min(least, candidate.at("bytes").get<Bytes>());
  return least;
}

TEST_F(AutoLayout, DividesWeightsIfNothingElseFits) {
  const std::string fixed =
      " model.layers=16 parallel.tensor=1 parallel.pipeline=1 batch.micro=3 "
      "parallel.recompute=none";
  const auto least = [&](const std::string& shard) {
    EXPECT_EQ(run("trireme plan deck.toml --ranks 4 --memory-limit 1TB --json plan.json" + fixed +
                  " parallel.shard=" + shard),
              0)
        << err();
    return smallest(file("plan.json"));
  };
  const Bytes weights = least("weights"), gradients = least("gradients");
  const Bytes optimizer = least("optimizer");
  ASSERT_LT(weights, gradients);
  ASSERT_LT(gradients, optimizer);
  train_until(4, 3, " run.directory=reference parallel.layout=given" + fixed);
  train_until(4, 3, fixed + " parallel.memory_limit=" + std::to_string(gradients - 1));
  EXPECT_EQ(last_layout(4).shard, "weights");
  for (const char* name : {"loss", "gradient_norm"})
    EXPECT_EQ(metrics("run", name), metrics("reference", name)) << name;
  train_until(
      4, 1, fixed + " run.directory=other parallel.memory_limit=" + std::to_string(optimizer - 1));
  const deck::Config other = deck::load_deck(folder_.file("other/deck.toml")).config;
  EXPECT_EQ(other.parallel.shard, Sharding::gradients);
}

TEST_F(AutoLayout, RepeatsARunBitForBitOnTheSameRanks) {
  train_until(3, 4, " run.directory=whole");
  train_until(3, 2, " checkpoint.restart=latest");
  train_until(3, 4, " checkpoint.restart=latest");
  EXPECT_EQ(metrics("run", "loss"), metrics("whole", "loss"));
  expect_equal_checkpoints("run/checkpoints", "whole/checkpoints");
  // The resolved deck gives the chosen layout.
  ASSERT_EQ(run(std::string(TRIREME_MPIEXEC) + " -n 3 trireme train whole/deck.toml "
                                               "run.directory=again"),
            0)
      << err();
  EXPECT_EQ(metrics("again", "loss"), metrics("whole", "loss"));
}

TEST_F(AutoLayout, ReportsOneErrorIfNoLayoutFits) {
  EXPECT_EQ(run(train(7, "")), 2);
  expect_one_error(
      {"no layout fits 7 ranks with [batch] global = 12 (deck.toml:", "start 4, 6, 8 or 9 ranks"});
  EXPECT_EQ(run("trireme check deck.toml --ranks 7"), 2);
  expect_one_error({"no layout fits 7 ranks"});
  EXPECT_EQ(run(train(3, "parallel.tensor=2")), 2);
  expect_one_error({"[parallel] tensor = 2 (command line); start 2, 4 or 6 ranks"});
}

TEST_F(AutoLayout, CheckAndDrawChooseTheLayoutOfTrain) {
  for (const char* command : {"check", "draw"}) {
    EXPECT_EQ(run(std::string("trireme ") + command + " deck.toml"), 2);
    expect_one_error({"[parallel] layout = \"auto\" (deck.toml:", "give --ranks"});
    EXPECT_EQ(run(std::string("trireme ") + command + " deck.toml --ranks 4"), 0) << err();
  }
  ASSERT_EQ(run("trireme check deck.toml --ranks 4"), 0);
  EXPECT_EQ(occurrences(out(), "\nlayout        chosen: data "), 1) << out();
  ASSERT_EQ(run("trireme check deck.toml --ranks 4 --resolved"), 0);
  folder_.write("resolved.toml", out());
  train_until(4, 1, "");
  const deck::Config trained = deck::load_deck(folder_.file("run/deck.toml")).config;
  EXPECT_EQ(deck::load_deck(folder_.file("resolved.toml")).config.parallel, trained.parallel);
}

TEST_F(AutoLayout, RejectsAMachineFileOfAnotherKind) {
  const std::string file = " parallel.machine=" TRIREME_SOURCE_DIR "/inputs/machines/";
  train_until(2, 1, file + "host.toml");
  last_layout(2);
  EXPECT_EQ(run(train(2, file + "h100.toml")), 2);
  expect_one_error({"[parallel] machine = ", "kind = \"cuda\"", "kind = \"host\""});
  EXPECT_EQ(run(train(2, "parallel.machine=none.toml")), 2);
  expect_one_error({"none.toml"});
}

TEST_F(AutoLayout, EvalAndReportAcceptTheDeck) {
  train_until(2, 1, "");
  EXPECT_EQ(run(std::string(TRIREME_MPIEXEC) +
                " -n 3 trireme eval deck.toml data.validation=data/tokens.h5 "
                "run.evaluate_batches=1"),
            0)
      << err();
  EXPECT_EQ(run("trireme report run"), 0) << err();
}

}  // namespace
}  // namespace trireme::commands
