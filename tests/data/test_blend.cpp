#include <trireme/base/check.hpp>
#include <trireme/data/blend.hpp>
#include <trireme/data/samples.hpp>
#include <trireme/data/token_file.hpp>

#include "support.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace trireme::data {
namespace {

/// The largest distance of a part's numbers from weight times numbers, over `count` numbers. Checks
/// that each part counts its numbers consecutively.
double largest_distance(const std::vector<double>& weights, std::int64_t count) {
  const Blend blend(weights);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> used(weights.size());
  double largest = 0;
  for (std::int64_t n = 0; n < count; ++n) {
    const auto [part, number] = blend.place(n);
    EXPECT_EQ(number, used.at(part)++);
    for (std::size_t i = 0; i < weights.size(); ++i)
      largest = std::max(largest, std::abs(static_cast<double>(used[i]) -
                                           weights[i] / sum * static_cast<double>(n + 1)));
  }
  return largest;
}

TEST(Blend, CountsMatchThePlacedSamples) {
  for (const std::vector<double>& weights :
       {std::vector<double>{1}, {3, 1}, {0.7, 0.2, 0.1}, {5, 4, 3, 2, 1, 0.01}}) {
    const Blend blend(weights);
    std::vector<std::int64_t> counts(weights.size());
    for (std::int64_t n = 0; n < 500; ++n) {
      EXPECT_EQ(blend.counts(n), counts) << n;
      ++counts[blend.place(n).part];
    }
  }
}

TEST(Blend, PartsKeepTheirSharesAtEverySample) {
  EXPECT_EQ(largest_distance({1}, 100), 0);
  EXPECT_LE(largest_distance({0.7, 0.3}, 20000), 0.5001);
  EXPECT_LE(largest_distance({1, 1e-6}, 20000), 0.5001);
  EXPECT_LE(largest_distance({1, 1, 1, 1}, 20000), 1);
  EXPECT_LE(largest_distance({1, 1, 2, 3, 5, 8, 13, 21, 34, 55}, 20000), 1.7);
  std::mt19937_64 random(9);
  std::uniform_real_distribution<double> uniform(0.001, 1);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<double> weights(2 + random() % 12);
    for (auto& weight : weights) weight = std::pow(uniform(random), 3);
    EXPECT_LE(largest_distance(weights, 3000), 1.7);
  }
}

TEST(Blend, DistantSamplesAreExact) {
  const Blend blend(std::array{0.5, 0.25, 0.25});
  const std::int64_t far = std::int64_t{1} << 60;
  std::array<std::int64_t, 3> used{};
  for (std::int64_t n = far; n < far + 4; ++n) ++used[blend.place(n).part];
  EXPECT_EQ(used, (std::array<std::int64_t, 3>{2, 1, 1}));
}

TEST(Blend, RejectsInvalidWeights) {
  EXPECT_THROW(Blend(std::vector<double>{}), UsageError);
  for (const double bad : {0.0, -1.0, std::nan(""), double{INFINITY}, 1e-12})
    EXPECT_THROW(Blend(std::vector<double>{1, bad}), UsageError) << bad;
}

TEST(Blend, ParsesWeightsAndFiles) {
  const auto paths = [](const std::string& value) {
    std::vector<std::string> out;
    for (const auto& entry : parse_blend(value)) out.push_back(text(entry.weight, ":", entry.path));
    return out;
  };
  using Strings = std::vector<std::string>;
  EXPECT_EQ(paths("a.h5"), Strings{"1:a.h5"});
  EXPECT_EQ(paths("0.7 a.h5, 0.3 b c.h5"), (Strings{"0.7:a.h5", "0.3:b c.h5"}));
  EXPECT_EQ(paths(" 2\ta.h5 ,1e-1 b"), (Strings{"2:a.h5", "0.1:b"}));
  EXPECT_EQ(paths("2.h5"), Strings{"1:2.h5"});
  EXPECT_EQ(paths("a,b.h5"), Strings{"1:a,b.h5"}) << "a name with a comma";
  expect_mentions(message_of([&] { parse_blend("0.7 a.h5, b.h5"); }),
                  {"'b.h5'", "not a weight and a file"});
  for (const char* value : {"0 a.h5", "-1 a.h5, 2 b.h5", "inf a.h5, 1 b.h5", "nan a.h5, 1 b.h5"})
    expect_mentions(message_of([&] { parse_blend(value); }), {value, "expected a positive number"});
  expect_mentions(message_of([&] { parse_blend("1e-30 a.h5, 1 b.h5"); }),
                  {"less than 2^-33 of the sum of weights"});
  expect_mentions(message_of([&] { parse_blend("1 a.h5, 1 ~/b.h5"); }), {"~ in", "not expanded"});
}

TEST(Blend, SamplesCountEpochsPerFile) {
  const testing::TemporaryFolder folder;
  write_token_file(folder.file("a.h5"), 60, 257);
  write_token_file(folder.file("b.h5"), 30, 257);
  const TokenFile a(folder.file("a.h5"));
  const TokenFile b(folder.file("b.h5"));
  const std::vector<WeightedSource> files{{&a, 1}, {&b, 3}};
  const Samples samples(files, 16, 42);
  const Samples again(files, 16, 42);
  ASSERT_EQ(samples.files(), 2u);
  const std::int64_t windows = samples.per_epoch(1);
  ASSERT_EQ(windows, (30 * 31 / 2 - 1) / 16);
  std::multiset<std::int64_t> of_b;
  std::int64_t n = 0;
  for (; std::ssize(of_b) < 3 * windows; ++n) {
    const auto [file, window] = samples.place(n);
    EXPECT_EQ(again.place(n).window, window);
    if (file == 1) of_b.insert(window);
  }
  EXPECT_NEAR(static_cast<double>(n), 4 * windows, 3);
  for (std::int64_t w = 0; w < windows; ++w) EXPECT_EQ(of_b.count(w), 3u) << "three whole epochs";
  std::vector<std::int32_t> inputs(16);
  std::vector<std::int32_t> targets(16);
  std::vector<std::int32_t> expected(16);
  for (std::int64_t i = 0; i < 20; ++i) {
    samples.read(i, 1, inputs, targets);
    const auto [file, window] = samples.place(i);
    (file == 0 ? a : b).read(window * 16, expected);
    EXPECT_EQ(inputs, expected);
  }
}

TEST(Blend, OneFileReadsLikeAnUnblendedFile) {
  const testing::TemporaryFolder folder;
  write_token_file(folder.file("a.h5"), 60, 257);
  const TokenFile a(folder.file("a.h5"));
  const Samples alone(a, 16, 42);
  const Samples blend(std::vector<WeightedSource>{{&a, 0.3}}, 16, 42);
  for (std::int64_t n = 0; n < 300; ++n) EXPECT_EQ(alone.place(n).window, blend.place(n).window);
}

}  // namespace
}  // namespace trireme::data
