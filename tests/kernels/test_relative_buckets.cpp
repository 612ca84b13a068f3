// Buckets of relative positions against T5's formula.
#include <trireme/base/check.hpp>
#include <trireme/kernels/relative_buckets.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace trireme::kernels {
namespace {

struct BucketCase {
  std::int64_t count, max_distance;
  bool both_sides;
  std::vector<std::int64_t> first;  ///< smallest distances of the buckets with several distances
};

/// The smallest distances were computed by transformers' T5Attention._relative_position_bucket,
/// written in Python for single numbers with every operation rounded to fp32.
const BucketCase bucket_cases[] = {
    {32, 128, true, {8, 12, 16, 23, 32, 46, 64, 91}},
    {32, 128, false, {16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113}},
    {64, 1000, true, {16, 21, 27, 35, 45, 59, 76, 98, 127, 164, 213, 275, 356, 461, 597, 773}},
    {64, 65536, false, {32,   41,   52,   66,    83,    106,   134,   170,   216,   274,  347,
                        440,  559,  709,  900,   1142,  1449,  1838,  2333,  2960,  3757, 4767,
                        6050, 7677, 9742, 12364, 15690, 19911, 25268, 32066, 40694, 51642}},
    {8, 20, true, {2, 7}},
    {5, 50, false, {2, 6, 18}},
    {8, 6, false, {4, 5, 5, 6}},  // no distance is in bucket 5
    {4, 3, true, {1}}};

/// T5's bucket of an offset, from the smallest distances.
int bucket_of(const BucketCase& c, std::int64_t offset) {
  const auto side = static_cast<int>(c.both_sides ? c.count / 2 : c.count), near = side / 2;
  const std::int64_t distance = offset < 0 ? -offset : c.both_sides ? offset : 0;
  int k = static_cast<int>(distance < near ? distance : near);
  if (distance >= near)
    while (k + 1 < side && distance >= c.first[static_cast<std::size_t>(k + 1 - near)]) ++k;
  return offset > 0 && c.both_sides ? side + k : k;
}

TEST(RelativeBuckets, MatchTheFormula) {
  for (const BucketCase& c : bucket_cases) {
    const RelativeBuckets b = relative_buckets(c.count, c.max_distance, c.both_sides);
    EXPECT_EQ(b.count, c.count);
    for (std::int64_t offset = -65536; offset <= 65536; ++offset)
      ASSERT_EQ(b.of(offset), bucket_of(c, offset)) << c.count << " buckets, offset " << offset;
  }
}

TEST(RelativeBuckets, OffsetsAreTheInverse) {
  for (const BucketCase& c : bucket_cases) {
    const RelativeBuckets b = relative_buckets(c.count, c.max_distance, c.both_sides);
    std::int64_t found = 0;
    for (int bucket = 0; bucket < b.count; ++bucket)
      for (std::int64_t offset = -70000; offset <= 70000; ++offset) {
        const auto range = b.offsets(bucket);
        const bool inside = range.begin <= offset && offset < range.end;
        ASSERT_EQ(inside, b.of(offset) == bucket) << bucket << " of " << c.count << ", " << offset;
        found += inside ? 1 : 0;
      }
    EXPECT_EQ(found, 140001);
  }
}

TEST(RelativeBuckets, RejectImpossibleNumbers) {
  EXPECT_THROW(relative_buckets(1, 128, false), Error);
  EXPECT_THROW(relative_buckets(33, 128, true), Error);
  EXPECT_THROW(relative_buckets(2, 128, true), Error);
  EXPECT_THROW(relative_buckets(66, 128, false), Error);
  EXPECT_THROW(relative_buckets(130, 128, true), Error);
  EXPECT_THROW(relative_buckets(32, 16, false), Error);
  EXPECT_NO_THROW(relative_buckets(64, 128, false));
  EXPECT_NO_THROW(relative_buckets(128, 128, true));
}

}  // namespace
}  // namespace trireme::kernels
