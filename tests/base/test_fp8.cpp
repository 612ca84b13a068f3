#include <trireme/base/fp8.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

namespace trireme {
namespace {

/// The types as arXiv 2209.05433, table 1, defines them.
template <class F>
struct Format;
template <>
struct Format<E4M3> {
  static constexpr int mantissa = 3, bias = 7, largest = 0x7e;
  static constexpr double largest_value = 448, smallest_normal = 0x1p-6, smallest = 0x1p-9;
};
template <>
struct Format<E5M2> {
  static constexpr int mantissa = 2, bias = 15, largest = 0x7b;
  static constexpr double largest_value = 57344, smallest_normal = 0x1p-14, smallest = 0x1p-16;
};

template <class F>
double value_of(int code) {
  const int mantissa = code & ((1 << Format<F>::mantissa) - 1);
  const int exponent = (code & 0x7f) >> Format<F>::mantissa;
  const double sign = (code & 0x80) != 0 ? -1 : 1;
  if ((code & 0x7f) > Format<F>::largest)
    return std::is_same_v<F, E5M2> && mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                                                    : std::nan("");
  const double fraction = std::ldexp(mantissa, -Format<F>::mantissa);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - Format<F>::bias)
                               : std::ldexp(1 + fraction, exponent - Format<F>::bias));
}

template <class F>
float of_code(int code) {
  F x(0);
  x.bits = static_cast<std::uint8_t>(code);
  return x;
}

template <class F>
int code_of(double x) {
  return F(static_cast<float>(x)).bits;
}

template <class F>
class Fp8 : public ::testing::Test {};
using EightBitTypes = ::testing::Types<E4M3, E5M2>;
TYPED_TEST_SUITE(Fp8, EightBitTypes);

TYPED_TEST(Fp8, CodesHaveTheirDefinedValues) {
  for (int code = 0; code < 256; ++code) {
    const double expected = value_of<TypeParam>(code);
    const float found = of_code<TypeParam>(code);
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(found)) << code;
    else
      EXPECT_EQ(found, expected) << code;
    EXPECT_EQ(std::signbit(found), code >= 128) << code;
  }
  using Of = Format<TypeParam>;
  EXPECT_EQ(of_code<TypeParam>(Of::largest), Of::largest_value);
  EXPECT_EQ(std::ldexp(1.75, TypeParam::largest_exponent), Of::largest_value);
  EXPECT_EQ(of_code<TypeParam>(1), Of::smallest);
  EXPECT_EQ(of_code<TypeParam>(1 << Of::mantissa), Of::smallest_normal);
}

TYPED_TEST(Fp8, RoundsToNearestEven) {
  for (const int sign : {0, 0x80})
    for (int code = 0; code < Format<TypeParam>::largest; ++code) {
      const double low = value_of<TypeParam>(sign | code);
      const double high = value_of<TypeParam>(sign | (code + 1));
      const auto middle = static_cast<float>((low + high) / 2);
      ASSERT_EQ(middle, (low + high) / 2) << "exact in fp32";
      EXPECT_EQ(code_of<TypeParam>(low), sign | code);
      EXPECT_EQ(code_of<TypeParam>(middle), sign | (code + code % 2));
      EXPECT_EQ(code_of<TypeParam>(std::nextafter(middle, static_cast<float>(low))), sign | code);
      EXPECT_EQ(code_of<TypeParam>(std::nextafter(middle, static_cast<float>(high))),
                sign | (code + 1));
    }
}

TYPED_TEST(Fp8, LargeValuesSaturateAndNansStay) {
  using Of = Format<TypeParam>;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const double x : {Of::largest_value, Of::largest_value * 1.03, Of::largest_value * 1.2,
                         Of::largest_value * 2, 1e10, 3.4e38, infinity}) {
    EXPECT_EQ(code_of<TypeParam>(x), Of::largest) << x;
    EXPECT_EQ(code_of<TypeParam>(-x), 0x80 | Of::largest) << x;
  }
  for (const double nan : {std::nan(""), -std::nan("")})
    EXPECT_TRUE(std::isnan(of_code<TypeParam>(code_of<TypeParam>(nan))));
}

TYPED_TEST(Fp8, SmallValuesRoundToSignedZero) {
  const double half = Format<TypeParam>::smallest / 2;
  for (const double x : {0.0, 1e-45, 1e-38, half * 0.99, half}) {
    EXPECT_EQ(code_of<TypeParam>(x), 0) << x;
    EXPECT_EQ(code_of<TypeParam>(-x), 0x80) << x;
  }
  EXPECT_EQ(code_of<TypeParam>(half * 1.01), 1);
}

TYPED_TEST(Fp8, ScalesAreTheLargestFittingPowersOfTwo) {
  for (double maximum = 1e-12; maximum < 1e12; maximum *= 1.037) {
    const auto rounded = static_cast<float>(maximum);
    const int exponent = fp8_scale_exponent(rounded, TypeParam::largest_exponent);
    const double scaled = std::ldexp(static_cast<double>(rounded), exponent);
    EXPECT_LE(scaled, Format<TypeParam>::largest_value);
    EXPECT_GT(2 * scaled, Format<TypeParam>::largest_value);
    EXPECT_EQ(power_of_two(exponent), std::ldexp(1.0, exponent));
  }
  EXPECT_EQ(fp8_scale_exponent(static_cast<float>(Format<TypeParam>::largest_value),
                               TypeParam::largest_exponent),
            0);
  for (const float tiny : {1e-45F, 1e-38F})
    EXPECT_EQ(fp8_scale_exponent(tiny, TypeParam::largest_exponent), fp8_scale_limit);
  EXPECT_EQ(fp8_scale_exponent(3e38F, TypeParam::largest_exponent), -fp8_scale_limit);
}

TEST(Fp8Words, ReadBackToTheirValues) {
  for (const Products value : {Products::compute, Products::fp8})
    EXPECT_EQ(parse<Products>(name_of(value)), value);
  for (const Fp8Algorithm value : {Fp8Algorithm::max, Fp8Algorithm::most_recent})
    EXPECT_EQ(parse<Fp8Algorithm>(name_of(value)), value);
  EXPECT_EQ(name_of(Products::fp8), "fp8");
  EXPECT_EQ(name_of(Fp8Algorithm::most_recent), "most_recent");
}

}  // namespace
}  // namespace trireme
