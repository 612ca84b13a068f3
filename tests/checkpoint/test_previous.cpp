#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/reader.hpp>

#include <checkpoint/support.hpp>

#include <gtest/gtest.h>

namespace trireme::checkpoint {
namespace {

using namespace checkpoint::testing;
using trireme::testing::read_file;
using trireme::testing::TemporaryFolder;
using Names = std::vector<std::string>;

class Previous : public ::testing::Test {
 protected:
  Previous() { save({1, 2, 3}); }
  void save(const std::vector<std::int64_t>& steps) const {
    for (const auto step : steps) save_cut(directory(), step, {{"w", DType::fp32, {4}}}, 0, 1);
  }
  std::string move_all() const { return move_aside(directory(), folders_in(directory())); }
  std::string directory() const { return folder_.file("c"); }
  TemporaryFolder folder_;
};

TEST_F(Previous, MovesEachRunToAReadableFolder) {
  EXPECT_EQ(move_all(), directory() + "/previous-1");
  EXPECT_EQ(names_in(directory()), Names{"previous-1"});
  EXPECT_EQ(latest(directory()), std::nullopt);
  EXPECT_EQ(latest(directory() + "/previous-1"), directory() + "/previous-1/step_00000003");
  EXPECT_EQ(move_all(), "") << "nothing to move";

  save({2});
  EXPECT_EQ(move_all(), directory() + "/previous-2");
  EXPECT_EQ(names_in(directory() + "/previous-1"),
            (Names{"latest", "step_00000001", "step_00000002", "step_00000003"}));
  EXPECT_EQ(names_in(directory() + "/previous-2"), (Names{"latest", "step_00000002"}));
}

TEST_F(Previous, KeepsOtherCheckpointsAndUpdatesLatest) {
  EXPECT_EQ(move_aside(directory(), {}), "");
  EXPECT_EQ(move_aside(directory(), {"step_00000003"}), directory() + "/previous-1");
  EXPECT_EQ(names_in(directory()), (Names{"previous-1", "step_00000001", "step_00000002"}));
  EXPECT_EQ(latest(directory()), directory() + "/step_00000002");

  folder_.write("c/latest", "step_00000001\n");
  EXPECT_EQ(move_aside(directory(), {"step_00000002"}), directory() + "/previous-2");
  EXPECT_EQ(names_in(directory()), (Names{"latest", "previous-1", "previous-2", "step_00000001"}));
}

TEST_F(Previous, SkipsNamesInUse) {
  folder_.write("c/previous-1", "a file");
  EXPECT_EQ(move_all(), directory() + "/previous-2");
  EXPECT_EQ(read_file(folder_.file("c/previous-1")), "a file");
  EXPECT_EQ(move_aside(folder_.file("missing"), {}), "");
}

}  // namespace
}  // namespace trireme::checkpoint
