#include <trireme/hugging_face/convert.hpp>

#include "support.hpp"

#include <bit>
#include <cmath>
#include <limits>

namespace trireme::hugging_face {
namespace {

using namespace testing;

double from_bits(DType type, std::uint16_t bits) {
  return number_at(type, &bits, 0);
}

std::uint16_t rounded(DType type, double x) {
  std::uint16_t bits = 0;
  convert(DType::fp64, &x, type, &bits, 1);
  return bits;
}

class ShortTypes : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, ShortTypes, ::testing::Values(DType::bf16, DType::fp16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(ShortTypes, ValuesRoundTripThroughLargerTypes) {
  for (const DType larger : {DType::fp64, DType::fp32})
    for (int i = 0; i < 65536; ++i) {
      const auto bits = static_cast<std::uint16_t>(i);
      if (std::isnan(from_bits(GetParam(), bits))) continue;
      std::uint64_t wide = 0;
      std::uint16_t back = 0;
      ASSERT_FALSE(convert(GetParam(), &bits, larger, &wide, 1));
      ASSERT_FALSE(convert(larger, &wide, GetParam(), &back, 1));
      ASSERT_EQ(back, bits);
    }
}

TEST_P(ShortTypes, RoundToNearestEven) {
  // Between any two neighbours: slightly below the midpoint, the midpoint, slightly above.
  for (int i = 0; i < 0x7fff; ++i) {
    const auto low = static_cast<std::uint16_t>(i);
    const auto high = static_cast<std::uint16_t>(i + 1);
    const double a = from_bits(GetParam(), low);
    const double b = from_bits(GetParam(), high);
    if (!std::isfinite(b)) break;
    const double middle = (a + b) / 2;  // exact
    ASSERT_EQ(rounded(GetParam(), std::nextafter(middle, 0.0)), low) << middle;
    ASSERT_EQ(rounded(GetParam(), std::nextafter(middle, b)), high) << middle;
    ASSERT_EQ(rounded(GetParam(), middle), low % 2 == 0 ? low : high) << middle;
    ASSERT_EQ(rounded(GetParam(), -middle), (low % 2 == 0 ? low : high) | 0x8000) << middle;
  }
}

TEST_P(ShortTypes, LargeValuesBecomeInfiniteAndAreReported) {
  const bool half = GetParam() == DType::fp16;
  const double largest = half ? 65504 : std::bit_cast<float>(0x7f7f0000u);
  const double infinite = half ? 65520 : std::bit_cast<float>(0x7f7f8000u);  // the tie
  const std::vector<double> in{1, largest, std::nextafter(infinite, 0.0), infinite,
                               std::numeric_limits<double>::infinity()};
  std::vector<std::uint16_t> out(in.size());
  EXPECT_EQ(convert(DType::fp64, in.data(), GetParam(), out.data(), 5), 3);
  EXPECT_EQ(from_bits(GetParam(), out[2]), largest);
  EXPECT_TRUE(std::isinf(from_bits(GetParam(), out[3])));
  EXPECT_FALSE(convert(DType::fp64, in.data() + 4, GetParam(), out.data(), 1))
      << "it was infinite before";
  EXPECT_TRUE(std::isnan(from_bits(GetParam(), rounded(GetParam(), std::nan("")))));
}

TEST(Convert, RoundsOnce) {
  // 1 + 2^-8 + 2^-30 is above the midpoint of 1 and 1 + 2^-7 in bf16; rounded to fp32 first, it is
  // on the midpoint.
  EXPECT_EQ(rounded(DType::bf16, 1 + 0x1p-8 + 0x1p-30), 0x3f81);
}

TEST(Convert, TheSameTypeKeepsEveryBit) {
  const auto bits = bits_of("any", 1000);
  std::vector<std::uint32_t> out(bits.size());
  EXPECT_FALSE(convert(DType::fp32, bits.data(), DType::fp32, out.data(), 1000));
  EXPECT_EQ(out, bits);
}

TEST(Convert, RejectsIntegers) {
  const double x = 1;
  std::int64_t out = 0;
  expect_mentions(message_of([&] { convert(DType::fp64, &x, DType::int64, &out, 1); }),
                  {"int64", "bf16"});
}

}  // namespace
}  // namespace trireme::hugging_face
