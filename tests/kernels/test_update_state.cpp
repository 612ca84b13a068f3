// Exact sums of squares of rows and columns, and stochastic rounding of the optimizer's state.
#include <trireme/kernels/factored.hpp>

#include <kernels/cases.hpp>
#include <kernels/rule_passes.hpp>
#include <support/device_array.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::random_numbers;

constexpr std::int64_t matrix_count = 2, row_count = 37, column_count = 150;

/// Sums of an array of matrices, of which a rank sums the ranges.
template <class T>
std::vector<double> sums_of(const std::vector<SummedRange>& ranges, const DeviceArray<T>& gradient,
                            const std::vector<double>& control) {
  const DeviceArray<T> of_rows(matrix_count * row_count), of_columns(matrix_count * column_count);
  const DeviceArray<double> sums(3 * matrix_count * (row_count + column_count)),
      means(matrix_count);
  FactoredMatrices a;
  a.local_rows = a.rows = row_count;
  a.local_columns = a.columns = column_count;
  a.matrices = a.local_matrices = matrix_count;
  a.ranges = std::ssize(ranges);
  const DeviceArray<FactoredMatrices> array(std::vector<FactoredMatrices>{a});
  const DeviceArray<SummedRange> d_ranges(ranges);
  const std::int64_t chunks = (column_count + column_chunk - 1) / column_chunk;
  sum_squares<T>(Exec{}, {of_rows.flat(), of_columns.flat(), sums.flat(), means.flat()},
                 gradient.flat(), DeviceArray<double>(control).flat(),
                 {array.flat(), d_ranges.flat(), matrix_count * row_count, matrix_count * chunks,
                  matrix_count});
  return sums.values();
}

template <class T>
class Factored : public ::testing::Test {};
TYPED_TEST_SUITE(Factored, WideTypes);

/// The terms of the sums are whole numbers, which any division adds up to the same bits. They match
/// sums in double to the roundings of the latter.
TYPED_TEST(Factored, SumsOfSquaresAreExact) {
  using T = TypeParam;
  constexpr std::int64_t n = matrix_count * row_count * column_count;
  auto numbers = random_numbers<T>(n, 1);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] *= std::exp2(-static_cast<double>(i % 30));
  const DeviceArray<T> gradient(numbers);
  const double clip = 0.75;
  double all = 0;
  for (const double x : numbers) all += clip * x * clip * x;
  const double scale = std::exp2(-std::floor(std::log2(std::sqrt(all))) - 2);
  const std::vector<double> control{1, clip, 1, 1, 1, scale};
  const auto whole = sums_of<T>({{0, n, 0}}, gradient, control);
  std::vector<double> divided(whole.size());
  const std::vector<std::int64_t> cuts{0, 100, 4096, 4097, 8192, n};
  for (const std::size_t rank : {0, 1}) {
    std::vector<SummedRange> ranges;
    for (std::size_t i = rank; i + 1 < cuts.size(); i += 2)
      ranges.push_back({cuts[i], cuts[i + 1], cuts[i]});
    const auto part = sums_of<T>(ranges, gradient, control);
    for (std::size_t i = 0; i < part.size(); ++i) divided[i] += part[i];
  }
  EXPECT_EQ(divided, whole);
  const std::size_t stride = whole.size() / 3;
  const auto found = [&](std::size_t i) {
    const double low = whole[i + 2 * stride] * std::exp2(-26) + whole[i + stride];
    return (low * std::exp2(-26) + whole[i]) * std::exp2(-50) / scale / scale;
  };
  std::vector<double> expected(stride);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t row = i / column_count, column = i % column_count, matrix = row / row_count;
    const double square = clip * numbers[i] * clip * numbers[i];
    expected[row] += square;
    expected[matrix_count * row_count + matrix * column_count + column] += square;
  }
  // Each of at most 150 summands drops less than 2^-102 of its scaled square.
  const double dropped = 150 * std::exp2(-102) / scale / scale;
  for (std::size_t i = 0; i < stride; ++i)
    EXPECT_NEAR(found(i), expected[i],
                400 * std::numeric_limits<double>::epsilon() * expected[i] + dropped)
        << i;
}

