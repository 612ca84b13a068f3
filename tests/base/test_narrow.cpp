#include <trireme/base/narrow.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace trireme {
namespace {

/// The number of sign, exponent and mantissa as IEEE 754 defines it, in double precision.
double value_of(std::uint16_t bits, int mantissa_bits) {
  const int exponents = 1 << (15 - mantissa_bits);
  const int exponent = (bits >> mantissa_bits) & (exponents - 1);
  const double mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int bias = exponents / 2 - 1;
  if (exponent == exponents - 1)
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(1 + std::ldexp(mantissa, -mantissa_bits), exponent - bias);
}

template <class T>
T of_bits(std::uint32_t bits) {
  T x(0);
  x.bits = static_cast<std::uint16_t>(bits);
  return x;
}

template <class T>
class Narrow : public ::testing::Test {
 protected:
  static constexpr int mantissa_bits = std::is_same_v<T, Bf16> ? 7 : 10;
  static constexpr std::uint32_t infinity = std::is_same_v<T, Bf16> ? 0x7f80 : 0x7c00;
};
using SixteenBitTypes = ::testing::Types<Bf16, Fp16>;
TYPED_TEST_SUITE(Narrow, SixteenBitTypes);

TYPED_TEST(Narrow, EveryValueRoundTrips) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto x = of_bits<TypeParam>(bits);
    const double expected = value_of(x.bits, TestFixture::mantissa_bits);
    const float found = x;
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(found)) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(TypeParam(found)))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(found), expected) << bits;
    ASSERT_EQ(std::signbit(found), std::signbit(expected)) << bits;
    ASSERT_EQ(TypeParam(found).bits, x.bits) << bits;
  }
}

/// Between each number and the next: below, at and above the middle. After the largest number the
/// next one is infinity, as if the exponent continued.
TYPED_TEST(Narrow, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < TestFixture::infinity; ++bits) {
    const double low = value_of(static_cast<std::uint16_t>(bits), TestFixture::mantissa_bits);
    const double below =
        bits == 0 ? -value_of(1, TestFixture::mantissa_bits)
                  : value_of(static_cast<std::uint16_t>(bits - 1), TestFixture::mantissa_bits);
    const double high =
        bits + 1 == TestFixture::infinity
            ? low + (low - below)
            : value_of(static_cast<std::uint16_t>(bits + 1), TestFixture::mantissa_bits);
    const auto middle = static_cast<float>((low + high) / 2);
    if (static_cast<double>(middle) != (low + high) / 2) continue;  // below the smallest float
    const float far = std::numeric_limits<float>::infinity();
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    for (const float sign : {1.0F, -1.0F}) {
      const std::uint32_t s = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(TypeParam(sign * middle).bits, s | even) << bits;
      ASSERT_EQ(TypeParam(sign * std::nextafter(middle, 0.0F)).bits, s | bits) << bits;
      ASSERT_EQ(TypeParam(sign * std::nextafter(middle, far)).bits, s | (bits + 1)) << bits;
    }
  }
}

TYPED_TEST(Narrow, LargeValuesBecomeInfinite) {
  for (const float x :
       {std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(TypeParam(x).bits, TestFixture::infinity);
    EXPECT_EQ(TypeParam(-x).bits, TestFixture::infinity | 0x8000);
  }
}

TEST(NarrowNaN, StaysNaNForAnyPayload) {
  for (std::uint32_t low = 1; low < 0x00800000; low = low * 2 + 1)
    for (const std::uint32_t sign : {0U, 0x80000000U}) {
      const auto nan = std::bit_cast<float>(sign | 0x7f800000U | low);
      EXPECT_TRUE(std::isnan(static_cast<float>(Bf16(nan)))) << low;
      EXPECT_TRUE(std::isnan(static_cast<float>(Fp16(nan)))) << low;
    }
}

}  // namespace
}  // namespace trireme
