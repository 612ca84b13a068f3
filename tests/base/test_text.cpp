#include <trireme/base/text.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

namespace trireme {
namespace {

TEST(Text, JoinsPartsUnchanged) {
  EXPECT_EQ(text("rank ", 3, " of ", std::int64_t{8}, ' ', true, ' ', std::string("x")),
            "rank 3 of 8 true x");
  EXPECT_EQ(text(), "");
  EXPECT_EQ(text(std::int64_t{std::numeric_limits<std::int64_t>::min()}), "-9223372036854775808");
}

TEST(Text, NumbersReadBackExactly) {
  for (const double number : {0.1, 1.0 / 3, 3e-4, 1e300, -5e-324, 123456789.0, 1e22})
    EXPECT_EQ(std::strtod(text(number).c_str(), nullptr), number) << text(number);
  EXPECT_EQ(text(0.1), "0.1");
}

TEST(Text, BytesUseBinaryUnitsAndThreeDigits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.50 KiB");
  EXPECT_EQ(human_bytes(std::int64_t{10} << 20), "10.0 MiB");
  EXPECT_EQ(human_bytes(std::int64_t{139} << 30), "139 GiB");
}

TEST(Text, LongNumbersHaveCommas) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(124439808), "124,439,808");
  EXPECT_EQ(with_commas(-123456), "-123,456");
}

TEST(Text, SecondsBecomeClockTimes) {
  EXPECT_EQ(human_seconds(0), "0:00");
  EXPECT_EQ(human_seconds(59.6), "1:00");
  EXPECT_EQ(human_seconds(3725), "1:02:05");
  EXPECT_EQ(human_seconds(360000), "100:00:00");
}

TEST(Text, FixedHasTheRequestedDigits) {
  EXPECT_EQ(fixed(3.14159, 2), "3.14");
  EXPECT_EQ(fixed(2, 0), "2");
}

TEST(Text, JoinPutsSeparatorsBetween) {
  EXPECT_EQ(join({}, ", "), "");
  EXPECT_EQ(join({"a"}, ", "), "a");
  EXPECT_EQ(join({"a", "b", "c"}, ", "), "a, b, c");
}

TEST(Nearest, FindsTheIntendedWord) {
  const std::vector<std::string> words{"layers", "hidden", "heads", "sequence"};
  EXPECT_EQ(nearest("layer", words), "layers");
  EXPECT_EQ(nearest("haeds", words), "heads");
  EXPECT_EQ(nearest("seqence", words), "sequence");
  EXPECT_EQ(nearest("heads", words), "heads");
  EXPECT_EQ(nearest("vocabulary", words), "");
  EXPECT_EQ(nearest("anything", {}), "");
}

}  // namespace
}  // namespace trireme
