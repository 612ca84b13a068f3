// AdamW against its formula in double, and the blocked sums of squares from which the gradient's
// norm is computed.
#include <trireme/kernels/update.hpp>

#include <kernels/cases.hpp>
#include <kernels/rule_passes.hpp>
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

template <class T>
class Update : public ::testing::Test {
 protected:
  static constexpr double eps = std::numeric_limits<T>::epsilon();
};
TYPED_TEST_SUITE(Update, WideTypes);

/// Three steps against the formulas in double. After k steps m and v have at most 4 k roundings of
/// their largest terms, and the step's quotient 4 (k + 1) more of its own size.
TYPED_TEST(Update, AdamWMatchesTheFormula) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 13, 128, 10001}) {
    auto w = random_numbers<T>(n, 1);
    std::vector<double> m(w.size()), v(w.size()), m_size(w.size()), w_bound(w.size());
    const DeviceArray<T> d_w(w);
    const DeviceArray<T> d_m(n);
    const DeviceArray<T> d_v(n);
    const double clip = 0.7;
    for (int step = 1; step <= 3; ++step) {
      constexpr double rate = 1e-2;
      const rules::Settings adamw = testing::adam_settings();
      const DeviceArray<double> control(
          std::vector<double>{1, clip, 1 - std::pow(adamw.beta1, step),
                              1 - std::pow(adamw.beta2, step), 1.0 * step, 1});
      const auto gradient = random_numbers<T>(n, static_cast<unsigned>(1 + step));
      const DeviceArray<T> d_gradient(gradient);
      testing::run_pass<T>("adamw_update", {d_w.flat(), d_gradient.flat(), d_m.flat(), d_v.flat()},
                           adamw, rate, control.flat());
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double g = clip * gradient[i];
        m[i] = adamw.beta1 * m[i] + (1 - adamw.beta1) * g;
        m_size[i] = adamw.beta1 * m_size[i] + (1 - adamw.beta1) * std::abs(g);
        v[i] = adamw.beta2 * v[i] + (1 - adamw.beta2) * g * g;
        const double m_hat = m[i] / (1 - std::pow(adamw.beta1, step));
        const double m_hat_size = m_size[i] / (1 - std::pow(adamw.beta1, step));
        const double denominator =
            std::sqrt(v[i] / (1 - std::pow(adamw.beta2, step))) + adamw.epsilon;
        w[i] = w[i] * (1 - rate * adamw.weight_decay) - rate * m_hat / denominator;
        w_bound[i] += TestFixture::eps *
                      (2 * std::abs(w[i]) + 8 * (step + 1) * rate * m_hat_size / denominator);
      }
      expect_close(d_m.values(), m,
                   [&](std::size_t i) { return 4 * step * TestFixture::eps * m_size[i]; });
      expect_close(d_v.values(), v,
                   [&](std::size_t i) { return 4 * step * TestFixture::eps * v[i]; });
      expect_close(d_w.values(), w, [&](std::size_t i) { return w_bound[i]; });
    }
  }
}

/// The first step, by hand: it moves every weight by learning_rate sign(g), whatever the gradient's
/// size.
TEST(AdamWUpdate, FirstStepIsTheSignOfTheGradient) {
  const DeviceArray<double> w(std::vector<double>{1.0, 1.0, 1.0});
  const DeviceArray<double> m(3);
  const DeviceArray<double> v(3);
  const DeviceArray<double> control(std::vector<double>{1.0, 1.0, 1 - 0.9, 1 - 0.999, 1, 1});
  const DeviceArray<double> gradient(std::vector<double>{1e-3, -5.0, 0.0});
  rules::Settings settings = testing::adam_settings(1e-12, 0);
  settings.beta2 = 0.999;
  testing::run_pass<double>("adamw_update", {w.flat(), gradient.flat(), m.flat(), v.flat()},
                            settings, 0.1, control.flat());
  const auto updated = w.values();
  EXPECT_NEAR(updated[0], 0.9, 1e-9);  // epsilon is 1e-9 of the gradient
  EXPECT_NEAR(updated[1], 1.1, 1e-12);
  EXPECT_EQ(updated[2], 1.0);
}

