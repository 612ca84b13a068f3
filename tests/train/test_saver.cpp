#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/checkpoint/verify.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/train/saver.hpp>

#include "support/training.hpp"

#include <sys/resource.h>

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

namespace trireme::train {
namespace {

using namespace trireme::testing;

class SaverTest : public ::testing::Test {
 protected:
  deck::CheckpointConfig to(const std::string& name) {
    deck::CheckpointConfig config;
    config.directory =
        runtime().world().broadcast(folder_.file(name), 0, "rank 0's folder") + "/checkpoints";
    return config;
  }

  checkpoint::RunState state(std::int64_t step) const {
    return {step, step * config_.batch.global, "# deck"};
  }

  /// Host memory of a copy, plentiful.
  static constexpr Bytes plenty = 16 << 20;

  const std::int64_t ranks_ = runtime().ranks();
  const deck::Config config_ = small_config(2 * ranks_, 1, ranks_);
  TemporaryFolder folder_;
  data::TokenFile tokens_{write_tokens(folder_, 20000)};
};

TEST_F(SaverTest, BackgroundCheckpointHoldsTheValuesOfItsStep) {
  Rig rig(config_, tokens_);
  const auto waiting = to("waiting");
  const auto background = to("background");
  rig.run(1, 2);
  Saver(waiting, runtime().world(), *rig.engine, 0).save(state(2), true);
  Saver saver(background, runtime().world(), *rig.engine, plenty);
  saver.save(state(2), true);
  EXPECT_TRUE(saver.under_way());
  rig.run(3, 6);
  saver.finish();
  EXPECT_FALSE(saver.under_way());
  if (runtime().rank() > 0) return;
  const std::string step = "/" + checkpoint::folder_name(2);
  checkpoint::verify(background.directory + step);
  const auto differences = checkpoint::compare(checkpoint::Reader(waiting.directory + step),
                                               checkpoint::Reader(background.directory + step));
  EXPECT_EQ(differences.size(), 3 * architecture::describe(config_.model).arrays.size());
  for (const auto& d : differences) {
    EXPECT_EQ(d.only, "") << d.name;
    EXPECT_EQ(d.different, 0) << d.name;
  }
}

TEST_F(SaverTest, ShardedAndWholeOptimizersExchangeCheckpoints) {
  const auto shared_config = small_config(
      2 * ranks_, 1, ranks_, {"parallel.shard=optimizer", "parallel.bucket_bytes=40000"});
  Rig all(config_, tokens_);
  Rig shared(shared_config, tokens_);
  EXPECT_EQ(shared.run(1, 3), all.run(1, 3));
  const auto of_all = to("all");
  const auto of_shared = to("of_shared");
  Saver(of_all, runtime().world(), *all.engine, 0).save(state(3), false);
  Saver background(of_shared, runtime().world(), *shared.engine, plenty);
  background.save(state(3), true);
  background.finish();
  runtime().world().barrier("both are complete");
  const std::string step = "/" + checkpoint::folder_name(3);
  const checkpoint::Reader from_all(of_all.directory + step);
  const checkpoint::Reader from_shared(of_shared.directory + step);
  for (const auto& d : checkpoint::compare(from_all, from_shared)) {
    EXPECT_EQ(d.only, "") << d.name;
    EXPECT_EQ(d.different, 0) << d.name;
  }
  const Trace expected = all.run(4, 6);
  Rig now_shared(shared_config, tokens_);
  now_shared.engine->load(from_all);
  EXPECT_EQ(now_shared.run(4, 6), expected);
  Rig now_whole(config_, tokens_);
  now_whole.engine->load(from_shared);
  EXPECT_EQ(now_whole.run(4, 6), expected);
}

TEST_F(SaverTest, ReplicasWriteEqualSharesAndNoByteTwice) {
  Rig rig(config_, tokens_);
  const auto where = to("shared");
  Saver(where, runtime().world(), *rig.engine, 0).save(state(1), false);
  if (runtime().rank() > 0) return;
  const auto manifest = checkpoint::read_manifest(where.directory + "/step_00000001");
  EXPECT_EQ(std::ssize(manifest.shards), ranks_);
  Bytes all = 0, least = Bytes{1} << 60, most = 0;
  for (const auto& shard : manifest.shards) {
    Bytes bytes = 0;
    for (const auto& slice : shard.slices) bytes += manifest.slice_bytes(slice);
    all += bytes;
    least = std::min(least, bytes);
    most = std::max(most, bytes);
  }
  EXPECT_EQ(all, 3 * 8 * architecture::describe(config_.model).parameters());
  EXPECT_LE(most - least, 3 * 8 * 6 * 100) << "rows of at most 100 numbers";
}

TEST_F(SaverTest, NextCheckpointWaitsAndOldCheckpointsAreRemoved) {
  Rig rig(config_, tokens_);
  auto where = to("kept");
  where.keep = 1;
  where.keep_every = 4;
  Saver saver(where, runtime().world(), *rig.engine, plenty);
  for (std::int64_t step = 1; step <= 6; ++step) {
    rig.run(step, step);
    saver.save(state(step), step < 6);
  }
  if (runtime().rank() > 0) return;
  EXPECT_EQ(checkpoint::folders_in(where.directory),
            (std::vector<std::string>{"step_00000006", "step_00000004"}));
  EXPECT_EQ(checkpoint::latest(where.directory), where.directory + "/step_00000006");
}

/// More stages than layers: one in the middle holds nothing, and has no memory for a copy.
TEST_F(SaverTest, RankWithoutArraysTakesPart) {
  if (ranks_ < 3) return;
  const auto config =
      small_config(4, 1, ranks_, {"model.layers=1", text("parallel.pipeline=", ranks_)});
  Rig rig(config, tokens_);
  rig.run(1, 1);
  Bytes bytes = 0;
  for (const auto& slice : rig.engine->share()) bytes += slice.bytes();
  EXPECT_EQ(runtime().world().all_reduce<std::int64_t>(bytes, grid::Reduction::minimum, "least"),
            0);
  const auto where = to("empty");
  Saver saver(where, runtime().world(), *rig.engine, bytes > 0 ? plenty : 0);
  saver.save({1, 4, "# deck"}, true);
  EXPECT_TRUE(saver.under_way());
  rig.run(2, 3);
  saver.finish();
  if (runtime().rank() == 0) checkpoint::verify(where.directory + "/step_00000001");
}

/// The error of one rank ends all of them in the same place, is reported once, and costs nothing
/// that was there.
TEST_F(SaverTest, FailedShardFailsAllRanksAndKeepsTheLastCheckpoint) {
  Rig rig(config_, tokens_);
  const auto where = to("limited");
  Saver saver(where, runtime().world(), *rig.engine, plenty);
  saver.save(state(1), false);
  for (const bool goes_on : {true, false}) {
    rlimit former{};
    if (runtime().rank() == ranks_ - 1) {
      std::signal(SIGXFSZ, SIG_IGN);
      ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &former), 0);
      rlimit small = former;
      small.rlim_cur = 10000;
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    }
    std::string message;
    int threw = 0;
    try {
      saver.save(state(2), goes_on);
      saver.finish();
    } catch (const grid::SharedError& error) {
      message = error.what();
      threw = 1;
    } catch (const grid::SilentError&) {
      threw = 1;
    }
    if (runtime().rank() == ranks_ - 1) {
      EXPECT_NE(message.find("shard_"), std::string::npos) << message;
      EXPECT_NE(message.find("ulimit"), std::string::npos) << message;
      setrlimit(RLIMIT_FSIZE, &former);
    }
    EXPECT_EQ(threw, 1);
    runtime().world().barrier("all ranks have caught the error");
    if (runtime().rank() == 0) {
      EXPECT_FALSE(std::filesystem::exists(checkpoint::partial_folder(where.directory, 2)));
      EXPECT_EQ(checkpoint::latest(where.directory), where.directory + "/step_00000001");
    }
  }
  saver.save(state(3), true);
  saver.finish();
  if (runtime().rank() == 0) checkpoint::verify(where.directory + "/step_00000003");
}

