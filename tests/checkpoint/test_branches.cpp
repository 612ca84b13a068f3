// Branches of a run: `latest`, falling back and `keep` follow the starts that a checkpoint stores,
// and never the times of files.
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/lineage.hpp>
#include <trireme/checkpoint/node_local.hpp>
#include <trireme/checkpoint/reader.hpp>

#include <checkpoint/support.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using namespace checkpoint::testing;
using trireme::testing::read_file;
using trireme::testing::TemporaryFolder;
using Names = std::vector<std::string>;

const std::string run_a = "aaaaaaaaaaaaaaaa";
const std::string run_b = "bbbbbbbbbbbbbbbb";

class Branches : public ::testing::Test {
 protected:
  void save(std::int64_t step, const std::vector<Start>& starts, std::int64_t keep = 0,
            const std::string& where = "c") const {
    const std::vector<double> numbers{1, 2, 3};
    const std::vector<ArrayView> arrays{{"w", DType::fp64, {3}, numbers.data()}};
    RunState state{step, 4 * step, "# deck\n"};
    state.starts = starts;
    write(folder_.file(where), state, arrays, keep);
  }
  /// A run of steps 2, 4 … 20, and one that continues from its step 4 with 6 and 8.
  void save_two_branches(std::int64_t keep = 0) const {
    for (std::int64_t step = 2; step <= 20; step += 2) save(step, first_);
    for (const std::int64_t step : {6, 8})
      fs::rename(path(step), folder_.file("first_" + std::to_string(step)));
    const auto starts = continued_from(4, first_, 2);
    for (const std::int64_t step : {6, 8}) save(step, starts, keep);
  }
  /// The starts of a run of attempt `number` that continues from a checkpoint with `starts`.
  std::vector<Start> continued_from(std::int64_t step, std::vector<Start> starts,
                                    std::int64_t number) const {
    starts.push_back({run_a, number, step, read_lineage(path(step)).digest});
    return starts;
  }
  std::string directory() const { return folder_.file("c"); }
  std::string path(std::int64_t step) const { return directory() + "/" + folder_name(step); }
  void harm(std::int64_t step) const { fs::remove(path(step) + "/index.h5"); }

  const std::vector<Start> first_{{run_a, 1, 0, ""}};
  TemporaryFolder folder_;
};

TEST_F(Branches, ManifestKeepsTheStarts) {
  save(4, first_);
  const auto starts = continued_from(4, first_, 7);
  save(9, starts);
  EXPECT_EQ(Reader(path(9)).state().starts, starts);
  const Lineage lineage = read_lineage(path(9));
  EXPECT_EQ(lineage.step, 9);
  EXPECT_EQ(lineage.starts, starts);
  EXPECT_NE(read_file(path(9) + "/manifest.json").find(lineage.digest), std::string::npos);
  damage(path(9) + "/manifest.json");
  EXPECT_THROW(read_lineage(path(9)), Error);
}

TEST_F(Branches, IgnoresFileTimes) {
  for (const std::int64_t step : {2, 4, 6}) save(step, first_);
  for (const std::int64_t touched : {2, 4, 6}) {
    for (const auto& entry : fs::recursive_directory_iterator(path(touched)))
      fs::last_write_time(entry.path(), fs::file_time_type::clock::now() + std::chrono::hours(1));
    EXPECT_EQ(latest(directory()), path(6)) << touched;
  }
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(directory() + "/latest", old);
  EXPECT_EQ(latest(directory()), path(6));
  harm(6);
  EXPECT_EQ(latest(directory()), path(4)) << "the newest of those before";
}

TEST_F(Branches, FollowsTheLastAttemptWithoutLatest) {
  save_two_branches();
  for (const std::string latest_file : {"", "step_00000099\n", "elsewhere"}) {
    fs::remove(directory() + "/latest");
    if (!latest_file.empty()) replace(directory() + "/latest", latest_file);
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(latest(directory()), path(8)) << latest_file;
    expect_mentions(::testing::internal::GetCapturedStderr(),
                    {"warning", directory() + "/latest", "the newest intact checkpoint is used"});
  }
  harm(8);
  harm(6);
  EXPECT_EQ(latest(directory()), path(4)) << "not step 20 of the other branch";
  save(40, {{run_b, 5, 0, ""}}, 0, "other");
  fs::copy(folder_.file("other/step_00000040"), path(40), fs::copy_options::recursive);
  replace(directory() + "/attempt", run_a + " 2\n");
  EXPECT_EQ(latest(directory()), path(4)) << "not step 40 of another run";
  replace(directory() + "/attempt", run_b + " 6\n");
  EXPECT_EQ(latest(directory()), path(40));
}

TEST_F(Branches, FallsBackFromADamagedCheckpointOnItsBranch) {
  save_two_branches();
  save(7, {{run_b, 5, 0, ""}}, 0, "other");
  fs::copy(folder_.file("other/step_00000007"), path(7), fs::copy_options::recursive);
  std::set<std::string> damaged;
  harm(8);
  EXPECT_EQ(latest(directory(), damaged), path(6)) << "not step 7 of another run";
  damaged.insert(path(6));
  EXPECT_EQ(latest(directory(), damaged), path(4));
  damaged.insert(path(4));
  EXPECT_EQ(latest(directory(), damaged), path(2));
  damaged.insert(path(2));
  EXPECT_EQ(latest(directory(), damaged), std::nullopt) << "never step 10 or 20";
}

