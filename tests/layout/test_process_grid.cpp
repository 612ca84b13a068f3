#include <trireme/base/check.hpp>
#include <trireme/layout/process_grid.hpp>

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace trireme::layout {
namespace {

constexpr Axis axes[] = {Axis::data, Axis::pipeline, Axis::tensor};

TEST(ProcessGrid, RanksAndCoordinatesAreInverseForAHundredThousandRanks) {
  const ProcessGrid grid(125, 100, 8, 100'000);
  EXPECT_EQ(grid.ranks(), 100'000);
  EXPECT_EQ(grid.model_ranks(), 800);
  Rank rank = 0;
  for (int data = 0; data < 125; ++data)
    for (int pipeline = 0; pipeline < 100; ++pipeline)
      for (int tensor = 0; tensor < 8; ++tensor, ++rank) {
        const Coordinates at{data, pipeline, tensor};
        ASSERT_EQ(grid.rank(at), rank) << "tensor is fastest, data slowest";
        ASSERT_EQ(grid.coordinates(rank), at);
      }
}

TEST(ProcessGrid, ColoursCutTheRanksIntoGroupsAlongEachAxis) {
  const ProcessGrid grid(125, 100, 8, 100'000);
  for (const Axis axis : axes) {
    const int groups = grid.ranks() / grid.size(axis);
    std::vector<int> members(static_cast<std::size_t>(groups), 0);
    std::vector<Coordinates> first(members.size());
    for (Rank rank = 0; rank < grid.ranks(); ++rank) {
      const int colour = grid.colour(axis, rank);
      ASSERT_TRUE(colour >= 0 && colour < groups);
      Coordinates at = grid.coordinates(rank);
      // Ranks of a group are in the order of their positions, and differ along the axis only.
      ASSERT_EQ(grid.position(axis, rank), members[static_cast<std::size_t>(colour)]++);
      (axis == Axis::data ? at.data : axis == Axis::pipeline ? at.pipeline : at.tensor) = 0;
      if (grid.position(axis, rank) == 0) first[static_cast<std::size_t>(colour)] = at;
      ASSERT_EQ(at, first[static_cast<std::size_t>(colour)]);
    }
    for (const int n : members) ASSERT_EQ(n, grid.size(axis));
  }
}

std::string message(int data, int pipeline, int tensor, int ranks) {
  try {
    const ProcessGrid grid(data, pipeline, tensor, ranks);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

TEST(ProcessGrid, AWrongProductShowsAllFactorsAndWhatWouldFit) {
  EXPECT_EQ(
      message(2, 3, 2, 24),
      "data · pipeline · tensor = 2 · 3 · 2 = 12, but there are 24 ranks; set data = 4 for 24 "
      "ranks");
  EXPECT_EQ(message(1, 4, 2, 12),
            "data · pipeline · tensor = 1 · 4 · 2 = 8, but there are 12 ranks; 12 ranks are not a "
            "multiple of pipeline · tensor = 8; with tensor = 2, pipeline can be 1, 2, 3, 6; or "
            "start 16 ranks with data = 2");
  EXPECT_EQ(message(1, 1, 5, 12),
            "data · pipeline · tensor = 1 · 1 · 5 = 5, but there are 12 ranks; 12 ranks are not a "
            "multiple of pipeline · tensor = 5; tensor can be 1, 2, 3, 4, 6, 12; or start 15 ranks "
            "with data = 3");
}

TEST(ProcessGrid, FactorsOfNoneAndFactorsThatOverflowAreErrors) {
  EXPECT_NE(message(0, 1, 1, 1).find("at least 1"), std::string::npos);
  EXPECT_NE(message(1, 1, 1, 0).find("at least 1"), std::string::npos);
  const int large = 2'000'000'000;
  EXPECT_NE(message(large, large, large, 12).find("but there are 12 ranks"), std::string::npos);
}

}  // namespace
}  // namespace trireme::layout
