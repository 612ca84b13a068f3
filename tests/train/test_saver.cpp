#include <trireme/checkpoint/difference.hpp>
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

TEST_F(SaverTest, ACheckpointWrittenInTheBackgroundHoldsTheNumbersOfItsStep) {
  Rig rig(config_, tokens_);
  const auto waiting = to("waiting");
  const auto background = to("background");
  rig.run(1, 2);
  Saver(waiting, runtime().world(), *rig.worker, 0).save(state(2), true);
  Saver saver(background, runtime().world(), *rig.worker, plenty);
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

TEST_F(SaverTest, ReplicasWriteAlikeAndNoByteTwice) {
  Rig rig(config_, tokens_);
  const auto where = to("shared");
  Saver(where, runtime().world(), *rig.worker, 0).save(state(1), false);
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

TEST_F(SaverTest, TheNextCheckpointWaitsForTheOneUnderWayAndOldOnesGo) {
  Rig rig(config_, tokens_);
  auto where = to("kept");
  where.keep = 1;
  where.keep_every = 4;
  Saver saver(where, runtime().world(), *rig.worker, plenty);
  for (std::int64_t step = 1; step <= 6; ++step) {
    rig.run(step, step);
    saver.save(state(step), step < 6);
  }
  if (runtime().rank() > 0) return;
  EXPECT_EQ(checkpoint::folders_in(where.directory),
            (std::vector<std::string>{"step_00000006", "step_00000004"}));
  EXPECT_EQ(checkpoint::latest(where.directory), where.directory + "/step_00000006");
}

/// The error of one rank ends all of them in the same place, is reported once, and costs nothing
/// that was there.
TEST_F(SaverTest, AShardThatCannotBeWrittenIsAnErrorOfAllRanksAndLeavesTheFormerCheckpoint) {
  Rig rig(config_, tokens_);
  const auto where = to("limited");
  Saver saver(where, runtime().world(), *rig.worker, plenty);
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

TEST_F(SaverTest, AFolderThatCannotBeMadeIsAnErrorOfAllRanks) {
  Rig rig(config_, tokens_);
  auto where = to("file");
  where.directory += "/below";
  if (runtime().rank() == 0) {
    const auto parent = std::filesystem::path(where.directory).parent_path();
    std::filesystem::create_directories(parent.parent_path());
    std::ofstream(parent) << "a file";
  }
  runtime().world().barrier("the file is there");
  Saver saver(where, runtime().world(), *rig.worker, 0);
  EXPECT_THROW(saver.save(state(1), false), Error);
  EXPECT_FALSE(saver.under_way());
}

TEST_F(SaverTest, ACopyThatDoesNotFitIsAnError) {
  Rig rig(config_, tokens_);
  const auto where = to("small");
  Saver saver(where, runtime().world(), *rig.worker, 64);
  EXPECT_THROW(saver.save(state(1), true), Error);
}

}  // namespace
}  // namespace trireme::train
