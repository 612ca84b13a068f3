#include <trireme/layout/split.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace trireme::layout {
namespace {

std::vector<double> before(const std::vector<double>& costs) {
  std::vector<double> sums{0};
  for (const double cost : costs) sums.push_back(sums.back() + cost);
  return sums;
}

double largest(const std::vector<double>& sums, const std::vector<Slice>& cuts) {
  double most = 0;
  for (const Slice& cut : cuts)
    most = std::max(most, sums[static_cast<std::size_t>(cut.end())] -
                              sums[static_cast<std::size_t>(cut.offset)]);
  return most;
}

/// The lowest largest cost, by all cuts.
double lowest(const std::vector<double>& sums, std::size_t begin, std::int64_t parts) {
  if (parts == 1) return sums.back() - sums[begin];
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t end = begin; end < sums.size(); ++end)
    best = std::min(best, std::max(sums[end] - sums[begin], lowest(sums, end, parts - 1)));
  return best;
}

TEST(CutByCost, EqualCostsGiveTheSplit) {
  for (const double cost : {1.0, 7296.0, 0.1, 1e17 / 3})
    for (std::int64_t n = 0; n <= 40; ++n)
      for (std::int64_t parts = 1; parts <= 13; ++parts) {
        const auto sums = before(std::vector<double>(static_cast<std::size_t>(n), cost));
        const auto cuts = cut_by_cost(sums, n, parts);
        ASSERT_EQ(std::ssize(cuts), parts);
        for (std::int64_t i = 0; i < parts; ++i)
          EXPECT_EQ(cuts[static_cast<std::size_t>(i)], split(n, parts, i))
              << n << " items of cost " << cost << ", part " << i << " of " << parts;
      }
}

TEST(CutByCost, NoOtherCutHasASmallerLargestCost) {
  std::mt19937 random(1);
  for (int run = 0; run < 300; ++run) {
    std::vector<double> costs(1 + random() % 9);
    for (double& cost : costs) cost = static_cast<double>(random() % 20);
    const auto sums = before(costs);
    for (std::int64_t parts = 1; parts <= 4; ++parts) {
      const auto cuts = cut_by_cost(sums, std::ssize(costs), parts);
      std::int64_t next = 0;
      for (const Slice& cut : cuts) {
        EXPECT_EQ(cut.offset, next);
        EXPECT_GE(cut.extent, 0);
        next = cut.end();
      }
      EXPECT_EQ(next, std::ssize(costs));
      EXPECT_NEAR(largest(sums, cuts), lowest(sums, 0, parts), 1e-9) << run;
    }
  }
}

TEST(CutByCost, LargerPartsComeFirst) {
  const auto sums = before({2, 1, 1, 2, 1, 1, 2, 1});
  EXPECT_EQ(cut_by_cost(sums, 8, 3), (std::vector<Slice>{{0, 3}, {3, 3}, {6, 2}}));
}

TEST(CutByCost, EachPartReachesTheMeanOfTheRest) {
  // The bound is 10, the cost of the first item; the others are divided evenly.
  const auto sums = before({10, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(cut_by_cost(sums, 7, 4), (std::vector<Slice>{{0, 1}, {1, 2}, {3, 2}, {5, 2}}));
}

}  // namespace
}  // namespace trireme::layout
