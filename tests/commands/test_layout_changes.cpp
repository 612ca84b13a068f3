#include <commands/training_runs.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

/// Any checkpoint restarts on any layout, and on the same layout bit for bit.
namespace trireme::commands {
namespace {

using namespace commands::testing;

struct Layout {
  const char* name;
  int ranks;
  const char* overrides;
};

/// Sizes that nothing divides: 5 layers, 6 heads, sequence 29, vocabulary 257; dropout.
class LayoutChanges : public TrainingRuns {
 protected:
  LayoutChanges() { write_deck(5, 36, 6, 29); }

  void train_steps(const Layout& layout, std::int64_t steps, const std::string& more) const {
    ASSERT_EQ(run(train(layout.ranks, std::string(layout.overrides) + more +
                                          " run.steps=" + std::to_string(steps))),
              0)
        << err();
  }

  /// The run's numbers behind `from` are those of the run that was never stopped.
  void expect_near_reference(std::int64_t from) const {
    for (const char* name : {"loss", "gradient_norm"}) {
      const auto found = metrics("run", name);
      const auto expected = metrics("reference", name);
      ASSERT_LE(found.size(), expected.size());
      for (auto i = static_cast<std::size_t>(from); i < found.size(); ++i) {
        const double a = std::atof(found[i].c_str());
        const double b = std::atof(expected[i].c_str());
        EXPECT_LE(std::abs(a - b), 1e-10 * b) << name << " of step " << i + 1;
      }
    }
  }

