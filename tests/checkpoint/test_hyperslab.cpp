#include <trireme/base/check.hpp>
#include <trireme/checkpoint/hyperslab.hpp>

#include <checkpoint/support.hpp>

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace trireme::checkpoint {
namespace {

using namespace checkpoint::testing;

TEST(Hyperslab, CountsAndBoundsVolumes) {
  EXPECT_EQ(volume({}), 1);
  EXPECT_EQ(volume({3, 4}), 12);
  EXPECT_EQ(volume({3, 0, std::int64_t{1} << 62}), 0);
  EXPECT_THROW(volume({-1, 0}), Error);
  EXPECT_THROW(volume({std::int64_t{1} << 40, std::int64_t{1} << 40}), Error);
}

TEST(Hyperslab, IntersectionHoldsTheCommonElements) {
  EXPECT_EQ(intersection({{0, 2}, {3, 4}}, {{1, 0}, {5, 3}}), (Slab{{1, 2}, {2, 1}}));
  EXPECT_EQ(intersection({{0}, {3}}, {{3}, {2}}), std::nullopt);
  EXPECT_EQ(intersection({{0}, {3}}, {{1}, {0}}), std::nullopt);
  EXPECT_EQ(intersection({}, {}), (Slab{}));
}

/// Every element of random parts is copied to where element-wise indexing puts it.
TEST(Hyperslab, RunsCopyEachElementOnce) {
  std::mt19937 random(1);
  const auto below = [&](std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random);
  };
  for (int round = 0; round < 300; ++round) {
    const auto axes = static_cast<std::size_t>(below(5));
    Extents shape(axes);
    for (auto& n : shape) n = 1 + below(5);
    const auto random_slab = [&] {
      Slab slab = whole(shape);
      for (std::size_t a = 0; a < axes; ++a) {
        if (below(2) == 0) continue;
        slab.offset[a] = below(shape[a]);
        slab.extent[a] = 1 + below(shape[a] - slab.offset[a]);
      }
      return slab;
    };
    const TestArray array("x", DType::int32, shape);
    const Slab source = random_slab();
    const Slab target = random_slab();
    const auto part = intersection(source, target);
    if (!part) continue;
    const auto from_bytes = array.slice(source);
    std::vector<char> to_bytes(static_cast<std::size_t>(4 * volume(target.extent)), 0);
    std::int64_t last = -1;
    std::int64_t copied = 0;
    for_each_run(*part, source, target, [&](std::int64_t from, std::int64_t to, std::int64_t n) {
      EXPECT_GT(to, last);
      last = to;
      copied += n;
      std::memcpy(to_bytes.data() + 4 * to, from_bytes.data() + 4 * from,
                  static_cast<std::size_t>(4 * n));
    });
    EXPECT_EQ(copied, volume(part->extent));
    TestArray masked = array;  // zero outside the source
    std::fill(masked.bytes.begin(), masked.bytes.end(), char{0});
    for_each_run(source, source, whole(shape),
                 [&](std::int64_t from, std::int64_t to, std::int64_t n) {
                   std::memcpy(masked.bytes.data() + 4 * to, from_bytes.data() + 4 * from,
                               static_cast<std::size_t>(4 * n));
                 });
    EXPECT_EQ(to_bytes, masked.slice(target)) << shape_text(shape);
  }
}

TEST(Hyperslab, RunsAreAsLongAsBothMemoriesAllow) {
  const auto runs = [](const Slab& part, const Slab& source, const Slab& target) {
    int n = 0;
    for_each_run(part, source, target, [&](auto, auto, auto) { ++n; });
    return n;
  };
  const Slab all = whole({8, 3, 4});
  EXPECT_EQ(runs(all, all, all), 1);
  EXPECT_EQ(runs({{2, 0, 0}, {4, 3, 4}}, all, all), 1);
  EXPECT_EQ(runs({{0, 1, 0}, {8, 2, 4}}, all, all), 8);
  EXPECT_EQ(runs({{0, 0, 1}, {8, 3, 2}}, all, all), 24);
}

TEST(Hyperslab, BlocksCoverASlabInOrder) {
  const Slab slab{{1, 2, 0}, {3, 5, 7}};
  std::vector<Slab> blocks;
  for_each_block(slab, 10, [&](const Slab& block) {
    EXPECT_LE(volume(block.extent), 10);
    blocks.push_back(block);
  });
  for (auto& block : blocks) {
    block.offset[0] -= 1;
    block.offset[1] -= 2;
  }
  expect_tiling("the slab", {3, 5, 7}, blocks);
}

TEST(Hyperslab, AcceptsOnlyExactTilings) {
  const Extents shape{6, 5};
  for (std::size_t axis = 0; axis < 2; ++axis)
    for (const std::int64_t parts : {1, 2, 3, 5, 9})
      expect_tiling("x", shape, cut(shape, axis, parts));
  expect_tiling("x", {}, std::vector<Slab>{Slab{}});
  expect_tiling("x", {0, 4}, std::vector<Slab>{});
  std::vector<Slab> grid;
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 5; ++j) grid.push_back({{2 * i, j}, {2, 1}});
  expect_tiling("x", shape, grid);
  auto hole = grid;
  hole.erase(hole.begin() + 7);
  expect_mentions(message_of([&] { expect_tiling("x", shape, hole); }),
                  {"x", "28", "30", "missing"});
  auto moved = grid;  // the right number of elements, one covered twice and one never
  moved[7].offset[0] = 1;
  expect_mentions(message_of([&] { expect_tiling("x", shape, moved); }), {"overlap", "[1, 3)"});
  auto outside = grid;
  outside[14].offset[1] = 5;
  expect_mentions(message_of([&] { expect_tiling("x", shape, outside); }), {"axis 1"});
  EXPECT_THROW(expect_tiling("x", {}, std::vector<Slab>{Slab{}, Slab{}}), Error);
  EXPECT_THROW(expect_tiling("x", {}, std::vector<Slab>{}), Error);
}

}  // namespace
}  // namespace trireme::checkpoint
