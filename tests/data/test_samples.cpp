#include <trireme/base/check.hpp>
#include <trireme/data/samples.hpp>

#include "support.hpp"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace trireme::data {
namespace {

class SamplesTest : public ::testing::Test {
 protected:
  SamplesTest()
      : tokens_(write_token_file(folder_.file("t.h5"), 60, 257)), file_(folder_.file("t.h5")) {}
  testing::TemporaryFolder folder_;
  std::vector<std::int32_t> tokens_;  // 1830
  TokenFile file_;
};

TEST_F(SamplesTest, CoverEachWindowOncePerEpochInANewOrder) {
  const Samples samples(file_, 16, 42);
  EXPECT_EQ(samples.per_epoch(), 1829 / 16);
  std::vector<std::int64_t> orders[2];
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    std::set<std::int64_t> windows;
    for (std::int64_t i = 0; i < samples.per_epoch(); ++i) {
      orders[epoch].push_back(samples.place(epoch * samples.per_epoch() + i).window);
      windows.insert(orders[epoch].back());
    }
    EXPECT_EQ(std::ssize(windows), samples.per_epoch());
    EXPECT_EQ(*windows.rbegin(), samples.per_epoch() - 1);
  }
  EXPECT_NE(orders[0], orders[1]);
}

TEST_F(SamplesTest, TargetsAreInputsShiftedByOne) {
  const Samples samples(file_, 16, 42);
  const std::int64_t first = samples.per_epoch() - 2;  // across the end of an epoch
  std::vector<std::int32_t> inputs(5 * 16);
  std::vector<std::int32_t> targets(5 * 16);
  samples.read(first, 5, inputs, targets);
  for (std::int64_t i = 0; i < 5; ++i) {
    const std::int64_t begin = samples.place(first + i).window * 16;
    for (std::int64_t s = 0; s < 16; ++s) {
      EXPECT_EQ(inputs[static_cast<std::size_t>(i * 16 + s)],
                tokens_[static_cast<std::size_t>(begin + s)]);
      EXPECT_EQ(targets[static_cast<std::size_t>(i * 16 + s)],
                tokens_[static_cast<std::size_t>(begin + s + 1)]);
    }
  }
}

TEST_F(SamplesTest, WindowsFollowFileOrderAndDropTheRest) {
  const Windows windows(file_, 100);
  ASSERT_EQ(windows.count(), 18);
  std::vector<std::int32_t> inputs(18 * 100);
  std::vector<std::int32_t> targets(18 * 100);
  windows.read(0, 18, inputs, targets);
  EXPECT_TRUE(std::equal(inputs.begin(), inputs.end(), tokens_.begin()));
  EXPECT_TRUE(std::equal(targets.begin(), targets.end(), tokens_.begin() + 1));
  EXPECT_THROW(windows.read(18, 1, std::span(inputs).first(100), std::span(targets).first(100)),
               Error);
}

TEST_F(SamplesTest, RejectsAFileShorterThanOneSample) {
  EXPECT_EQ(Samples(file_, 1829, 1).per_epoch(), 1);
  expect_mentions(message_of([&] { Samples(file_, 1830, 1); }), {"t.h5", "1830", "1831"});
  EXPECT_THROW(Samples(file_, 1830, 1), UsageError);
}

TEST_F(SamplesTest, ConcurrentReadsGiveTheSameSamples) {
  const Samples samples(file_, 16, 1);
  const std::int64_t count = samples.per_epoch();
  const auto size = static_cast<std::size_t>(count * 16);
  std::vector<std::int32_t> inputs(size);
  std::vector<std::int32_t> targets(size);
  samples.read(0, count, inputs, targets);
  std::vector<std::vector<std::int32_t>> found(4, std::vector<std::int32_t>(size));
  std::vector<std::thread> threads;
  for (auto& mine : found)
    threads.emplace_back([&samples, &mine, count, size] {
      std::vector<std::int32_t> ignored(size);
      samples.read(0, count, mine, ignored);
    });
  for (auto& thread : threads) thread.join();
  for (const auto& mine : found) EXPECT_EQ(mine, inputs);
}

}  // namespace
}  // namespace trireme::data
