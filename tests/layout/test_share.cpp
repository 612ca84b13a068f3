#include <trireme/base/check.hpp>
#include <trireme/layout/share.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace trireme::layout {
namespace {

const std::vector<Extents> odd_arrays{{257, 36}, {},        {23, 36}, {2, 3, 12, 36}, {36},
                                      {3, 7, 5}, {0, 4, 6}, {1},      {1, 1, 1, 9},   {100, 1}};

/// The elements of a block, computed from its axes.
std::vector<std::int64_t> elements_of(const Block& block, const Extents& shape) {
  std::vector<std::int64_t> out;
  for (std::int64_t n = 0; n < block.elements(); ++n) {
    std::int64_t rest = n, element = 0, stride = 1;
    for (std::size_t a = shape.size(); a-- > 0;) {
      element += (block.offset[a] + rest % block.extent[a]) * stride;
      rest /= block.extent[a];
      stride *= shape[a];
    }
    out.push_back(element);
  }
  return out;
}

TEST(Share, PartsHoldEachElementOnceInMemoryOrder) {
  for (const std::int64_t parts : {1, 2, 3, 4, 7, 64, 20000}) {
    std::map<std::pair<std::size_t, std::int64_t>, int> held;
    for (std::int64_t i = 0; i < parts; ++i)
      for (const Block& block : share(odd_arrays, parts, i)) {
        std::int64_t expected = block.first;
        for (const std::int64_t element : elements_of(block, odd_arrays[block.array])) {
          EXPECT_EQ(element, expected++);
          ++held[{block.array, element}];
        }
      }
    std::size_t all = 0;
    for (const Extents& extent : odd_arrays) {
      std::int64_t n = 1;
      for (const std::int64_t e : extent) n *= e;
      all += static_cast<std::size_t>(n);
    }
    EXPECT_EQ(held.size(), all) << parts;
    EXPECT_TRUE(std::ranges::all_of(held, [](const auto& h) { return h.second == 1; })) << parts;
  }
}

TEST(Share, PartsDifferByAtMostTwoRows) {
  for (const std::int64_t parts : {2, 3, 5, 16}) {
    std::int64_t least = std::int64_t{1} << 60, most = 0;
    for (std::int64_t i = 0; i < parts; ++i) {
      std::int64_t elements = 0;
      for (const Block& block : share(odd_arrays, parts, i)) elements += block.elements();
      least = std::min(least, elements);
      most = std::max(most, elements);
    }
    EXPECT_LE(most - least, 2 * 36) << parts;
  }
}

TEST(Share, SplitsAnArrayIntoFewBlocks) {
  const std::vector<Extents> one{{5, 6, 7, 8}};
  for (const std::int64_t parts : {1, 2, 3, 8, 11, 50})
    for (std::int64_t i = 0; i < parts; ++i) EXPECT_LE(share(one, parts, i).size(), 5u) << parts;
  EXPECT_EQ(share(one, 1, 0).size(), 1u);
}

TEST(Blocks, CoverAnyRangeOfElementsInOrder) {
  const Extents shape{3, 4, 5};
  for (std::int64_t begin = 0; begin <= 60; ++begin)
    for (std::int64_t end = begin; end <= 60; ++end) {
      std::int64_t next = begin;
      const auto found = blocks(0, shape, begin, end);
      EXPECT_LE(found.size(), 5u);
      for (const Block& block : found) {
        EXPECT_EQ(block.first, next);
        for (const std::int64_t element : elements_of(block, shape)) EXPECT_EQ(element, next++);
      }
      EXPECT_EQ(next, end);
    }
  EXPECT_THROW(blocks(0, shape, 10, 61), Error);
}

TEST(Share, SupportsArraysOfAMillionByAMillionElements) {
  const std::vector<Extents> large{{1 << 20, 1 << 20}, {std::int64_t{1} << 50}};
  std::int64_t all = 0;
  for (const std::int64_t i : {0, 1499, 2999})
    for (const Block& block : share(large, 3000, i)) all += block.elements();
  EXPECT_GT(all, std::int64_t{1} << 39);
}

TEST(Share, RejectsPartsThatDoNotExist) {
  EXPECT_THROW(share(odd_arrays, 2, 2), Error);
  EXPECT_THROW(share(odd_arrays, 0, 0), Error);
  EXPECT_THROW(share(odd_arrays, 2, -1), Error);
}

}  // namespace
}  // namespace trireme::layout
