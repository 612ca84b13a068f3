/// Cross entropy, whole and of a vocabulary in parts: what ranks compute, each with its part.

#include <trireme/kernels/cross_entropy.hpp>

#include <kernels/cases.hpp>
#include <kernels/tokens.hpp>
#include <reference/cross_entropy.hpp>
#include <reference/finite_difference.hpp>
#include <reference/parts.hpp>
#include <support/device_array.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace trireme::kernels {
namespace {

using reference::columns_of;
using reference::uneven_parts;
using testing::at;
using testing::DeviceArray;
using testing::expect_close;
using testing::random_numbers;
using testing::random_tokens;

constexpr std::int64_t column_splits[] = {1, 2, 3, 5};
constexpr double infinite_logit = std::numeric_limits<double>::infinity();
constexpr double double_eps = std::numeric_limits<double>::epsilon();

template <class T>
class TypedCrossEntropy : public ::testing::Test {
 protected:
  static constexpr double eps = std::numeric_limits<T>::epsilon();
};
TYPED_TEST_SUITE(TypedCrossEntropy, WideTypes);

/// Results of all ranks together, for the columns of logits that each part holds.
template <class T>
struct Parallel {
  std::vector<double> loss;
  std::vector<double> parts;   // [P,R,3]
  std::vector<double> merged;  // [R,3]
  std::vector<T> gradient;     // [R,V]
};

template <class T>
Parallel<T> cross_entropy_in_parts(const std::vector<double>& logits,
                                   const std::vector<std::int32_t>& targets,
                                   const std::vector<std::int64_t>& begins, double scale) {
  const auto rows = static_cast<std::int64_t>(targets.size());
  const std::int64_t columns = begins.back();
  const auto count = static_cast<std::int64_t>(begins.size()) - 1;
  const DeviceArray<std::int32_t> d_targets(targets);
  const DeviceArray<double> loss(rows), merged(3 * rows);
  const DeviceArray<double> statistics(count * rows * 3);
  std::vector<DeviceArray<T>> held;
  const auto width = [&](std::size_t p) { return begins[p + 1] - begins[p]; };
  for (std::size_t p = 0; p < at(count); ++p) {
    held.emplace_back(columns_of(logits, columns, begins[p], begins[p + 1]));
    const View2<double> mine(statistics.data() + static_cast<std::int64_t>(p) * rows * 3, at(rows),
                             3);
    cross_entropy_statistics<T>(Exec{}, mine, held[p].matrix(rows, width(p)), d_targets.flat(),
                                begins[p]);
  }
  cross_entropy_merge(Exec{}, loss.flat(), merged.matrix(rows, 3), statistics.cube(count, rows, 3));
  std::vector<T> gradient(logits.size());
  for (std::size_t p = 0; p < at(count); ++p) {
    cross_entropy_gradient<T>(Exec{}, held[p].matrix(rows, width(p)),
                              held[p].matrix(rows, width(p)), merged.matrix(rows, 3),
                              d_targets.flat(), begins[p], scale);
    const auto mine = held[p].values();
    for (std::size_t i = 0; i < mine.size(); ++i)
      gradient[i / at(width(p)) * at(columns) + at(begins[p]) + i % at(width(p))] = mine[i];
  }
  return {loss.values(), statistics.values(), merged.values(), gradient};
}

/// Largest minus smallest logit of a row.
double width_of(const std::vector<double>& logits, std::size_t row, std::size_t columns) {
  const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(row * columns);
  const auto [low, high] = std::minmax_element(begin, begin + static_cast<std::ptrdiff_t>(columns));
  return *high - *low;
}

/// A row's sum of V exponentials is off by (V + 4 + width) eps, because the rounding of an exponent
/// is relative to its argument. Merging P parts multiplies by another exponential and adds, in
/// double: (P + 4 + width) of its epsilon.
double row_sum_error(std::size_t columns, std::size_t parts, double width, double eps) {
  return (static_cast<double>(columns) + 4 + width) * eps +
         (static_cast<double>(parts) + 4 + width) * double_eps;
}

/// Σ_r scale · loss_r of soft-capped logits, by its definition, is the oracle of the gradient.
TYPED_TEST(TypedCrossEntropy, GradientsThroughASoftCapMatchFiniteDifferences) {
  using T = TypeParam;
  const double scale = 1.0 / 7, cap = 2.5;
  const std::int64_t rows = 3, columns = 13;
  const std::vector<std::int32_t> targets{4, -1, 12};
  const auto logits = random_numbers<T>(rows * columns, 1, 4.0);
  const auto loss = [&](const std::vector<double>& x) {
    double sum = 0;
    for (const std::size_t r : {0, 2}) {
      double exponentials = 0;
      const auto capped = [&](std::size_t v) { return cap * std::tanh(x[r * 13 + v] / cap); };
      for (std::size_t v = 0; v < 13; ++v) exponentials += std::exp(capped(v));
      sum += std::log(exponentials) - capped(at(targets[r]));
    }
    return scale * sum;
  };
  const DeviceArray<T> held(logits);
  const DeviceArray<std::int32_t> d_targets(targets);
  const DeviceArray<double> losses(rows), merged(3 * rows), statistics(3 * rows);
  const View2<T> x = held.matrix(rows, columns);
  soft_cap<T>(Exec{}, x, cap);
  cross_entropy_statistics<T>(Exec{}, statistics.matrix(rows, 3), x, d_targets.flat(), 0);
  cross_entropy_merge(Exec{}, losses.flat(), merged.matrix(rows, 3), statistics.cube(1, rows, 3));
  cross_entropy_gradient<T>(Exec{}, x, x, merged.matrix(rows, 3), d_targets.flat(), 0, scale, {},
                            cap);
  const auto expected = reference::finite_difference(loss, logits);
  // Derivatives are at most `scale`. Differences: h² times a third derivative below 10, and a few
  // eps of a loss of at most 10 over h. Kernel: some 30 roundings.
  const double h = reference::difference_step;
  const double bound = scale * (10 * h * h + 100 * double_eps / h +
                                30 * static_cast<double>(std::numeric_limits<T>::epsilon()));
  expect_close(held.values(), expected, [&](std::size_t) { return bound; });
}

TYPED_TEST(TypedCrossEntropy, MatchesReference) {
  using T = TypeParam;
  const double scale = 1.0 / 37;
  for (const std::int64_t r : small_sizes)
    for (const std::int64_t v : {1, 13, 128, 9000})  // 9000: several chunks in a part
      for (const std::int64_t parts : column_splits)
        for (const double spread : {1.0, 20.0, 300.0}) {
          const auto logits = random_numbers<T>(r * v, 1, spread);
          const auto targets = random_tokens(r, v, 2);
          const auto begins = uneven_parts(v, parts);
          const auto found = cross_entropy_in_parts<T>(logits, targets, begins, scale);
          const auto loss = reference::cross_entropy(logits, targets);
          const auto gradient = reference::cross_entropy_gradient(logits, targets, scale);
          std::vector<double> error;
          for (std::size_t row = 0; row < targets.size(); ++row)
            error.push_back(
                row_sum_error(at(v), at(parts), width_of(logits, row, at(v)), TestFixture::eps));
          expect_close(found.loss, loss, [&](std::size_t row) {
            return error[row] + 4 * double_eps * (1 + std::abs(loss[row]));
          });
          expect_close(found.gradient, gradient, [&](std::size_t i) {
            // Relative to the softmax; the target's own 1 adds its rounding. Denormal products lose
            // relative accuracy.
            const double one =
                static_cast<std::int32_t>(i % at(v)) == targets[i / at(v)] ? scale : 0;
            return 2 * error[i / at(v)] * std::abs(gradient[i] + one) +
                   2 * TestFixture::eps * std::abs(gradient[i]) +
                   2 * static_cast<double>(std::numeric_limits<T>::min());
          });
        }
}

TYPED_TEST(TypedCrossEntropy, MergedStatisticsDescribeTheRow) {
  using T = TypeParam;
  constexpr std::int64_t r = 13, v = 5000, parts = 3;
  const auto logits = random_numbers<T>(r * v, 1, 5.0);
  const auto targets = random_tokens(r, v, 2);
  const auto begins = uneven_parts(v, parts);
  const auto found = cross_entropy_in_parts<T>(logits, targets, begins, 1.0);
  const auto expect_statistics = [&](const double* statistics, std::int64_t first,
                                     std::int64_t last) {
    const auto expected = reference::softmax_statistics(logits, at(v), at(first), at(last));
    for (std::size_t row = 0; row < at(r); ++row) {
      const double* of_row = statistics + row * 3;
      EXPECT_EQ(of_row[0], expected.largest[row]);
      const double error =
          row_sum_error(at(v), parts, width_of(logits, row, at(v)), TestFixture::eps);
      EXPECT_NEAR(of_row[1], expected.sum[row], error * expected.sum[row]);
      const bool held = targets[row] >= first && targets[row] < last;
      EXPECT_EQ(of_row[2], held ? logits[row * at(v) + at(targets[row])] : -infinite_logit);
    }
  };
  for (std::size_t p = 0; p < parts; ++p)
    expect_statistics(found.parts.data() + p * at(r) * 3, begins[p], begins[p + 1]);
  expect_statistics(found.merged.data(), 0, v);
}

TEST(CrossEntropy, GradientMatchesFiniteDifferences) {
  for (const std::int64_t v : small_sizes)
    for (const std::int64_t parts : column_splits) {
      const auto logits = random_numbers<double>(3 * v, 1, 2.0);
      const auto targets = random_tokens(3, v, 2);
      const auto found =
          cross_entropy_in_parts<double>(logits, targets, uneven_parts(v, parts), 0.5);
      const auto total = [&](const std::vector<double>& x) {
        double sum = 0;
        for (const double row : reference::cross_entropy(x, targets)) sum += 0.5 * row;
        return sum;
      };
      // The third derivative of log-sum-exp is a third cumulant of a 0/1 variable: below 0.1. The
      // value is below 3 * 0.5 * 20 and computed to (V + 8) eps of that.
      const double step = reference::difference_step;
      const double bound =
          0.5 * step * step * 0.1 / 6 + (static_cast<double>(v) + 8) * double_eps * 30 / step;
      ASSERT_LT(bound, 1e-7);
      expect_close(found.gradient, reference::finite_difference(total, logits),
                   [&](std::size_t) { return bound; });
    }
}

TEST(CrossEntropy, BlocksOfRowsHaveTheSameBits) {
  constexpr std::int64_t v = 333;
  const auto logits = random_numbers<float>(13 * v, 1, 3.0);
  const auto targets = random_tokens(13, v, 2);
  for (const std::int64_t parts : column_splits) {
    const auto begins = uneven_parts(v, parts);
    const auto whole = cross_entropy_in_parts<float>(logits, targets, begins, 1.0);
    std::vector<double> loss;
    std::vector<float> gradient;
    for (const auto& [first, last] : {std::pair{0, 5}, {5, 13}}) {
      const auto block = cross_entropy_in_parts<float>(
          std::vector<double>(logits.begin() + first * v, logits.begin() + last * v),
          std::vector<std::int32_t>(targets.begin() + first, targets.begin() + last), begins, 1.0);
      loss.insert(loss.end(), block.loss.begin(), block.loss.end());
      gradient.insert(gradient.end(), block.gradient.begin(), block.gradient.end());
    }
    EXPECT_EQ(loss, whole.loss);
    EXPECT_EQ(gradient, whole.gradient);
  }
}

/// All other logits are 20 below the target's, in another part or another chunk of the same part:
/// softmax - 1 is -2e-8, which subtraction in fp32 could not distinguish from 0. The remaining
/// errors are those of nine exponentials and their sum in fp32, and the rounding of 1 + 2e-8 in
/// double.
TEST(CrossEntropy, GradientIsAccurateForASoftmaxNearOne) {
  constexpr std::int64_t chunk = 4096, v = chunk + 9;
  std::vector<double> logits(at(v), -infinite_logit);
  logits[0] = 20;
  std::fill(logits.begin() + chunk, logits.end(), 0.0);
  const double others = 9 * std::exp(-20.0);
  const double expected = -others / (1 + others);
  const double bound = 4 * double_eps + 16 * std::numeric_limits<float>::epsilon() * others;
  ASSERT_LT(bound, 1e-5 * others);
  for (const std::vector<std::int64_t>& begins :
       {std::vector<std::int64_t>{0, v}, {0, 1, v}, {0, chunk, v}, {0, 1, chunk + 4, v}}) {
    const auto found = cross_entropy_in_parts<float>(logits, {0}, begins, 1.0);
    EXPECT_NEAR(static_cast<double>(found.gradient[0]), expected, bound);
    EXPECT_NEAR(found.loss[0], std::log1p(others), bound);
  }
}

TEST(CrossEntropy, EmptyPartsAndMaskedLogitsHaveNoEffect) {
  constexpr std::int64_t v = 4100;
  std::vector<double> logits(at(v), -infinite_logit);
  logits[4098] = logits[4099] = 1.0;
  const auto whole = cross_entropy_in_parts<float>(logits, {4099}, {0, v}, 1.0);
  // Empty parts at the ends and between, and parts that are completely masked.
  for (const std::vector<std::int64_t>& begins :
       {std::vector<std::int64_t>{0, 0, v}, {0, v, v}, {0, 17, 17, 4098, v}, {0, 4099, v}}) {
    const auto found = cross_entropy_in_parts<float>(logits, {4099}, begins, 1.0);
    EXPECT_EQ(found.loss, whole.loss);
    EXPECT_EQ(found.gradient, whole.gradient);
  }
  EXPECT_NEAR(whole.loss[0], std::log(2.0), 4 * double_eps);
  EXPECT_EQ(whole.gradient[0], 0.0F);
  EXPECT_EQ(whole.gradient[4098], 0.5F);
  EXPECT_EQ(whole.gradient[4099], -0.5F);
}

/// The other rows have the bits that they have without them.
TYPED_TEST(TypedCrossEntropy, RowsWithoutATargetHaveNoLossAndGradient) {
  using T = TypeParam;
  constexpr std::int64_t r = 13, v = 333;
  const auto logits = random_numbers<T>(r * v, 1, 5.0);
  const auto targets = random_tokens(r, v, 2);
  auto some = targets;
  for (const std::size_t row : {0, 4, 5, 12}) some[row] = -1;
  for (const std::int64_t parts : column_splits) {
    auto begins = uneven_parts(v, parts);
    begins.insert(begins.begin() + 1, begins[1]);  // and an empty one
    const auto whole = cross_entropy_in_parts<T>(logits, targets, begins, 0.25);
    const auto found = cross_entropy_in_parts<T>(logits, some, begins, 0.25);
    for (std::size_t row = 0; row < at(r); ++row) {
      const bool counted = some[row] >= 0;
      EXPECT_EQ(found.loss[row], counted ? whole.loss[row] : 0.0);
      EXPECT_EQ(found.merged[3 * row + 1], counted ? whole.merged[3 * row + 1] : -1.0);
      for (std::size_t i = row * at(v); i < (row + 1) * at(v); ++i)
        ASSERT_EQ(found.gradient[i], counted ? whole.gradient[i] : T(0)) << row;
    }
  }
}

TEST(CrossEntropy, TargetsBelowMinusOneAskForTheLikeliestOfTheFirstIds) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> logits{0,  5,  1,  5,  9,  //
                                   0,  5,  1,  7,  9,  //
                                   0,  5,  1,  7,  9,  //
                                   -3, -2, -4, -2, -1, nan, 5, 1, 7, 9, 0, 5, infinite_logit,
                                   7,  9,  0,  5,  1,  7,   9};
  const std::vector<std::int32_t> targets{-1 - 4, -1 - 5, -1 - 3, -1 - 1, -1 - 5, -1 - 5, 3};
  const std::vector<double> expected{1, 4, 1, 0, -1, -1, 2};  // the last one: the gap to the target
  for (const std::vector<std::int64_t>& begins :
       {std::vector<std::int64_t>{0, 5}, {0, 2, 5}, {0, 1, 1, 3, 5}}) {
    const auto found = cross_entropy_in_parts<double>(logits, targets, begins, 1.0);
    const DeviceArray<double> loss(found.loss), merged(found.merged), scores(14);
    row_scores(Exec{}, scores.matrix(7, 2), loss.flat(), merged.matrix(7, 3));
    for (std::size_t row = 0; row < expected.size(); ++row)
      EXPECT_EQ(scores.values()[2 * row + 1], expected[row]) << "row " << row;
    for (std::size_t row = 0; row + 1 < expected.size(); ++row) EXPECT_EQ(found.loss[row], 0);
    EXPECT_GT(found.loss.back(), 0);
  }
}