TYPED_TEST(Update, SquaredNormBlocksMatchReference) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 13, 128, 4095, 4096, 4097, 20000}) {
    const auto x = random_numbers<T>(n, 1);
    std::vector<double> expected(static_cast<std::size_t>(norm_blocks(n)));
    for (std::size_t i = 0; i < x.size(); ++i)
      expected[i / static_cast<std::size_t>(norm_block)] += x[i] * x[i];
    const DeviceArray<double> partial(norm_blocks(n));
    squared_norm_blocks<T>(Exec{}, partial.flat(), DeviceArray<T>(x).flat());
    const double roundings =
        static_cast<double>(norm_block) * std::numeric_limits<double>::epsilon();
    expect_close(partial.values(), expected,
                 [&](std::size_t b) { return roundings * expected[b]; });
  }
}

TYPED_TEST(Update, SquaredNormOfABlockDoesNotDependOnItsOffset) {
  using T = TypeParam;
  constexpr std::int64_t blocks = 5;
  const auto x = random_numbers<T>(blocks * norm_block + 100, 1);
  const DeviceArray<T> d_x(x);
  const DeviceArray<double> whole(blocks + 1);
  squared_norm_blocks<T>(Exec{}, whole.flat(), d_x.flat());
  for (std::int64_t b = 0; b <= blocks; ++b) {
    const auto first = static_cast<std::size_t>(b * norm_block);
    const std::size_t count = std::min<std::size_t>(norm_block, x.size() - first);
    for (const std::size_t shift : {0, 3}) {  // at another address, aligned or not
      const DeviceArray<T> moved(static_cast<std::int64_t>(count + shift));
      Kokkos::deep_copy(View1<T>(moved.data() + shift, count), View1<T>(d_x.data() + first, count));
      const DeviceArray<double> alone(1);
      squared_norm_blocks<T>(Exec{}, alone.flat(), View1<const T>(moved.data() + shift, count));
      EXPECT_EQ(alone.values()[0], whole.values()[static_cast<std::size_t>(b)])
          << b << " shifted by " << shift;
    }
  }
}

/// Arrays one after another, each cut into blocks from its own beginning, compared with one launch
/// per array. On devices a kernel has its own team, and so its own order of sums.
TYPED_TEST(Update, SquaredNormBlocksOfManyArraysMatchSingleArrays) {
  using T = TypeParam;
  const std::vector<std::int64_t> arrays{1, 13, 128, 0, 4096, 4097, 20000};
  std::vector<std::int64_t> begins, ends;
  std::vector<double> expected;
  std::int64_t total = 0;
  for (const std::int64_t n : arrays) total += n;
  const DeviceArray<T> x(random_numbers<T>(total, 1));
  std::int64_t first = 0;
  for (const std::int64_t n : arrays) {
    const DeviceArray<double> partial(norm_blocks(n));
    squared_norm_blocks<T>(Exec{}, partial.flat(),
                           View1<const T>(x.data() + first, static_cast<std::size_t>(n)));
    for (const double sum : partial.values()) expected.push_back(sum);
    for (std::int64_t begin = 0; begin < n; begin += norm_block) {
      begins.push_back(first + begin);
      ends.push_back(first + std::min(begin + norm_block, n));
    }
    first += n;
  }
  const DeviceArray<double> partial(static_cast<std::int64_t>(begins.size()));
  squared_norm_blocks<T>(Exec{}, partial.flat(), x.flat(), DeviceArray<std::int64_t>(begins).flat(),
                         DeviceArray<std::int64_t>(ends).flat());
  if (exec_on_host) {
    EXPECT_EQ(partial.values(), expected);
  }
  const double roundings =
      2 * static_cast<double>(norm_block) * std::numeric_limits<double>::epsilon();
  expect_close(partial.values(), expected, [&](std::size_t b) { return roundings * expected[b]; });
}

