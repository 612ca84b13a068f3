#include <trireme/base/checksum.hpp>
#include <trireme/base/text.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/manifest.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "commands/engine_commands.hpp"

namespace trireme::commands {
namespace {

namespace fs = std::filesystem;

/// A run of four steps with checkpoints at steps 2 and 4, of a model that three ranks can share.
class RestartCommands : public EngineCommands {
 protected:
  void train_four_steps() { ASSERT_EQ(train(1, "run.steps=4"), 0) << err(); }

  int train(int ranks, const std::string& overrides) {
    return run((ranks > 1 ? mpiexec(ranks) : "") + "trireme train deck.toml" + given_ + " " +
               overrides);
  }
  int restart(int ranks, const std::string& overrides) {
    return train(ranks, "checkpoint.restart=latest " + overrides);
  }

  std::string checkpoint(int step) const { return "run/checkpoints/step_0000000" + text(step); }
  std::string path(int step, const std::string& name) const {
    return folder_.file(checkpoint(step) + "/" + name);
  }
  bool there(const std::string& name) const { return fs::exists(folder_.file(name)); }

  /// The last job warned once, of this checkpoint.
  void expect_passed_over(int step, const std::string& reason) const {
    const auto warnings = recorded_warnings(folder_, "run");
    ASSERT_EQ(warnings.size(), 1u);
    for (const std::string& part : {checkpoint(step), reason})
      EXPECT_NE(warnings.front().find(part), std::string::npos) << part << "\n" << warnings.front();
  }
  void expect_restart(int from, std::int64_t samples) const {
    const auto restart = last_job().restart;
    ASSERT_TRUE(restart);
    EXPECT_EQ(restart->checkpoint, checkpoint(from));
    EXPECT_EQ(restart->samples, samples);
  }

  /// Flips a bit of the middle number of an array.
  void damage_number(int step, const std::string& array) const {
    const auto manifest = checkpoint::read_manifest(folder_.file(checkpoint(step)));
    for (const auto& shard : manifest.shards)
      for (const auto& slice : shard.slices)
        if (manifest.arrays[slice.array].name == array) {
          flip(path(step, shard.name), slice.file_offset + manifest.slice_bytes(slice) / 2);
          return;
        }
    FAIL() << "no array " << array;
  }
  static void flip(const std::string& file, std::int64_t at) {
    std::string bytes = read_file(file);
    bytes[static_cast<std::size_t>(at)] =
        static_cast<char>(bytes[static_cast<std::size_t>(at)] ^ 1);
    std::ofstream(file, std::ios::binary) << bytes;
  }

  /// Replaces deck and manifest of a checkpoint by changed ones, with the right checksums.
  void rewrite(int step, const std::function<void(checkpoint::Manifest&, std::string&)>& change) {
    auto manifest = checkpoint::read_manifest(folder_.file(checkpoint(step)));
    std::string deck = read_file(path(step, checkpoint::deck_name));
    change(manifest, deck);
    std::ofstream(path(step, checkpoint::deck_name), std::ios::binary) << deck;
    for (auto& file : manifest.files)
      if (file.name == checkpoint::deck_name)
        file = {file.name, std::ssize(deck), checksum(deck.data(), deck.size())};
    std::ofstream(path(step, checkpoint::manifest_name), std::ios::binary) << to_json(manifest);
  }

  std::string losses() const {
    const std::string all = file("run/metrics.jsonl");
    const std::string key = "\"loss\":";
    std::string found;
    for (auto at = all.find(key); at != std::string::npos; at = all.find(key, at + 1))
      found += all.substr(at, all.find(',', at) - at) + "\n";
    return found;
  }

