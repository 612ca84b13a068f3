#include <trireme/kernels/vocabulary.hpp>

#include <kernels/tokens.hpp>
#include <reference/finite_difference.hpp>
#include <reference/vocabulary.hpp>
#include <support/device_array.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::expect_close;
using testing::random_numbers;
using testing::random_tokens;

constexpr std::int64_t sizes[] = {1, 13, 128};

template <class T>
class Vocabulary : public ::testing::Test {
 protected:
  static constexpr double eps = std::numeric_limits<T>::epsilon();
};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Vocabulary, Types);

TYPED_TEST(Vocabulary, EmbeddingForwardMatchesReference) {
  using T = TypeParam;
  for (const std::int64_t t : sizes)
    for (const std::int64_t d : sizes)
      for (const std::int64_t v : sizes)
        for (const std::int64_t s : sizes) {
          const auto tokens = random_tokens(t, v, 1);
          const auto table = random_numbers<T>(v * d, 2);
          const auto positions = random_numbers<T>(s * d, 3);
          const DeviceArray<T> x(t * d);
          embedding_forward<T>(Exec{}, x.matrix(t, d), DeviceArray<std::int32_t>(tokens).flat(),
                               DeviceArray<T>(table).matrix(v, d),
                               DeviceArray<T>(positions).matrix(s, d), s);
          const auto expected =
              reference::embedding(tokens, table, positions, static_cast<std::size_t>(d));
          expect_close(x.values(), expected,
                       [&](std::size_t i) { return TestFixture::eps * std::abs(expected[i]); });
        }
}

/// The forward map is linear, so its derivative is itself and the backward map is its transpose:
/// the coefficient of dx[t] in dtable[v] is 1 where tokens[t] = v. Sums of up to T terms onto what
/// was there.
TYPED_TEST(Vocabulary, EmbeddingBackwardIsTheTransposeAndAdds) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  for (const std::int64_t t : sizes)
    for (const std::int64_t d : sizes)
      for (const std::int64_t v : sizes)
        for (const std::int64_t s : sizes) {
          const auto tokens = random_tokens(t, v, 1);
          const auto dx = random_numbers<T>(t * d, 4);
          auto table = random_numbers<Acc>(v * d, 5);
          auto positions = random_numbers<Acc>(s * d, 6);
          const DeviceArray<Acc> dtable(table);
          const DeviceArray<Acc> dpositions(positions);
          embedding_backward<T>(Exec{}, dtable.matrix(v, d), dpositions.matrix(s, d),
                                DeviceArray<T>(dx).matrix(t, d),
                                DeviceArray<std::int32_t>(tokens).flat(), s);
          std::vector<double> table_size(table.size()), positions_size(positions.size());
          for (std::size_t i = 0; i < table.size(); ++i) table_size[i] = std::abs(table[i]);
          for (std::size_t i = 0; i < positions.size(); ++i)
            positions_size[i] = std::abs(positions[i]);
          const auto hidden = static_cast<std::size_t>(d);
          for (std::size_t i = 0; i < dx.size(); ++i) {
            const std::size_t row = i / hidden;
            const std::size_t in_table =
                static_cast<std::size_t>(tokens[row]) * hidden + i % hidden;
            const std::size_t in_positions =
                row % static_cast<std::size_t>(s) * hidden + i % hidden;
            table[in_table] += dx[i];
            table_size[in_table] += std::abs(dx[i]);
            positions[in_positions] += dx[i];
            positions_size[in_positions] += std::abs(dx[i]);
          }
          const double roundings = static_cast<double>(t + 1) * TestFixture::eps;
          expect_close(dtable.values(), table,
                       [&](std::size_t i) { return roundings * table_size[i]; });
          expect_close(dpositions.values(), positions,
                       [&](std::size_t i) { return roundings * positions_size[i]; });
        }
}

/// Loss of a row: log of a sum of V terms of relative error (V + 2 + |logit - largest|) eps, and a
/// difference of numbers of that size. (The exponent's rounding is relative to its argument.)
double row_error(const std::vector<double>& logits, std::size_t row, std::size_t vocabulary,
                 double eps) {
  double widest = 0;
  const double* begin = logits.data() + row * vocabulary;
  const auto [low, high] = std::minmax_element(begin, begin + vocabulary);
  widest = *high - *low;
  return eps * (static_cast<double>(vocabulary) + 4 + widest);
}

