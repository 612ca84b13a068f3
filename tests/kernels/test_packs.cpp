#include <trireme/kernels/packs.hpp>
#include <trireme/kernels/rotary_heads.hpp>
#include <trireme/kernels/words.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cases.hpp"

/// Rows in pieces of 16 bytes, as on devices, compared with one element at a time.
namespace trireme::kernels {
namespace {

template <class T>
class Packs : public ::testing::Test {
 protected:
  /// Rows whose first `offset` elements are skipped, so that they begin anywhere.
  struct Row {
    alignas(64) T values[160];
  };
  static Row row(int seed) {
    Row r;
    for (int i = 0; i < 160; ++i)
      r.values[i] = static_cast<T>(static_cast<float>((i * 37 + seed * 101) % 255 - 127) / 32.0F);
    return r;
  }
};
TYPED_TEST_SUITE(Packs, AllTypes);

TYPED_TEST(Packs, MapGivesTheSameBitsAtAnyOffset) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  const auto f = [](std::int64_t i, Acc a, Acc b) { return a * b + static_cast<Acc>(i); };
  for (const std::int64_t n : {0, 1, 7, 8, 16, 20, 128})
    for (const int offset : {0, 1, 8})
      for (const bool in_place : {false, true}) {
        auto a = this->row(1);
        const auto b = this->row(2);
        auto out = this->row(3);
        T* to = (in_place ? a.values : out.values) + offset;
        const auto before = this->row(in_place ? 1 : 3);
        std::vector<T> expected(static_cast<std::size_t>(n));
        for (std::int64_t i = 0; i < n; ++i)
          expected[static_cast<std::size_t>(i)] = static_cast<T>(
              f(i, static_cast<Acc>(a.values[offset + i]), static_cast<Acc>(b.values[offset + i])));
        const T* from = a.values + offset;
        detail::map_by_packs(HostTeam{}, n, to, f, from, b.values + offset);
        EXPECT_EQ(std::memcmp(to, expected.data(), expected.size() * sizeof(T)), 0)
            << n << " at " << offset;
        const T* whole = in_place ? a.values : out.values;
        EXPECT_EQ(std::memcmp(whole + offset + n, before.values + offset + n,
                              static_cast<std::size_t>(160 - offset - n) * sizeof(T)),
                  0)
            << "something after the row was written";
      }
}

TYPED_TEST(Packs, UpdateGivesTheSameBitsAtAnyOffset) {
  using T = TypeParam;
  const auto f = [](T& a, T& b, const T& c) {
    a = static_cast<T>(static_cast<float>(a) * 0.5F + static_cast<float>(c));
    b = static_cast<T>(static_cast<float>(b) - static_cast<float>(a));
  };
  for (const std::int64_t n : {0, 1, 7, 8, 16, 20, 131})
    for (const int offset : {0, 1, 8}) {
      auto a = this->row(1);
      auto b = this->row(2);
      const auto c = this->row(3);
      auto expected_a = a;
      auto expected_b = b;
      for (std::int64_t i = offset; i < offset + n; ++i)
        f(expected_a.values[i], expected_b.values[i], c.values[i]);
      detail::update_by_packs(HostTeam{}, n, f, a.values + offset, b.values + offset,
                              c.values + offset);
      EXPECT_EQ(std::memcmp(&a, &expected_a, sizeof a), 0) << n << " at " << offset;
      EXPECT_EQ(std::memcmp(&b, &expected_b, sizeof b), 0) << n << " at " << offset;
    }
}

TYPED_TEST(Packs, MapToTwoGivesTheSameBitsAtAnyOffset) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  const auto f = [](std::int64_t i, Acc a, Acc b) {
    return Two<Acc>{a * b + static_cast<Acc>(i), a - b};
  };
  for (const std::int64_t n : {0, 1, 7, 8, 16, 20})
    for (const int offset : {0, 1, 8})
      for (const bool in_place : {false, true}) {
        // As a gate and its input: two consecutive rows.
        auto from = this->row(1);
        auto out = this->row(in_place ? 1 : 3);
        auto expected = out;
        for (std::int64_t i = 0; i < n; ++i) {
          const Two<Acc> both = f(i, static_cast<Acc>(from.values[offset + i]),
                                  static_cast<Acc>(from.values[offset + n + i]));
          expected.values[offset + i] = static_cast<T>(both.first);
          expected.values[offset + n + i] = static_cast<T>(both.second);
        }
        T* to = out.values + offset;
        const T* a = in_place ? to : from.values + offset;
        detail::map_to_two_by_packs(HostTeam{}, n, to, to + n, f, a, a + n);
        EXPECT_EQ(std::memcmp(out.values, expected.values, sizeof out.values), 0)
            << n << " at " << offset;
      }
}