  /// Trains a few steps on each layout, each going on from the one before: one change per pair of
  /// neighbours. What one hands on wrongly shows in all that follow.
  void expect_one_run(const std::vector<Layout>& layouts, const std::string& model) const {
    constexpr std::int64_t each = 2;
    const std::string common = model + " precision.compute=fp64 ";
    train_steps({"one rank", 1, ""}, each * std::ssize(layouts),
                common + "run.directory=reference");
    std::string from = "nothing";
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      SCOPED_TRACE("from " + from + " to " + layouts[i].name);
      const std::int64_t before = each * static_cast<std::int64_t>(i);
      train_steps(layouts[i], before + each,
                  common + "checkpoint.keep=1 checkpoint.restart=latest");
      if (HasFatalFailure()) return;
      EXPECT_EQ(last_job().restored, before);
      EXPECT_EQ(metrics("run", "loss").size(), static_cast<std::size_t>(before + each));
      expect_near_reference(before);
      from = layouts[i].name;
    }
  }
};

TEST_F(LayoutChanges, ContinueAsAnUninterruptedRun) {
  std::vector<Layout> layouts{
      {"one rank", 1, ""},
      {"8 ranks on all axes", 8, "parallel.tensor=2 parallel.pipeline=2"},
      {"one rank again", 1, ""},
      {"tensor 4", 4, "parallel.tensor=4"},
      {"pipeline 4", 4, "parallel.pipeline=4"},
      {"data 3", 3, ""},
      {"data 2", 2, ""},
      {"gpipe", 2, "parallel.pipeline=2 parallel.schedule=gpipe"},
      {"2 chunks", 2, "parallel.pipeline=2 parallel.schedule=interleaved parallel.chunks=2"},
      {"1f1b", 2, "parallel.pipeline=2 parallel.schedule=1f1b"},
      {"zb-h1", 2, "parallel.pipeline=2 parallel.schedule=zb-h1"},
      {"tensor 2", 2, "parallel.tensor=2"},
      {"sequence parallel", 2, "parallel.tensor=2 parallel.sequence_parallel=true"},
      {"micro-batches of 3", 2, "batch.micro=3"}};
  if (soak())
    layouts.insert(
        layouts.end(),
        {{"tensor 3 x pipeline 2", 6, "parallel.tensor=3 parallel.pipeline=2"},
         {"data 6", 6, "batch.micro=2"},
         {"5 stages of a layer", 5, "parallel.pipeline=5 parallel.schedule=gpipe"},
         {"8 ranks, sequence parallel", 8,
          "parallel.tensor=4 parallel.sequence_parallel=true parallel.pipeline=2"},
         {"data 4", 4, ""},
         {"3 chunks", 3,
          "parallel.pipeline=3 parallel.schedule=interleaved parallel.chunks=2 batch.micro=2"},
         {"tensor 6", 6, "parallel.tensor=6 parallel.sequence_parallel=true"},
         {"12 ranks", 12, "parallel.tensor=2 parallel.pipeline=3 parallel.schedule=zb-h1"}});
  expect_one_run(layouts, " model.tied_embeddings=true");
}

TEST_F(LayoutChanges, SplitUntiedEmbeddings) {
  expect_one_run({{"one rank", 1, ""},
                  {"tensor 2 x pipeline 2", 4, "parallel.tensor=2 parallel.pipeline=2"},
                  {"data 2", 2, ""}},
                 " model.tied_embeddings=false");
}

/// Adapters whose inputs are dropped, on frozen weights.
TEST_F(LayoutChanges, ContinueWithAdapters) {
  write_deck(3, 36, 6, 29);
  expect_one_run({{"one rank", 1, ""},
                  {"tensor 2 x pipeline 2", 4, "parallel.tensor=2 parallel.pipeline=2"},
                  {"pipeline 3", 3, "parallel.pipeline=3 parallel.schedule=zb-h1"},
                  {"data 3", 3, "parallel.shard=optimizer"}},
                 " adapter.kind=lora adapter.rank=3 adapter.dropout=0.1 adapter.targets="
                 "attention.query,attention.key_value,attention.output,feed_forward.up,"
                 "feed_forward.down");
}

/// The text's lines are documents of about 30 tokens, in samples of 61.
TEST_F(LayoutChanges, SplitSamplesOfPackedDocuments) {
  write_deck(5, 36, 6, 61);
  expect_one_run({{"one rank", 1, ""},
                  {"tensor 2 x pipeline 2", 4, "parallel.tensor=2 parallel.pipeline=2"},
                  {"context 3", 3, "parallel.context=3"},
                  {"data 2", 2, ""}},
                 " data.packing=documents");
  EXPECT_NE(out().find("packing data/tokens.h5: 400 documents in "), std::string::npos) << out();
  train_steps({"windows", 1, ""}, 9, " precision.compute=fp64 checkpoint.restart=latest");
  EXPECT_NE(out().find("data.packing     \"documents\" -> \"none\"  (changes the numbers"),
            std::string::npos)
      << out();
}

/// 4, 4, 4, 8, 8, 12, 12, 12 samples: the second run begins amid the steps of 4, the third behind
/// the first one of 8.
TEST_F(LayoutChanges, ContinueDuringARampUp) {
  write_deck(2, 18, 3, 29);
  expect_one_run({{"one rank", 1, ""},
                  {"2 stages", 2, "parallel.pipeline=2 parallel.schedule=zb-h1"},
                  {"data 2 x tensor 2", 4, "parallel.tensor=2"},
                  {"micro-batches of 4", 1, "batch.micro=4"}},
                 " batch.ramp_start=4 batch.ramp_increment=4 batch.ramp_samples=24");
  const std::vector<std::string> sizes{"4", "4", "4", "8", "8", "12", "12", "12"};
  for (const char* folder : {"run", "reference"}) {
    EXPECT_EQ(metrics(folder, "global_batch"), sizes);
    std::int64_t tokens = 0;
    const auto so_far = metrics(folder, "tokens");
    ASSERT_EQ(so_far.size(), sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i)
      EXPECT_EQ(std::atoll(so_far[i].c_str()), tokens += 29 * std::atoll(sizes[i].c_str()));
  }
}

TEST_F(LayoutChanges, SameLayoutContinuesARampUpBitForBit) {
  write_deck(2, 18, 3, 29);
  const Layout layout{"data 2", 2, ""};
  const std::string ramp = " batch.ramp_start=2 batch.ramp_increment=2 batch.ramp_samples=24";
  train_steps(layout, 7, ramp + " run.directory=whole");
  for (const std::int64_t steps : {3, 4, 7})
    train_steps(layout, steps, ramp + " checkpoint.restart=latest");
  for (const char* name : {"loss", "gradient_norm", "global_batch", "tokens"})
    EXPECT_EQ(metrics("run", name), metrics("whole", name)) << name;
  expect_equal_checkpoints("run/checkpoints", "whole/checkpoints");
  ASSERT_EQ(run(train(2, ramp + " run.steps=8 checkpoint.restart=latest batch.ramp_samples=26")),
            2);
  expect_one_error({"[batch] ramp_samples = 26 (command line), but 24 in run/checkpoints/"});
}

/// Llama with heads of keys and values that tensor ranks share: a checkpoint has each of them once,
/// and any layout reads it.
TEST_F(LayoutChanges, ShareKeyValueHeads) {
  const std::string model = " model.family=llama model.key_value_heads=2 ";
  std::vector<Layout> layouts{
      {"one rank", 1, ""},
      {"tensor 4", 4, "parallel.tensor=4 parallel.shard=optimizer"},
      {"tensor 3 x data 2", 6, "parallel.tensor=3 parallel.shard=optimizer"}};
  if (soak())
    layouts.insert(
        layouts.end(),
        {{"tensor 2, sequence parallel", 2, "parallel.tensor=2 parallel.sequence_parallel=true"},
         {"tensor 6", 6, "parallel.tensor=6 parallel.sequence_parallel=true"},
         {"tensor 4 x pipeline 2", 8, "parallel.tensor=4 parallel.pipeline=2"},
         {"one rank again", 1, ""},
         {"tensor 5", 5, "parallel.tensor=5"}});
  expect_one_run(layouts, model);
  expect_all_verified("run/checkpoints");
  ASSERT_EQ(run("trireme inspect --diff run/checkpoints reference/checkpoints"), 0) << err();
  const std::string differences = out();
  const std::string key = "absolute difference ";
  EXPECT_GT(occurrences(differences, key), 0) << "other layouts, other roundings";
  for (auto at = differences.find(key); at != std::string::npos; at = differences.find(key, at + 1))
    EXPECT_LE(std::atof(differences.c_str() + at + key.size()), 1e-10) << differences;
  EXPECT_EQ(differences.find("only"), std::string::npos) << differences;
}

/// On the same layout a restart is no event: losses and all arrays are those of the run without
/// one, with dropout and across the end of an epoch.
TEST_F(LayoutChanges, SameLayoutContinuesBitForBit) {
  write_deck(2, 18, 3, 29);
  std::string words;
  for (int i = 0; i < 125; ++i) words += "the lazy dog " + std::to_string(i * i % 97) + "\n";
  folder_.write("small", words);
  ASSERT_EQ(run("trireme tokenize -o data/small.h5 --document-separator '\\n' small"), 0);
  for (const Layout& layout :
       {Layout{"one rank", 1, ""},
        {"data 2 x pipeline 2", 4, "parallel.pipeline=2"},
        {"shared heads", 4,
         "parallel.tensor=4 model.family=llama model.heads=9 model.key_value_heads=3"}})
    for (const char* compute : {"fp32", "fp64"}) {
      if (!soak() && compute == std::string("fp64")) continue;
      SCOPED_TRACE(std::string(layout.name) + ", " + compute);
      const std::string common =
          std::string(" data.train=data/small.h5 precision.compute=") + compute;
      train_steps(layout, 8, common + " run.directory=whole");
      // 8 steps take 96 samples: the restart's first step is in one epoch, its last in the next.
      const auto data = recorded_last<events::Data>(folder_, "whole");
      ASSERT_TRUE(data && data->samples_per_epoch);
      EXPECT_GT(*data->samples_per_epoch, 5 * 12);
      EXPECT_LT(*data->samples_per_epoch, 8 * 12);
      ASSERT_EQ(run("rm -rf run"), 0);
      train_steps(layout, 4, common + " checkpoint.restart=latest");
      train_steps(layout, 8, common + " checkpoint.restart=latest");
      EXPECT_EQ(last_job().restored, 4);
      EXPECT_EQ(metrics("run", "loss"), metrics("whole", "loss"));
      EXPECT_EQ(metrics("run", "gradient_norm"), metrics("whole", "gradient_norm"));
      expect_equal_checkpoints("run/checkpoints", "whole/checkpoints");
    }
}

}  // namespace
}  // namespace trireme::commands