/// b = g, stored in bf16: each value becomes one of its two neighbours. With p the distance from
/// the lower neighbour, the share of the upper one among n has the standard deviation √(p (1 − p) /
/// n); it is within 5 of them.
TEST(StochasticRounding, IsUnbiased) {
  constexpr std::int64_t n = 200000;
  for (const double part : {0.0, 0.125, 0.5, 0.9}) {
    const float low = 1.0F, distance = 0.0078125F;
    const auto x = static_cast<float>(low + part * distance);
    const DeviceArray<float> w(n), g(n, x);
    const DeviceArray<Bf16> b(n, Bf16(0.0));
    const rules::Settings sgd = testing::momentum_settings(0.9, false, 0);
    const DeviceArray<double> control(std::vector<double>{1, 1, 1, 1, 1, 1});
    UpdateRanges all = whole_update(n);
    all.only.run = all.only.stride = n;
    const int number = rules::rule_of(OptimizerKind::sgd).passes(sgd).front().number;
    element_pass<float>(Exec{}, number, {w.flat(), g.flat(), {{{{}, b.flat()}, {}}}},
                        {OptimizerKind::sgd, sgd, 0.0, control.flat(), {}, {7, Purpose::rounding}},
                        all);
    double ups = 0;
    for (const double v : b.values()) {
      ASSERT_TRUE(v == low || v == low + distance) << v;
      ups += v > low ? 1 : 0;
    }
    const double deviation = std::sqrt(part * (1 - part) / static_cast<double>(n));
    EXPECT_NEAR(ups / static_cast<double>(n), part, 5 * deviation) << part;
  }
}

/// Parts of an array, whose elements are divided along an axis, have the bits of the whole array.
TEST(StochasticRounding, DoesNotDependOnTheDivision) {
  constexpr std::int64_t outer = 3, axis = 10, inner = 7, n = outer * axis * inner;
  const auto numbers = random_numbers<float>(n, 1);
  const rules::Settings settings = testing::adam_settings();
  const DeviceArray<double> control(std::vector<double>{1, 1, 0.1, 0.05, 1, 1});
  const auto moments = [&](std::int64_t first, std::int64_t extent) {
    std::vector<double> mine;
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t i = first * inner; i < (first + extent) * inner; ++i)
        mine.push_back(numbers[static_cast<std::size_t>(o * axis * inner + i)]);
    const std::int64_t count = std::ssize(mine);
    const DeviceArray<float> w(count), g(mine);
    const DeviceArray<Bf16> m(count, Bf16(0.0)), v(count, Bf16(0.0));
    UpdateRanges all = whole_update(count);
    all.only.run = extent * inner;
    all.only.stride = axis * inner;
    all.only.first = first * inner;
    element_pass<float>(
        Exec{}, 0, {w.flat(), g.flat(), {{{{}, m.flat()}, {{}, v.flat()}}}},
        {OptimizerKind::adamw, settings, 0.1, control.flat(), {}, {7, Purpose::rounding, 0, 3}},
        all);
    auto found = m.values();
    const auto second = v.values();
    found.insert(found.end(), second.begin(), second.end());
    return found;
  };
  const auto whole = moments(0, axis);
  for (const auto& [first, extent] : {std::pair<std::int64_t, std::int64_t>{0, 4}, {4, 6}}) {
    const auto part = moments(first, extent);
    std::size_t at = 0;
    for (std::int64_t moment = 0; moment < 2; ++moment)
      for (std::int64_t o = 0; o < outer; ++o)
        for (std::int64_t i = first * inner; i < (first + extent) * inner; ++i)
          EXPECT_EQ(static_cast<double>(part[at++]),
                    static_cast<double>(
                        whole[static_cast<std::size_t>((moment * outer + o) * axis * inner + i)]));
  }
}

}  // namespace
}  // namespace trireme::kernels