TYPED_TEST(Vocabulary, CrossEntropyMatchesReference) {
  using T = TypeParam;
  for (const std::int64_t r : sizes)
    for (const std::int64_t v : {1, 13, 128, 5000})  // 5000: several chunks of the running maximum
      for (const double spread : {1.0, 20.0}) {
        const auto logits = random_numbers<T>(r * v, 1, spread);
        const auto targets = random_tokens(r, v, 2);
        const auto vocabulary = static_cast<std::size_t>(v);
        const double scale = 1.0 / 37;
        const auto expected = reference::cross_entropy(logits, targets);
        const auto gradient = reference::cross_entropy_gradient(logits, targets, scale);
        const DeviceArray<T> d_logits(logits);
        const DeviceArray<std::int32_t> d_targets(targets);
        const DeviceArray<double> loss(r);
        const DeviceArray<double> same_loss(r);
        cross_entropy_forward<T>(Exec{}, loss.flat(), d_logits.matrix(r, v), d_targets.flat());
        std::vector<double> error;
        for (std::size_t row = 0; row < targets.size(); ++row)
          error.push_back(row_error(logits, row, vocabulary, TestFixture::eps));
        const double double_eps = std::numeric_limits<double>::epsilon();
        expect_close(loss.values(), expected, [&](std::size_t row) {
          return error[row] + 4 * double_eps * (1 + std::abs(expected[row]));
        });
        cross_entropy_forward_backward<T>(Exec{}, same_loss.flat(), d_logits.matrix(r, v),
                                          d_targets.flat(), scale);
        EXPECT_EQ(same_loss.values(), loss.values());
        expect_close(d_logits.values(), gradient, [&](std::size_t i) {
          // Relative to the softmax; the target's own 1 adds its rounding. Denormal products lose
          // relative accuracy.
          const double softmax =
              gradient[i] +
              (static_cast<std::int32_t>(i % vocabulary) == targets[i / vocabulary] ? scale : 0);
          return 2 * error[i / vocabulary] * std::abs(softmax) +
                 2 * TestFixture::eps * std::abs(gradient[i]) +
                 2 * static_cast<double>(std::numeric_limits<T>::min());
        });
      }
}

TEST(CrossEntropy, BackwardMatchesFiniteDifferences) {
  for (const std::int64_t v : sizes) {
    const auto logits = random_numbers<double>(3 * v, 1, 2.0);
    const auto targets = random_tokens(3, v, 2);
    const DeviceArray<double> gradient(logits);
    const DeviceArray<double> loss(3);
    cross_entropy_forward_backward<double>(Exec{}, loss.flat(), gradient.matrix(3, v),
                                           DeviceArray<std::int32_t>(targets).flat(), 0.5);
    const auto total = [&](const std::vector<double>& x) {
      double sum = 0;
      for (const double row : reference::cross_entropy(x, targets)) sum += 0.5 * row;
      return sum;
    };
    // The third derivative of log-sum-exp is a third cumulant of a 0/1 variable: below 0.1. The
    // value is below 3 * 0.5 * 20 and computed to (V + 8) eps of that.
    const double step = reference::difference_step;
    const double bound = 0.5 * step * step * 0.1 / 6 + (static_cast<double>(v) + 8) *
                                                           std::numeric_limits<double>::epsilon() *
                                                           30 / step;
    ASSERT_LT(bound, 1e-7);
    expect_close(gradient.values(), reference::finite_difference(total, logits),
                 [&](std::size_t) { return bound; });
  }
}

TEST(CrossEntropy, MaskedLogitsCountForNothingAndNaNIsSeen) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  constexpr std::int64_t v = 4100;  // the first chunk is masked altogether
  std::vector<double> logits(v, -inf);
  logits[4098] = 1.0;
  logits[4099] = 1.0;
  const DeviceArray<std::int32_t> target(std::vector<std::int32_t>{4099});
  const DeviceArray<double> loss(1);
  const DeviceArray<float> masked(logits);
  cross_entropy_forward_backward<float>(Exec{}, loss.flat(), masked.matrix(1, v), target.flat(),
                                        1.0);
  EXPECT_NEAR(loss.values()[0], std::log(2.0), 4 * std::numeric_limits<double>::epsilon());
  const auto gradient = masked.values();
  EXPECT_EQ(gradient[0], 0.0F);
  EXPECT_EQ(gradient[4098], 0.5F);
  EXPECT_EQ(gradient[4099], -0.5F);
  logits[17] = std::numeric_limits<double>::quiet_NaN();
  const DeviceArray<float> broken(logits);
  cross_entropy_forward<float>(Exec{}, loss.flat(), broken.matrix(1, v), target.flat());
  EXPECT_TRUE(std::isnan(loss.values()[0]));
}

TEST(CrossEntropy, BlocksOfRowsGiveTheSameBits) {
  constexpr std::int64_t v = 333;
  const auto logits = random_numbers<float>(13 * v, 1, 3.0);
  const DeviceArray<std::int32_t> targets(random_tokens(13, v, 2));
  const DeviceArray<float> whole(logits);
  const DeviceArray<float> parts(logits);
  const DeviceArray<double> loss(13);
  const DeviceArray<double> part_loss(13);
  cross_entropy_forward_backward<float>(Exec{}, loss.flat(), whole.matrix(13, v), targets.flat(),
                                        1.0);
  for (const auto& [first, count] : {std::pair<std::size_t, std::size_t>{0, 5}, {5, 8}})
    cross_entropy_forward_backward<float>(Exec{}, View1<double>(part_loss.data() + first, count),
                                          View2<float>(parts.data() + first * v, count, v),
                                          View1<const std::int32_t>(targets.data() + first, count),
                                          1.0);
  EXPECT_EQ(part_loss.values(), loss.values());
  EXPECT_EQ(parts.values(), whole.values());
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

}  // namespace
}  // namespace trireme::kernels
