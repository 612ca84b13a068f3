#include <trireme/base/philox.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

namespace trireme {
namespace {

using Words = std::array<std::uint32_t, 4>;

/// Philox4x32-10 of a plain counter and key. A RandomKey composes the third counter word from
/// purpose and stream, so the stream is chosen to give that word.
Words philox_of(const Words& counter, std::uint32_t key0, std::uint32_t key1) {
  RandomKey key;
  key.seed = (std::uint64_t{key1} << 32) | key0;
  key.purpose = Purpose::initialisation;
  key.stream = counter[2] ^ (static_cast<std::uint32_t>(Purpose::initialisation) << 28);
  key.step = counter[3];
  const Words4 out = philox(key, (std::uint64_t{counter[1]} << 32) | counter[0]);
  return {out.w[0], out.w[1], out.w[2], out.w[3]};
}

// The three known answers for philox4x32 with 10 rounds in Random123's kat_vectors (Salmon et al.
// 2011).
TEST(Philox, MatchesTheKnownAnswers) {
  EXPECT_EQ(philox_of({0, 0, 0, 0}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox_of({ones, ones, ones, ones}, ones, ones),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox_of({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, EachPartOfTheKeyChangesTheValues) {
  const RandomKey base{1, Purpose::dropout, 2, 3};
  std::vector<RandomKey> others(5, base);
  others[0].seed = 2;
  others[1].seed = (std::uint64_t{1} << 32) | 1;
  others[2].purpose = Purpose::shuffle;
  others[3].stream = 1;
  others[4].step = 4;
  std::set<std::uint64_t> seen;
  const auto first = [](const RandomKey& key) {
    const Words4 words = philox(key, 0);
    return (std::uint64_t{words.w[0]} << 32) | words.w[1];
  };
  EXPECT_TRUE(seen.insert(first(base)).second);
  for (const RandomKey& other : others) EXPECT_TRUE(seen.insert(first(other)).second);
}

TEST(UniformFromWord, IsStrictlyBetweenZeroAndOne) {
  EXPECT_GT(uniform_from_word(0), 0.0);
  EXPECT_LT(uniform_from_word(0xffffffff), 1.0);
  EXPECT_EQ(uniform_from_word(0x80000000) + uniform_from_word(0x7fffffff), 1.0);
}

TEST(UniformFromWord, HasTheMeanAndVarianceOfTheUniformDistribution) {
  constexpr int blocks = 250000;
  double sum = 0, squares = 0;
  for (int b = 0; b < blocks; ++b) {
    const Words4 words = philox({5, Purpose::sampling, 0, 0}, static_cast<std::uint64_t>(b));
    for (const std::uint32_t word : words.w) {
      const double u = uniform_from_word(word) - 0.5;
      sum += u;
      squares += u * u;
    }
  }
  const double n = 4.0 * blocks;
  // Five standard errors: of the mean sqrt(1/12/n), of the variance sqrt((1/80 - 1/144)/n).
  EXPECT_NEAR(sum / n, 0.0, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(squares / n, 1.0 / 12, 5 * std::sqrt((1.0 / 80 - 1.0 / 144) / n));
}

}  // namespace
}  // namespace trireme
