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

TEST_F(FullDisks, EndTheRunWithOneErrorAndARestartGoesOnWhenThereIsRoom) {
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
TEST_F(FullDisks, DoNotCostTheOldestThatIsKept) {
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

/// Whatever is free on a disk that cannot reserve space, the run ends with one error or without
/// one, never by a signal, and HDF5 says nothing.
TEST_F(FullDisks, OfExt2EndTheRunWithTheBytesNeededAndFree) {
  write_deck(1, 18, 3, 29);
  const SmallExt2 disk(folder_.file("disk"), folder_.file("image"), 6 << 10);
  if (!disk.why_not().empty()) GTEST_SKIP() << disk.why_not();
  std::vector<int> sizes;  // KiB free
  for (int free = 0; free < 3200; free += free < 1000 ? 60 : 200) sizes.push_back(free);
  if (soak()) {
    EXPECT_GE(sizes.size(), 22u);
  } else {
    sizes = {40, 600, 2000, 3000};
  }
  int failed = 0;
  for (const int free : sizes) {
    SCOPED_TRACE(std::to_string(free) + " KiB free");
    const auto all = std::filesystem::space(folder_.file("disk")).available >> 10;
    const auto ballast = std::max<std::int64_t>(static_cast<std::int64_t>(all) - free, 0);
    ASSERT_EQ(run("head -c " + std::to_string(ballast) + "K /dev/zero > disk/ballast"), 0);
    const int ranks = free % 40 == 0 ? 1 : 2;
    const int code =
        run(train(ranks,
                  "run.steps=6 checkpoint.every=1 checkpoint.directory=disk/checkpoints "
                  "checkpoint.asynchronous=" +
                      std::string(free % 3 == 0 ? "true" : "false")));
    const std::string said = err();
    ASSERT_TRUE(code == 0 || code == 1) << code << said;
    EXPECT_EQ(occurrences(said, "trireme: error"), code) << said;
    EXPECT_EQ(said.find("HDF5"), std::string::npos) << said;
    expect_all_verified("disk/checkpoints");
    if (code == 1) {
      ++failed;
      EXPECT_NE(said.find("disk/checkpoints/"), std::string::npos) << said;
      EXPECT_NE(said.find("No space left on device"), std::string::npos) << said;
      EXPECT_NE(said.find("free"), std::string::npos) << said;
    }
    ASSERT_EQ(run("rm -rf run disk/checkpoints disk/ballast"), 0);
  }
  EXPECT_GT(failed, 1);
  EXPECT_LT(failed, std::ssize(sizes));
}

}  // namespace
}  // namespace trireme::commands