/// Rows of an array of random words that begin anywhere in it, also beyond 32 bits.
TYPED_TEST(Packs, MapOfWordsGivesTheSameBitsAtAnyOffset) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  const RandomKey key{42, Purpose::dropout, 7, 3};
  const auto f = [](std::int64_t i, std::uint32_t word, Acc a) {
    return word < 0x80000000U ? Acc(0) : a + static_cast<Acc>(i) + static_cast<Acc>(word >> 28);
  };
  for (const std::int64_t first : {0L, 4L, 6L, 4L * 128, (1L << 40) + 4, (1L << 40) + 9})
    for (const std::int64_t n : {0, 1, 8, 12, 20, 128})
      for (const int offset : {0, 1, 8}) {
        auto out = this->row(1);
        auto expected = out;
        for (std::int64_t i = 0; i < n; ++i) {
          const auto number = static_cast<std::uint64_t>(first + i);
          const std::uint32_t word = philox(key, number / 4).w[number % 4];
          T& to = expected.values[offset + i];
          to = static_cast<T>(f(i, word, static_cast<Acc>(to)));
        }
        T* to = out.values + offset;
        const T* from = to;
        detail::map_words_by_packs(HostTeam{}, key, first, n, to, f, from);
        EXPECT_EQ(std::memcmp(out.values, expected.values, sizeof out.values), 0)
            << n << " at " << offset << " from word " << first;
      }
}

TYPED_TEST(Packs, RotationOfHeadsGivesTheSameBitsAtAnyOffset) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  struct {
    alignas(64) Acc values[40];
  } cosine, sine;
  for (int i = 0; i < 40; ++i) {
    cosine.values[i] = static_cast<Acc>(std::cos(0.3 * i));
    sine.values[i] = static_cast<Acc>(std::sin(0.3 * i));
  }
  const std::int64_t heads = 3;
  for (const std::int64_t half : {1, 6, 8, 24})
    for (const std::int64_t part : {std::int64_t{1}, half})  // pairs taken at a time
      for (const int offset : {0, 1, 8}) {
        auto out = this->row(1);
        auto expected = out;
        for (std::int64_t h = 0; h < heads; ++h)
          for (std::int64_t i = 0; i < half; ++i) {
            T& lower = expected.values[offset + h * 2 * half + i];
            T& upper = expected.values[offset + h * 2 * half + half + i];
            const auto a = static_cast<Acc>(lower);
            const auto b = static_cast<Acc>(upper);
            const Acc c = cosine.values[i], s = sine.values[i];
            lower = static_cast<T>(a * c - b * s);
            upper = static_cast<T>(b * c + a * s);
          }
        for (std::int64_t first = 0; first < half; first += part)
          detail::turn_heads(HostTeam{}, out.values + offset + first, part, heads, 2 * half,
                             cosine.values + first, sine.values + first);
        EXPECT_EQ(std::memcmp(out.values, expected.values, sizeof out.values), 0)
            << half << " at " << offset << " by " << part;
      }
}

TYPED_TEST(Packs, SumsMatchTheDefinition) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  const auto a = this->row(1);
  const auto b = this->row(2);
  for (const std::int64_t n : {0, 1, 8, 20, 128})
    for (const int offset : {0, 1}) {
      double expected = 0;
      double sizes = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        const double term =
            static_cast<double>(a.values[offset + i]) * static_cast<double>(b.values[offset + i]);
        expected += term;
        sizes += std::abs(term);
      }
      const Acc found = detail::sum_by_packs<Acc>(
          HostTeam{}, n, [](std::int64_t, Acc x, Acc y) { return x * y; }, a.values + offset,
          b.values + offset);
      const double eps = std::numeric_limits<Acc>::epsilon() / 2;
      EXPECT_NEAR(found, expected, static_cast<double>(n + 1) * eps * sizes);
    }
}

TYPED_TEST(Packs, MaximumIsFoundAtAnyPosition) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  for (const std::int64_t n : {1, 7, 8, 16, 21})
    for (const int offset : {0, 1, 8})
      for (std::int64_t place = 0; place < n; ++place) {
        auto a = this->row(1);
        a.values[offset + place] = T(100);
        a.values[offset + n] = T(200);  // after the row
        EXPECT_EQ(detail::max_by_packs<Acc>(HostTeam{}, n, a.values + offset), Acc(100))
            << place << " of " << n << " at " << offset;
      }
  const auto a = this->row(1);
  EXPECT_EQ(detail::max_by_packs<Acc>(HostTeam{}, 0, a.values), -infinity<Acc>);
}

TEST(PackWidth, FollowsTheWidestType) {
  EXPECT_EQ((detail::pack_width<Bf16, Bf16>), 8);
  EXPECT_EQ((detail::pack_width<Bf16, float>), 4);
  EXPECT_EQ((detail::pack_width<double, float>), 2);
  alignas(16) static const float row[8] = {};
  EXPECT_TRUE(detail::in_packs<4>(row));
  EXPECT_FALSE(detail::in_packs<4>(row + 1));
  EXPECT_TRUE(detail::in_packs<2>(row + 2));
}

}  // namespace
}  // namespace trireme::kernels