TEST_F(SaverTest, UncreatableFolderFailsAllRanks) {
  Rig rig(config_, tokens_);
  auto where = to("file");
  where.directory += "/below";
  if (runtime().rank() == 0) {
    const auto parent = std::filesystem::path(where.directory).parent_path();
    std::filesystem::create_directories(parent.parent_path());
    std::ofstream(parent) << "a file";
  }
  runtime().world().barrier("the file is there");
  EXPECT_THROW(Saver(where, runtime().world(), *rig.engine, 0), Error);
}

/// A job that is killed while it removes an old checkpoint, after its last step, leaves a folder
/// that the next job, which has nothing to write, removes.
TEST_F(SaverTest, LeftoversOfAKilledRunAreRemovedWithoutASave) {
  Rig rig(config_, tokens_);
  const auto where = to("leftovers");
  const std::string left = where.directory + "/step_00000040.removed.partial";
  if (runtime().rank() == 0) std::filesystem::create_directories(left);
  runtime().world().barrier("the folder is there");
  const Saver saver(where, runtime().world(), *rig.engine, 0);
  EXPECT_FALSE(std::filesystem::exists(left));
}

/// A run that lost its directory does not begin another one in its place.
TEST_F(SaverTest, RemovedDirectoryFailsAllRanksAndStaysRemoved) {
  Rig rig(config_, tokens_);
  const auto where = to("gone");
  Saver saver(where, runtime().world(), *rig.engine, 0);
  runtime().world().barrier("the directory is there");
  if (runtime().rank() == 0) std::filesystem::remove_all(where.directory);
  EXPECT_THROW(saver.save(state(1), false), Error);
  EXPECT_FALSE(saver.under_way());
  EXPECT_FALSE(std::filesystem::exists(where.directory));
}

TEST_F(SaverTest, RejectsACopyThatDoesNotFit) {
  Rig rig(config_, tokens_);
  const auto where = to("small");
  Saver saver(where, runtime().world(), *rig.engine, 64);
  EXPECT_THROW(saver.save(state(1), true), Error);
}

}  // namespace
}  // namespace trireme::train
