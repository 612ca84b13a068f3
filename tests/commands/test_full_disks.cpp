#include <commands/training_runs.hpp>
#include <support/small_disk.hpp>

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace trireme::commands {
namespace {

using namespace commands::testing;

class FullDisks : public TrainingRuns {
 protected:
  FullDisks() { write_deck(2, 96, 3, 29); }

  /// Bytes of the pages of a checkpoint's files.
  std::int64_t checkpoint_bytes(const std::string& folder) const {
    std::int64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.file(folder)))
      bytes += (static_cast<std::int64_t>(entry.file_size()) + 4095) / 4096 * 4096;
    return bytes;
  }

  /// A disk on which so many checkpoints like that one fit and no further one: the index of one
  /// claims some 1.4 MiB for a moment.
  void mount_for(int checkpoints, const std::string& like) {
    const std::int64_t each = checkpoint_bytes(like);
    ASSERT_GT(each, index_claim);
    disk_.emplace(folder_.file("disk"), checkpoints * each + index_claim);
  }

  static constexpr std::int64_t index_claim = 1600 << 10;
  std::optional<SmallDisk> disk_;
};

TEST_F(FullDisks, EndTheRunWithOneErrorAndAllowARestart) {
  for (const int ranks : {1, 2})
    for (const std::string asynchronous : {"false", "true"}) {
      if (!soak() && (ranks == 2) != (asynchronous == "true")) continue;
      SCOPED_TRACE(std::to_string(ranks) + " ranks, asynchronous " + asynchronous);
      ASSERT_EQ(run("rm -rf run whole; " + train(ranks, "run.steps=6 run.directory=whole")), 0)
          << err();
      mount_for(2, "whole/checkpoints/step_00000006");
      if (!disk_->why_not().empty()) GTEST_SKIP() << disk_->why_not();
      const std::string common =
          "run.steps=6 checkpoint.every=1 checkpoint.directory=disk/checkpoints "
          "checkpoint.restart=latest checkpoint.asynchronous=" +
          asynchronous;
      for (int attempt = 0; attempt < 2; ++attempt) {  // what is left over hinders nobody
        EXPECT_EQ(run(train(ranks, common)), 1) << out() << err();
        expect_one_error({"disk/checkpoints/step_00000003", "free some space"});
        EXPECT_EQ(saved_steps("disk/checkpoints"), (std::vector<std::int64_t>{1, 2}));
        expect_all_verified("disk/checkpoints");
      }
      ASSERT_TRUE(disk_->resize(64 << 20)) << std::strerror(errno);
      ASSERT_EQ(run(train(ranks, common)), 0) << err();
      EXPECT_EQ(last_job().restored, 2);
      EXPECT_EQ(names("disk/checkpoints", ".partial"), std::vector<std::string>());
      expect_equal_checkpoints("disk/checkpoints", "whole/checkpoints");
      EXPECT_EQ(metrics("run", "loss"), metrics("whole", "loss"));
      disk_.reset();
    }
}

/// With room for `keep` checkpoints alone, the new one finds none: the old ones stay.
TEST_F(FullDisks, KeepTheOldestCheckpoint) {
  ASSERT_EQ(run(train(1, "run.steps=1 run.directory=whole")), 0) << err();
  mount_for(1, "whole/checkpoints/step_00000001");
  if (!disk_->why_not().empty()) GTEST_SKIP() << disk_->why_not();
  EXPECT_EQ(run(train(1,
                      "run.steps=2 checkpoint.every=1 checkpoint.keep=1 "
                      "checkpoint.directory=disk/checkpoints")),
            1);
  expect_one_error({"disk/checkpoints/step_00000002"});
  EXPECT_EQ(saved_steps("disk/checkpoints"), std::vector<std::int64_t>{1});
  expect_all_verified("disk/checkpoints");
}

}  // namespace
}  // namespace trireme::commands