  std::string given_ =
      " run.log_every=1 checkpoint.every=2 model.layers=3 batch.global=6 optimizer.decay_steps=12";
};

TEST_F(RestartCommands, RejectAContradictoryDeckWithAllValues) {
  train_four_steps();
  const auto left = [&] {
    return file(checkpoint(4) + "/manifest.json") + file("run/metrics.jsonl") +
           file("run/deck.toml");
  };
  const std::string before = left();
  EXPECT_EQ(restart(2,
                    "model.hidden=24 model.sequence=16 batch.global=12 precision.compute=fp64 "
                    "run.steps=6"),
            2);
  EXPECT_EQ(count(err(), "trireme: error:"), 1) << err();
  const std::string stored = " in " + checkpoint(4) + "/deck.toml\n";
  expect_error(folder_, "[model] hidden = 24 (command line), but 16" + stored);
  expect_error(folder_, "[model] feed_forward = 96 (default), but 64" + stored);
  expect_error(folder_, "[model] sequence = 16 (command line), but 32 in " + checkpoint(4) +
                            "/deck.toml; learned positions have a row for each token");
  expect_error(folder_, "[precision] compute = \"fp64\" (command line), but \"fp32\"" + stored);
  expect_error(folder_, "[batch] global = 12 (command line), but 6" + stored);
  EXPECT_EQ(count(err(), "steps"), 0) << "no contradiction: " << err();
  ASSERT_TRUE(last_job().stop);
  EXPECT_EQ(last_job().stop->exit_code, 2);
  EXPECT_FALSE(last_job().devices) << "found before memory is taken";
  EXPECT_EQ(left(), before);
  EXPECT_EQ(run("trireme inspect --verify " + checkpoint(4)), 0) << err();

  for (const char* command : {"eval", "generate"}) {
    EXPECT_EQ(run(std::string("trireme ") + command + " deck.toml model.layers=2 model.heads=1"),
              2);
    expect_error(folder_, "[model] layers = 2 (command line), but 3 in");
    expect_error(folder_, "[model] heads = 1 (command line), but 2 in");
    EXPECT_EQ(count(err(), "batch"), 0) << "the batch is no part of a model";
  }
}

TEST_F(RestartCommands, FallBackFromDamagedWeights) {
  train_four_steps();
  const std::string expected = losses();
  damage_number(4, "layers.1.attention.output");
  ASSERT_EQ(restart(1, "run.steps=4"), 0) << err();
  expect_passed_over(4, "dataset 'layers.1.attention.output' is damaged in block 0");
  expect_restart(2, 12);
  ASSERT_TRUE(last_job().restart);
  EXPECT_EQ(last_job().restart->reason, "finished");
  EXPECT_EQ(last_job().restart->requested, "latest");
  EXPECT_EQ(last_job().restart->former_layout, "data 1 · pipeline 1 · tensor 1, 1f1b");
  EXPECT_EQ(losses(), expected);
  EXPECT_EQ(run("trireme inspect --verify " + checkpoint(4)), 0) << "written again: " << err();
}

TEST_F(RestartCommands, AllRanksFallBackFromDamageOnOneRank) {
  train_four_steps();
  const std::string expected = losses();  // on any pipeline, bit for bit
  damage_number(4, "optimizer.second_moment.layers.2.feed_forward.up");  // of the last rank
  const std::string layout = "run.steps=4 parallel.pipeline=3 checkpoint.restart=";
  EXPECT_EQ(train(3, layout + checkpoint(4)), 1);
  EXPECT_EQ(count(err(), "trireme: error:"), 1) << "asked for by name: " << err();
  const auto stop = last_job().stop;
  ASSERT_TRUE(stop && stop->message) << "of the last rank, which found it";
  EXPECT_EQ(stop->cause, events::StopCause::error);
  EXPECT_EQ(stop->exit_code, 1);
  EXPECT_NE(stop->message->find("is damaged in block"), std::string::npos) << *stop->message;
  expect_error(folder_, "'optimizer.second_moment.layers.2.feed_forward.up' is damaged in block");

  ASSERT_EQ(train(3, layout + "latest"), 0) << err();
  expect_passed_over(4, "is damaged in block");
  expect_restart(2, 12);
  EXPECT_EQ(losses(), expected);
}

TEST_F(RestartCommands, FallBackFromChangedFilesWithTheReason) {
  train_four_steps();
  struct Case {
    std::string name;
    std::function<void(const std::string&)> harm;
    std::string reason;
  };
  const std::vector<Case> cases{
      {"shard_000000.h5",
       [](const std::string& file) { fs::resize_file(file, fs::file_size(file) - 100); },
       "the file is truncated"},
      {"shard_000000.h5", [](const std::string& file) { fs::remove(file); }, "is missing"},
      {"index.h5",
       [&](const std::string& file) {
         fs::copy_file(path(2, "index.h5"), file, fs::copy_options::overwrite_existing);
       },
       "is damaged or part of another checkpoint"},
      {"manifest.json",
       [](const std::string& file) {
         std::string content = read_file(file);
         content.replace(content.find("\"format\":") + 9, 1, "99");
         std::ofstream(file, std::ios::binary) << content;
       },
       "has format 99, but this program reads"}};
  fs::copy(folder_.file(checkpoint(4)), folder_.file("whole"));
  for (const auto& [name, harm, reason] : cases) {
    harm(path(4, name));
    EXPECT_EQ(train(1, "run.steps=6 checkpoint.restart=" + checkpoint(4)), 1) << name;
    EXPECT_EQ(count(err(), "trireme: error: " + checkpoint(4) + "/" + name), 1) << err();
    expect_error(folder_, reason);
    ASSERT_EQ(restart(1, "run.steps=2"), 0) << err();
    expect_passed_over(4, reason);
    expect_passed_over(4, checkpoint(4) + "/" + name + ": ");
    expect_restart(2, 12);
    EXPECT_FALSE(there(checkpoint(4))) << "it was moved aside";
    folder_.write("run/checkpoints/latest", "step_00000004\n");
    fs::copy(folder_.file("whole"), folder_.file(checkpoint(4)));
  }
}

TEST_F(RestartCommands, StartAnewWithoutAnIntactCheckpoint) {
  ASSERT_EQ(restart(1, "run.steps=4"), 0) << err();
  EXPECT_FALSE(last_job().restart);
  const std::string expected = losses();
  EXPECT_EQ(run("cp -r " + checkpoint(4) + " whole"), 0);
  damage_number(2, "layers.0.attention_norm.gain");
  damage_number(4, "optimizer.first_moment.layers.2.feed_forward.up");
  ASSERT_EQ(restart(2, "run.steps=4 parallel.pipeline=2"), 0) << err();
  EXPECT_EQ(recorded_warnings(folder_, "run").size(), 2u);
  EXPECT_FALSE(last_job().restart);
  EXPECT_TRUE(there("run/checkpoints/previous-1/step_00000004/manifest.json"));

  // What was read of the damaged ones, moments included, has left no trace.
  EXPECT_EQ(losses(), expected);
  EXPECT_EQ(run("trireme inspect --diff run/checkpoints whole"), 0) << err();
  EXPECT_EQ(count(out(), "elements differ"), 0) << out();
}

TEST_F(RestartCommands, FreshRunMovesAnEarlierRunAside) {
  train_four_steps();
  const std::string first = file("run/metrics.jsonl");
  ASSERT_EQ(train(1, "run.steps=3 run.seed=9"), 0) << err();
  EXPECT_FALSE(there(checkpoint(4)));
  EXPECT_EQ(file("run/checkpoints/latest"), "step_00000003\n");
  EXPECT_EQ(file("run/checkpoints/previous-1/latest"), "step_00000004\n");
  EXPECT_EQ(file("run/metrics.previous-1.jsonl"), first);
  EXPECT_EQ(run("trireme inspect --verify run/checkpoints/previous-1"), 0) << err();
  expect_output(folder_, "step        4");

  ASSERT_EQ(train(1, "run.steps=1"), 0) << err();
  EXPECT_TRUE(there("run/checkpoints/previous-2/step_00000003"));
  EXPECT_TRUE(there("run/metrics.previous-2.jsonl"));
  EXPECT_EQ(file("run/metrics.previous-1.jsonl"), first);

  // By name, from there: nothing that is in the directory belongs to this run.
  ASSERT_EQ(train(1, "run.steps=5 checkpoint.restart=run/checkpoints/previous-1/step_00000002/"), 0)
      << err();
  ASSERT_TRUE(last_job().restart);
  EXPECT_EQ(last_job().restart->checkpoint, "run/checkpoints/previous-1/step_00000002");
  EXPECT_EQ(last_job().restart->samples, 12);
  EXPECT_TRUE(there("run/checkpoints/previous-3/step_00000001"));
  EXPECT_TRUE(there(checkpoint(4)));
  // By name, from an earlier step of its own: what came later is another branch.
  ASSERT_EQ(train(1, "run.steps=4 checkpoint.restart=" + checkpoint(4)), 0) << err();
  EXPECT_TRUE(there("run/checkpoints/previous-4/step_00000005"));
  EXPECT_TRUE(there(checkpoint(4)));
}

TEST_F(RestartCommands, DeckOfAnotherVersionIsComparedInSamplesOnly) {
  train_four_steps();
  rewrite(4, [](checkpoint::Manifest&, std::string& deck) {
    deck += "[parallel.future]\nkey = 3\n";
    deck += "[invented]\nkey = 1\n";
  });
  ASSERT_EQ(restart(1, "run.steps=5"), 0) << err();
  const auto warnings = recorded_warnings(folder_, "run");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings.front().find(checkpoint(4) + "/deck.toml"), std::string::npos);
  expect_restart(4, 24);
  EXPECT_EQ(restart(1, "checkpoint.restart=" + checkpoint(4) + " batch.global=12"), 2);
  expect_error(folder_, "its 4 steps took 24 samples, with [batch] global = 12");
  EXPECT_EQ(restart(1, "checkpoint.restart=" + checkpoint(4) + " model.feed_forward=24"), 2);
  expect_error(folder_, "[24, 16]");
}

TEST_F(RestartCommands, CheckpointOfStepZeroStartsWithAnyBatch) {
  train_four_steps();
  EXPECT_EQ(run("mkdir start; cp -r " + checkpoint(2) + "/* start; rm -r run/checkpoints/*"), 0);
  EXPECT_EQ(run("mv start " + checkpoint(2)), 0);
  rewrite(2, [](checkpoint::Manifest& manifest, std::string&) {
    manifest.step = manifest.samples = 0;
    manifest.values.clear();  // how many updates there were
  });
  ASSERT_EQ(train(1, "run.steps=2 batch.global=4 checkpoint.restart=" + checkpoint(2)), 0) << err();
  expect_restart(2, 0);
  EXPECT_EQ(last_job().restored, 0);
  EXPECT_EQ(count(losses(), "loss"), 2);
  EXPECT_TRUE(there("run/metrics.previous-1.jsonl"));
}

TEST_F(RestartCommands, InspectDiffReportsEqualCheckpoints) {
  train_four_steps();
  ASSERT_EQ(train(2, "run.steps=2 run.directory=other parallel.pipeline=2"), 0) << err();
  EXPECT_EQ(run("trireme inspect --diff " + checkpoint(4) + " run/checkpoints"), 0) << err();
  EXPECT_EQ(count(out(), "differ"), 0) << out();
  const std::string all = line_of("equal ");
  EXPECT_EQ(run("trireme inspect --diff " + checkpoint(2) + " other/checkpoints"), 0);
  EXPECT_EQ(line_of("equal "), all) << "the layout is none of the numbers' business: " << out();
  EXPECT_EQ(run("trireme inspect --diff " + checkpoint(2)), 2) << "it takes two";
  EXPECT_EQ(run("trireme inspect --diff " + checkpoint(2) + " missing"), 2);
}

TEST_F(RestartCommands, InspectDiffShowsDifferencesAndIncomparableArrays) {
  train_four_steps();
  ASSERT_EQ(train(1, "run.steps=1 run.directory=other model.layers=2 model.feed_forward=40"), 0)
      << err();
  EXPECT_EQ(run("trireme inspect --diff " + checkpoint(2) + " " + checkpoint(4)), 0) << err();
  EXPECT_NE(line_of("  embedding.token").find("elements differ, largest absolute difference "),
            std::string::npos)
      << out();
  EXPECT_EQ(line_of("equal ").substr(0, 14), "equal       0 ") << out();

  EXPECT_EQ(run("trireme inspect --diff " + checkpoint(2) + " other/checkpoints"), 0) << err();
  expect_output(folder_, "fp32 [64, 16] and fp32 [40, 16]");
  EXPECT_GT(count(out(), "only in the first"), 0) << out();
  damage_number(4, "embedding.token");
  EXPECT_EQ(run("trireme inspect --diff " + checkpoint(2) + " " + checkpoint(4)), 1);
  expect_error(folder_, checkpoint(4) + "/shard_");
}

}  // namespace
}  // namespace trireme::commands
