#include <trireme/base/check.hpp>
#include <trireme/kernels/random.hpp>

#include <kernels/cases.hpp>
#include <reference/elementwise.hpp>
#include <support/device_array.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::expect_close;

constexpr RandomKey normal_key{99, Purpose::initialisation, 3, 0};

template <class T>
class NormalFill : public ::testing::Test {};
TYPED_TEST_SUITE(NormalFill, WideTypes);

TYPED_TEST(NormalFill, MatchesBoxMullerOfPhiloxWords) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 13, 128, 5000})
    for (const std::int64_t first : {0L, 1L, 1L << 33}) {
      const DeviceArray<T> x(n);
      normal_fill<T>(Exec{}, x.flat(), normal_key, 0.02, first);
      std::vector<double> expected;
      for (std::int64_t i = first; i < first + n; ++i) {
        const double u = uniform_from_word(reference::random_word(normal_key, 2 * i));
        const double v = uniform_from_word(reference::random_word(normal_key, 2 * i + 1));
        expected.push_back(0.02 * std::sqrt(-2 * std::log(u)) *
                           std::cos(2 * 3.14159265358979323846 * v));
      }
      // The result's rounding to T, and in double a few roundings relative to the radius, which is
      // at most sqrt(2 ln 2^33) < 7; the angle's rounding is relative to 2 pi.
      expect_close(x.values(), expected, [&](std::size_t i) {
        return std::numeric_limits<T>::epsilon() * std::abs(expected[i]) +
               0.02 * 7 * 8 * std::numeric_limits<double>::epsilon();
      });
    }
}

TYPED_TEST(NormalFill, AnySliceHasTheBitsOfTheGlobalArray) {
  using T = TypeParam;
  constexpr std::int64_t outer = 3, rows = 10, inner = 7;
  const DeviceArray<T> global(outer * rows * inner);
  normal_fill<T>(Exec{}, global.flat(), normal_key, 1.0, 0);
  const auto all = global.values();
  std::int64_t first = 0;
  for (const std::int64_t count : {1, 6, 3}) {
    const DeviceArray<T> slice(outer * count * inner);
    normal_fill<T>(Exec{}, slice.cube(outer, count, inner), normal_key, 1.0, rows, first);
    const auto part = slice.values();
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t i = 0; i < inner; ++i)
          ASSERT_EQ(part[static_cast<std::size_t>((o * count + r) * inner + i)],
                    all[static_cast<std::size_t>((o * rows + first + r) * inner + i)]);
    first += count;
  }
  EXPECT_THROW(normal_fill<T>(Exec{}, global.cube(outer, rows, inner), normal_key, 1.0, rows, 1),
               Error);
}

TYPED_TEST(NormalFill, AnyUniformSliceHasTheBitsOfTheGlobalArray) {
  using T = TypeParam;
  constexpr std::int64_t outer = 2, rows = 9, inner = 5;
  const DeviceArray<T> global(outer * rows * inner);
  uniform_fill<T>(Exec{}, global.cube(outer, rows, inner), normal_key, 0.25, rows, 0);
  const auto all = global.values();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double u = uniform_from_word(philox(normal_key, i / 4).w[i % 4]);
    ASSERT_EQ(all[i], static_cast<T>(0.25 * (2 * u - 1)));
  }
  std::int64_t first = 0;
  for (const std::int64_t count : {2, 1, 6}) {
    const DeviceArray<T> slice(outer * count * inner);
    uniform_fill<T>(Exec{}, slice.cube(outer, count, inner), normal_key, 0.25, rows, first);
    const auto part = slice.values();
    for (std::size_t i = 0; i < part.size(); ++i) {
      const std::size_t o = i / static_cast<std::size_t>(count * inner);
      const std::size_t within = i % static_cast<std::size_t>(count * inner);
      ASSERT_EQ(part[i], all[(o * rows + static_cast<std::size_t>(first)) * inner + within]);
    }
    first += count;
  }
  EXPECT_THROW(uniform_fill<T>(Exec{}, global.cube(outer, rows, inner), normal_key, 1.0, rows, 1),
               Error);
}

/// Moments of n independent N(0,1): the mean has standard deviation 1/sqrt(n), the second moment
/// sqrt(2/n), the fourth sqrt(96/n), the product of neighbours 1/sqrt(n). Six of each.
TEST(NormalFillMoments, MatchTheNormalDistribution) {
  constexpr std::int64_t n = 1 << 20;
  const DeviceArray<double> x(n);
  normal_fill<double>(Exec{}, x.flat(), normal_key, 1.0, 0);
  const auto values = x.values();
  double first = 0, second = 0, fourth = 0, neighbours = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double square = values[i] * values[i];
    first += values[i];
    second += square;
    fourth += square * square;
    neighbours += values[i] * values[(i + 1) % values.size()];
  }
  const double root = std::sqrt(static_cast<double>(n));
  EXPECT_NEAR(first / n, 0.0, 6 / root);
  EXPECT_NEAR(second / n, 1.0, 6 * std::sqrt(2.0) / root);
  EXPECT_NEAR(fourth / n, 3.0, 6 * std::sqrt(96.0) / root);
  EXPECT_NEAR(neighbours / n, 0.0, 6 / root);
}

/// A constant operand would let a device run faster than any model lets it.
TEST(FillOperand, IsRandomAndDiffersBetweenOperands) {
  constexpr std::int64_t period = 1 << 22;
  constexpr std::int64_t n = 2 * period + 1000;
  const DeviceArray<float> x(n), other(1000);
  fill_operand<float>(Exec{}, x.flat(), 0);
  fill_operand<float>(Exec{}, other.flat(), 1);
  const auto values = x.values();
  const auto others = other.values();
  for (std::size_t i = period; i < values.size(); ++i)
    ASSERT_EQ(values[i], values[i - period]) << i;
  double second = 0;
  for (std::size_t i = 0; i < period; ++i) second += double(values[i]) * double(values[i]);
  EXPECT_NEAR(second / period, 1.0, 6 * std::sqrt(2.0 / period));
  std::size_t equal = 0;
  for (std::size_t i = 0; i < others.size(); ++i) equal += values[i] == others[i] ? 1U : 0U;
  EXPECT_EQ(equal, 0U);
}

}  // namespace
}  // namespace trireme::kernels
