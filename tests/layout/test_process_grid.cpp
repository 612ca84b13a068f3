#include <trireme/base/check.hpp>
#include <trireme/layout/process_grid.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::layout {
namespace {

/// Every order of the axes.
std::vector<std::array<Axis, axis_count>> orders() {
  std::array<Axis, axis_count> order;
  for (std::size_t i = 0; i < axis_count; ++i) order[i] = static_cast<Axis>(i);
  std::vector<std::array<Axis, axis_count>> all;
  do all.push_back(order);
  while (std::ranges::next_permutation(order).found);
  return all;
}

/// Sizes that differ, so that no two axes can be exchanged unnoticed.
ProcessGrid grid_in(const std::array<Axis, axis_count>& order) {
  std::array<AxisSize, axis_count> axes;
  std::int64_t ranks = 1;
  for (std::size_t i = 0; i < axis_count; ++i) {
    axes[i] = {order[i], 2 + static_cast<int>(order[i]) * 3};
    ranks *= axes[i].size;
  }
  return ProcessGrid(AxisList(axes), ranks);
}

TEST(ProcessGrid, RanksAndCoordinatesAreInverseInEveryOrder) {
  for (const auto& order : orders()) {
    const ProcessGrid grid = grid_in(order);
    EXPECT_EQ(grid.stride(order.front()), 1);
    for (Rank rank = 0; rank < grid.ranks(); ++rank) {
      const Coordinates at = grid.coordinates(rank);
      ASSERT_EQ(grid.rank(at), rank);
      for (const Axis axis : order) {
        ASSERT_TRUE(at[axis] >= 0 && at[axis] < grid.size(axis));
        ASSERT_EQ(grid.position(axis, rank), at[axis]);
      }
    }
  }
}

TEST(ProcessGrid, StrideIsTheRankDistanceAlongAnAxis) {
  for (const auto& order : orders()) {
    const ProcessGrid grid = grid_in(order);
    int stride = 1;
    for (const Axis axis : order) {
      EXPECT_EQ(grid.stride(axis), stride) << "the sizes of the faster axes";
      stride *= grid.size(axis);
      for (Rank rank = 0; rank < grid.ranks(); ++rank) {
        Coordinates next = grid.coordinates(rank);
        if (++next[axis] < grid.size(axis)) {
          ASSERT_EQ(grid.rank(next), rank + grid.stride(axis));
        }
      }
    }
  }
}

TEST(ProcessGrid, ColoursGroupTheRanksAlongEachAxis) {
  for (const auto& order : orders()) {
    const ProcessGrid grid = grid_in(order);
    for (const Axis axis : order) {
      std::map<int, std::vector<Rank>> groups;
      for (Rank rank = 0; rank < grid.ranks(); ++rank)
        groups[grid.colour(axis, rank)].push_back(rank);
      EXPECT_EQ(static_cast<int>(groups.size()), grid.ranks() / grid.size(axis));
      for (const auto& [colour, ranks] : groups) {
        ASSERT_EQ(static_cast<int>(ranks.size()), grid.size(axis));
        ASSERT_EQ(colour, ranks.front());
        // In the order of their positions, and different along the axis only.
        for (std::size_t i = 0; i < ranks.size(); ++i) {
          Coordinates at = grid.coordinates(ranks[i]);
          ASSERT_EQ(at[axis], static_cast<int>(i));
          at[axis] = 0;
          ASSERT_EQ(at, grid.coordinates(colour));
        }
      }
    }
  }
}

/// Some ranks hold the weights together, and others hold the same weights.
TEST(ProcessGrid, OnlyTensorAndPipelineSplitWeights) {
  for (const auto& order : orders()) {
    const ProcessGrid grid = grid_in(order);
    std::map<int, int> together, same;
    for (Rank rank = 0; rank < grid.ranks(); ++rank) {
      const Rank first = grid.weight_colour(rank), copy = grid.replica_colour(rank);
      ++together[first];
      ++same[copy];
      for (const Axis axis : {Axis::data, Axis::context})
        ASSERT_EQ(grid.position(axis, first), grid.position(axis, rank));
      for (const Axis axis : {Axis::tensor, Axis::pipeline})
        ASSERT_EQ(grid.position(axis, copy), grid.position(axis, rank));
    }
    for (const auto& [colour, n] : together) ASSERT_EQ(n, grid.weight_ranks());
    for (const auto& [colour, n] : same) ASSERT_EQ(n, grid.ranks() / grid.weight_ranks());
  }
}

TEST(ProcessGrid, DefaultOrderIsTensorFirstAndDataLast) {
  const ProcessGrid grid({{Axis::tensor, 8}, {Axis::pipeline, 100}, {Axis::data, 125}}, 100'000);
  EXPECT_EQ(grid.ranks(), 100'000);
  EXPECT_EQ(grid.weight_ranks(), 800);
  const Coordinates at = grid.coordinates(800 * 3 + 8 * 5 + 7);
  EXPECT_EQ(at[Axis::data], 3);
  EXPECT_EQ(at[Axis::pipeline], 5);
  EXPECT_EQ(at[Axis::tensor], 7);
}

TEST(AxisList, OmittedAxesHaveOneRankAndComeLast) {
  const AxisList axes{{Axis::data, 6}};
  EXPECT_EQ(axes.named_sizes(), "pipeline 1 · tensor 1 · data 6");
  EXPECT_EQ(axes.ranks(), 6);
  EXPECT_EQ(axes.stride(Axis::tensor), 6);
  EXPECT_THROW((AxisList{{Axis::data, 2}, {Axis::data, 3}}), Error);
}

std::string order_of(std::string_view words) {
  std::string problem;
  const auto order = parse_order(words, problem);
  if (!order) return problem;
  std::vector<std::string> names;
  for (const Axis axis : *order) names.emplace_back(name_of(axis));
  return join(names, " ");
}

TEST(AxisList, OrderListsTheFastestAxesFirst) {
  EXPECT_EQ(order_of(""), "tensor context pipeline data");
  EXPECT_EQ(order_of("tensor, data, pipeline"), "tensor data pipeline context");
  EXPECT_EQ(order_of("data"), "data tensor context pipeline") << "the others in the default order";
  EXPECT_EQ(order_of("  pipeline data"), "pipeline data tensor context");
  EXPECT_EQ(
      order_of("tensor, tenor"),
      "\"tenor\" is not an axis; name some of data, pipeline, tensor, context, the fastest first");
  EXPECT_EQ(order_of("data, tensor, data"), "\"data\" is named twice; name each axis at most once");
}

std::string message(int data, int pipeline, int tensor, int ranks) {
  try {
    const ProcessGrid grid({{Axis::tensor, tensor}, {Axis::pipeline, pipeline}, {Axis::data, data}},
                           ranks);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

TEST(ProcessGrid, WrongProductShowsAllFactorsAndARemedy) {
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

TEST(ProcessGrid, RejectsZeroAndOverflowingFactors) {
  EXPECT_NE(message(0, 1, 1, 1).find("at least 1"), std::string::npos);
  EXPECT_NE(message(1, 1, 1, 0).find("at least 1"), std::string::npos);
  const int large = 2'000'000'000;
  EXPECT_NE(message(large, large, large, 12).find("but there are 12 ranks"), std::string::npos);
}

}  // namespace
}  // namespace trireme::layout
