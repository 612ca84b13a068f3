#include <trireme/layout/split.hpp>

#include <gtest/gtest.h>

#include <algorithm>

namespace trireme::layout {
namespace {

TEST(Split, PartsAreOrderedAndDifferByAtMostOne) {
  for (const std::int64_t n : {0, 1, 2, 7, 12, 257, 50257})
    for (const std::int64_t parts : {1, 2, 3, 4, 5, 8, 13}) {
      std::int64_t next = 0, smallest = n, largest = 0, previous = n;
      for (std::int64_t i = 0; i < parts; ++i) {
        const Slice slice = split(n, parts, i);
        EXPECT_EQ(slice.offset, next) << n << " in " << parts << ", part " << i;
        EXPECT_LE(slice.extent, previous) << "larger parts come first";
        next = slice.end();
        previous = slice.extent;
        smallest = std::min(smallest, slice.extent);
        largest = std::max(largest, slice.extent);
      }
      EXPECT_EQ(next, n);
      EXPECT_LE(largest - smallest, 1);
    }
}

TEST(Split, FindsThePartOfEachElement) {
  for (const std::int64_t n : {1, 2, 7, 12, 257})
    for (const std::int64_t parts : {1, 2, 3, 4, 5, 8, 13})
      for (std::int64_t i = 0; i < parts; ++i) {
        const Slice slice = split(n, parts, i);
        for (std::int64_t x = slice.offset; x < slice.end(); ++x)
          EXPECT_EQ(part_with(n, parts, x), i) << x << " of " << n << " in " << parts;
      }
  EXPECT_THROW(part_with(4, 2, 4), Error);
  EXPECT_THROW(part_with(4, 2, -1), Error);
}

TEST(Split, HandlesDimensionsNearTheLimit) {
  constexpr std::int64_t n = std::int64_t{1} << 62;
  EXPECT_EQ(split(n, 3, 2).end(), n);
  EXPECT_EQ(part_with(n, 3, n - 1), 2);
}

TEST(Split, RejectsPartsThatDoNotExist) {
  EXPECT_THROW(split(4, 2, 2), Error);
  EXPECT_THROW(split(4, 2, -1), Error);
  EXPECT_THROW(split(4, 0, 0), Error);
  EXPECT_THROW(split(-1, 1, 0), Error);
}

}  // namespace
}  // namespace trireme::layout