TEST(Segments, SumsDoNotDependOnOtherSegments) {
  const std::vector<std::int64_t> lengths{5, 0, 1, 33, 200, 0, 5000, 13};
  std::int64_t n = 0;
  for (const std::int64_t length : lengths) n += length;
  const auto partial = random_numbers<double>(n, 1);
  const DeviceArray<double> d_partial(partial);
  std::vector<std::int64_t> ends;
  std::vector<double> expected, size;
  std::size_t i = 0;
  for (const std::int64_t length : lengths) {
    ends.push_back(static_cast<std::int64_t>(i) + length);
    expected.push_back(0), size.push_back(0);
    for (; i < static_cast<std::size_t>(ends.back()); ++i) {
      expected.back() += partial[i];
      size.back() += std::abs(partial[i]);
    }
  }
  const DeviceArray<double> sums(static_cast<std::int64_t>(lengths.size()), 7.0);  // overwritten
  segment_sums(Exec{}, sums.flat(), d_partial.flat(), DeviceArray<std::int64_t>(ends).flat());
  const auto found = sums.values();
  expect_close(found, expected, [&](std::size_t k) {
    return static_cast<double>(lengths[k]) * std::numeric_limits<double>::epsilon() * size[k];
  });
  for (std::size_t k = 0; k < lengths.size(); ++k)
    for (const std::int64_t before :
         {0, 3, 64}) {  // the same segment at another place, after others
      const auto begin = partial.begin() + (ends[k] - lengths[k]);
      std::vector<double> moved(static_cast<std::size_t>(before), 1.0);
      moved.insert(moved.end(), begin, begin + lengths[k]);
      const DeviceArray<double> alone(2);
      segment_sums(Exec{}, alone.flat(), DeviceArray<double>(moved).flat(),
                   DeviceArray<std::int64_t>(std::vector{before, before + lengths[k]}).flat());
      EXPECT_EQ(alone.values()[0], static_cast<double>(before));
      EXPECT_EQ(alone.values()[1], found[k]) << k << " after " << before;
    }
}

TEST(RootOfSum, MatchesTheDefinition) {
  const DeviceArray<double> root(1);
  root_of_sum(Exec{}, root.flat(), DeviceArray<double>(std::vector<double>{9.0, 16.0}).flat());
  EXPECT_EQ(root.values()[0], 5.0);
  root_of_sum(Exec{}, root.flat(), DeviceArray<double>(std::vector<double>(1000, 4.0)).flat());
  EXPECT_EQ(root.values()[0], std::sqrt(4000.0));
  root_of_sum(Exec{}, root.flat(), DeviceArray<double>(std::vector<double>{25.0, 144.0}).flat());
  EXPECT_EQ(root.values()[0], 13.0);  // the previous content is overwritten
}

TYPED_TEST(Update, CountsInfinitiesAndNaNs) {
  using T = TypeParam;
  std::vector<T> x(10001, T(1));
  x[5] = std::numeric_limits<T>::max();
  x[6] = std::numeric_limits<T>::denorm_min();
  const DeviceArray<std::int64_t> count(std::vector<std::int64_t>{100});
  count_non_finite<T>(Exec{}, count.flat(), DeviceArray<T>(x).flat());
  EXPECT_EQ(count.values()[0], 100);
  x[0] = std::numeric_limits<T>::infinity();
  x[4096] = -std::numeric_limits<T>::infinity();
  x[10000] = std::numeric_limits<T>::quiet_NaN();
  count_non_finite<T>(Exec{}, count.flat(), DeviceArray<T>(x).flat());
  EXPECT_EQ(count.values()[0], 103);
}

}  // namespace
}  // namespace trireme::kernels
