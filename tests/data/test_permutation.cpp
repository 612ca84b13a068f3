#include <trireme/base/check.hpp>
#include <trireme/data/batch.hpp>
#include <trireme/data/samples.hpp>

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace trireme::data {
namespace {

TEST(Permutation, IsABijectionForSizesUpTo2000) {
  for (std::int64_t n = 1; n <= 2000; ++n) {
    const Permutation permutation(n, 7, static_cast<std::uint32_t>(n % 5));
    std::vector<bool> seen(static_cast<std::size_t>(n), false);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t image = permutation(i);
      ASSERT_TRUE(image >= 0 && image < n) << "n = " << n << ", i = " << i;
      ASSERT_FALSE(seen[static_cast<std::size_t>(image)]) << "n = " << n << ", i = " << i;
      seen[static_cast<std::size_t>(image)] = true;
    }
  }
}

TEST(Permutation, StaysInRangeAndDistinctForLargeSizes) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 40; ++trial) {
    const auto n = static_cast<std::int64_t>(random() % (std::uint64_t{1} << (20 + trial))) + 1000;
    const Permutation permutation(n, random(), static_cast<std::uint32_t>(random()));
    const auto first = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n - 500));
    std::set<std::int64_t> images;
    for (std::int64_t i = first; i < first + 500; ++i) images.insert(permutation(i));
    EXPECT_EQ(images.size(), 500u) << "n = " << n;
    EXPECT_GE(*images.begin(), 0);
    EXPECT_LT(*images.rbegin(), n);
  }
}

TEST(Permutation, DiffersBetweenEpochsAndSeeds) {
  const Permutation a(1000, 1, 0);
  const Permutation other_epoch(1000, 1, 1);
  const Permutation other_seed(1000, 2, 0);
  const Permutation same(1000, 1, 0);
  int equal_epoch = 0;
  int equal_seed = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a(i), same(i));
    equal_epoch += a(i) == other_epoch(i);
    equal_seed += a(i) == other_seed(i);
  }
  // Matches of two random permutations are Poisson with mean 1: more than 12 has probability 6e-11.
  EXPECT_LE(equal_epoch, 12);
  EXPECT_LE(equal_seed, 12);
}

/// Every index should map to every place equally often. For 10 × 10 counts with fixed row and
/// column sums the statistic has 81 degrees of freedom (mean 81, standard deviation 12.7); 160 is 6
/// standard deviations away.
TEST(Permutation, SpreadsEveryIndexEvenly) {
  constexpr int n = 10;
  constexpr int trials = 20000;
  std::vector<int> counts(n * n, 0);
  for (int seed = 0; seed < trials; ++seed) {
    const Permutation permutation(n, static_cast<std::uint64_t>(seed), 0);
    for (int i = 0; i < n; ++i) ++counts[static_cast<std::size_t>(i * n + permutation(i))];
  }
  double statistic = 0;
  for (const int count : counts) {
    const double difference = count - trials / double{n};
    statistic += difference * difference / (trials / double{n});
  }
  EXPECT_LT(statistic, 160);
  EXPECT_GT(statistic, 30);  // 4 below: more even than chance would be a fault too
}

TEST(Permutation, RejectsIndicesAndSizesOutOfRange) {
  EXPECT_THROW(Permutation(0, 1, 0), Error);
  EXPECT_THROW(Permutation(10, 1, 0)(10), Error);
  EXPECT_THROW(Permutation(10, 1, 0)(-1), Error);
}

TEST(Batch, MicroBatchesTileEachStep) {
  for (const std::int64_t ranks : {1, 2, 3, 4})
    for (const std::int64_t micro : {1, 2, 5})
      for (const std::int64_t per_rank : {1, 3, 4}) {
        const Batch batch{ranks * micro * per_rank, micro, ranks};
        ASSERT_EQ(micro_batches(batch), per_rank);
        std::set<std::int64_t> samples;
        for (std::int64_t m = 0; m < per_rank; ++m)
          for (std::int64_t r = 0; r < ranks; ++r)
            for (std::int64_t i = 0; i < micro; ++i)
              EXPECT_TRUE(samples.insert(first_sample(batch, m, r) + i).second);
        EXPECT_EQ(*samples.begin(), 0);
        EXPECT_EQ(*samples.rbegin(), batch.global - 1);
        EXPECT_EQ(std::ssize(samples), batch.global);
      }
}

TEST(Batch, RejectsAnIndivisibleGlobalBatch) {
  EXPECT_THROW(micro_batches({10, 3, 1}), UsageError);
  EXPECT_THROW(micro_batches({12, 3, 3}), UsageError);
  EXPECT_THROW(micro_batches({12, 0, 1}), UsageError);
  EXPECT_THROW(first_sample({12, 3, 2}, 2, 0), Error);
}

}  // namespace
}  // namespace trireme::data