TEST(CrossEntropy, ScoresHoldTheLossAndTheGapToTheLargestLogit) {
  const DeviceArray<double> loss(std::vector<double>{0.5, 2.0});
  const DeviceArray<double> merged(std::vector<double>{3.0, 1.5, 3.0, 4.0, 2.5, 1.0});
  const DeviceArray<double> scores(4);
  row_scores(Exec{}, scores.matrix(2, 2), loss.flat(), merged.matrix(2, 3));
  EXPECT_EQ(scores.values(), (std::vector<double>{0.5, 0.0, 2.0, 3.0}));
}

TEST(CrossEntropy, NaNAndMaskedTargetsReachEveryPart) {
  std::vector<double> logits{1.0, 2.0, -infinite_logit, 3.0};
  EXPECT_EQ(cross_entropy_in_parts<double>(logits, {2}, {0, 2, 4}, 1.0).loss[0], infinite_logit);
  logits[3] = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<std::int64_t>& begins :
       {std::vector<std::int64_t>{0, 4}, {0, 2, 4}, {0, 3, 4}}) {
    const auto found = cross_entropy_in_parts<double>(logits, {0}, begins, 1.0);
    EXPECT_TRUE(std::isnan(found.loss[0]));
    for (const double value : found.gradient) EXPECT_TRUE(std::isnan(value));
  }
}