TEST_F(Branches, FallsBackFromADamagedManifest) {
  save_two_branches();
  replace(path(8) + "/manifest.json", "{}");
  EXPECT_EQ(latest(directory()), path(6));
}

TEST_F(Branches, AnEarlierCheckpointInLatestRollsBack) {
  for (const std::int64_t step : {2, 4, 6}) save(step, first_);
  for (const std::int64_t step : {4, 2, 6}) {
    replace(directory() + "/latest", folder_name(step) + "\n");
    EXPECT_EQ(latest(directory()), path(step));
  }
}

TEST_F(Branches, KeepCountsOnlyTheCurrentBranch) {
  save_two_branches(2);
  EXPECT_TRUE(fs::exists(path(20)));
  EXPECT_TRUE(fs::exists(path(8)));
  EXPECT_TRUE(fs::exists(path(6)));
  EXPECT_FALSE(fs::exists(path(4)));
  EXPECT_FALSE(fs::exists(path(2)));
  EXPECT_EQ(not_on_branch(directory(), read_lineage(path(8))),
            (Names{"step_00000020", "step_00000018", "step_00000016", "step_00000014",
                   "step_00000012", "step_00000010"}));
}

/// A run was killed after a checkpoint got its final name and before `latest` named it.
TEST_F(Branches, UsesACheckpointThatAKilledRunCompleted) {
  for (const std::int64_t step : {2, 4, 6}) save(step, first_);
  replace(directory() + "/latest", "step_00000004\n");
  announce(directory(), folder_name(6));
  EXPECT_EQ(latest(directory()), path(6));
  harm(6);
  EXPECT_EQ(latest(directory()), path(4));

  save(6, first_);
  replace(directory() + "/latest", "step_00000004\n");
  announce(directory(), folder_name(6));
  replace(directory() + "/latest", "step_00000002\n");  // a roll-back after the kill
  EXPECT_EQ(latest(directory()), path(2));
  announce(directory(), folder_name(9));  // killed before the folder got its name
  EXPECT_EQ(latest(directory()), path(2));
  settle_latest(directory(), folder_name(2));
  EXPECT_FALSE(fs::exists(directory() + "/" + announcement_name));
}

TEST_F(Branches, SavingAStepAgainKeepsTheOtherBranch) {
  for (const std::int64_t step : {2, 4, 6}) save(step, first_);
  const std::string old = read_file(path(6) + "/manifest.json");
  save(6, continued_from(4, first_, 2));
  EXPECT_EQ(read_file(directory() + "/previous-1/step_00000006/manifest.json"), old);
  EXPECT_EQ(latest(directory()), path(6));
  save(6, continued_from(4, first_, 2));  // the same branch again
  EXPECT_EQ(names_in(directory() + "/previous-1"), (Names{"latest", "step_00000006"}));
  EXPECT_FALSE(fs::exists(directory() + "/previous-2"));
}

TEST_F(Branches, ContinuedCopiesAndImportsAreOtherBranches) {
  save(2, first_);
  const Lineage before = read_lineage(path(2));
  const auto here = continued_from(2, first_, 2);
  const auto there = continued_from(2, first_, 3);
  EXPECT_TRUE(precedes(before, {4, here}));
  EXPECT_TRUE(precedes(before, {4, there}));
  EXPECT_FALSE(precedes({4, here}, {6, there}));
  EXPECT_FALSE(precedes({4, here}, {3, here})) << "a later step";
  EXPECT_FALSE(precedes({3, first_}, {4, here})) << "after the departure";
  EXPECT_FALSE(precedes({2, first_, "another digest"}, {4, here}));

  const Lineage import{0, {}, "0123"};
  EXPECT_TRUE(precedes(import, {4, {{run_a, 1, 0, "0123"}}}));
  EXPECT_FALSE(precedes(import, {4, first_})) << "from random weights";
  EXPECT_FALSE(precedes(import, {4, {{run_a, 1, 0, "4567"}}})) << "from another import";
}

TEST_F(Branches, ReadsAndReplacesALinkNamedLatest) {
  for (const std::int64_t step : {2, 4}) save(step, first_);
  for (const std::string& target : {std::string("step_00000002"), path(2)}) {
    fs::remove(directory() + "/latest");
    fs::create_symlink(target, directory() + "/latest");
    EXPECT_EQ(latest(directory()), path(2)) << target;
    settle_latest(directory(), folder_name(2));
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(directory() + "/latest")));
    EXPECT_EQ(read_file(directory() + "/latest"), "step_00000002\n");
  }
  fs::remove(directory() + "/latest");
  fs::create_directory_symlink(folder_.file("."), directory() + "/latest");
  EXPECT_EQ(latest(directory()), path(4)) << "the link leads elsewhere";
  save(6, first_);
  EXPECT_EQ(read_file(directory() + "/latest"), "step_00000006\n");

  fs::remove(directory() + "/latest");
  fs::create_directory(directory() + "/latest");
  expect_mentions(message_of([&] { settle_latest(directory(), folder_name(4)); }),
                  {directory() + "/latest", "is a folder, expected a file"});
}

}  // namespace
}  // namespace trireme::checkpoint