/// The chunk of the NaN has no other unmasked logit; the largest one follows.
TEST(CrossEntropy, NaNAmongMaskedLogitsReachesTheLoss) {
  constexpr std::int64_t v = 4100;
  std::vector<double> logits(at(v), -infinite_logit);
  logits[4098] = logits[4099] = 1.0;
  logits[17] = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<std::int64_t>& begins :
       {std::vector<std::int64_t>{0, v}, {0, 17, v}, {0, 18, v}})
    EXPECT_TRUE(std::isnan(cross_entropy_in_parts<float>(logits, {4099}, begins, 1.0).loss[0]));
}

TEST(SumOrdered, AddsAllValuesToTheResult) {
  for (const std::int64_t n : {1, 13, 31, 32, 33, 128, 5000}) {
    const auto values = random_numbers<double>(n, 1);
    double expected = 3.0;
    double size = 3.0;
    for (const double value : values) {
      expected += value;
      size += std::abs(value);
    }
    const DeviceArray<double> result(std::vector<double>{3.0});
    sum_ordered(Exec{}, result.flat(), DeviceArray<double>(values).flat());
    const double bound = static_cast<double>(n) * std::numeric_limits<double>::epsilon() * size;
    EXPECT_NEAR(result.values()[0], expected, bound) << n;
  }
}

/// Rows of the model's logits begin at multiples of 64 bytes.
TYPED_TEST(TypedCrossEntropy, PaddedRowsHaveTheSameBits) {
  using T = TypeParam;
  constexpr std::int64_t rows = 5, columns = 9001, stride = 9008;
  const auto logits = random_numbers<T>(rows * columns, 1, 3.0);
  const DeviceArray<std::int32_t> targets(random_tokens(rows, columns, 2));
  const DeviceArray<T> near(logits), far(rows * stride, T(7));
  Kokkos::deep_copy(first_columns(far.matrix(rows, stride), columns), near.matrix(rows, columns));
  const auto run = [&](View2<T> x) {
    const DeviceArray<double> statistics(3 * rows), merged(3 * rows), loss(rows);
    cross_entropy_statistics<T>(Exec{}, statistics.matrix(rows, 3), x, targets.flat(), 0);
    cross_entropy_merge(Exec{}, loss.flat(), merged.matrix(rows, 3), statistics.cube(1, rows, 3));
    cross_entropy_gradient<T>(Exec{}, x, x, merged.matrix(rows, 3), targets.flat(), 0, 0.5);
    return loss.values();
  };
  EXPECT_EQ(run(near.matrix(rows, columns)), run(first_columns(far.matrix(rows, stride), columns)));
  const auto expected = near.values();
  const auto found = far.values();
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t v = 0; v < stride; ++v)
      ASSERT_EQ(found[at(r * stride + v)], v < columns ? expected[at(r * columns + v)] : T(7));
}

}  // namespace
}  // namespace trireme::kernels
