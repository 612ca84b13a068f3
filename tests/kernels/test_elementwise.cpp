// Elementwise kernels against naive references in double and finite differences; dropout masks and
// random words against Philox.
#include <trireme/kernels/elementwise.hpp>

#include <trireme/kernels/words.hpp>

#include <kernels/cases.hpp>
#include <reference/elementwise.hpp>
#include <reference/finite_difference.hpp>
#include <support/device_array.hpp>
#include <support/launch_recorder.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::expect_close;
using testing::random_numbers;

constexpr RandomKey mask_key{20240607, Purpose::dropout, 11, 5};

template <class T>
class Elementwise : public ::testing::Test {
 protected:
  static constexpr double eps = std::numeric_limits<T>::epsilon();
};
TYPED_TEST_SUITE(Elementwise, WideTypes);

TYPED_TEST(Elementwise, GeluMatchesReference) {
  using T = TypeParam;
  for (const std::int64_t t : small_sizes)
    for (const std::int64_t f : small_sizes) {
      const auto h = random_numbers<T>(t * f, 1, 2.0);
      const DeviceArray<T> in(h);
      const DeviceArray<T> out(t * f);
      gelu_forward<T>(Exec{}, out.matrix(t, f), in.matrix(t, f));
      std::vector<double> expected;
      for (const double value : h) expected.push_back(reference::gelu(value));
      // tanh: 3 ulp, and the 4 roundings of its argument times u tanh'(u) <= 0.45; then two
      // products, all relative to |h|.
      expect_close(out.values(), expected,
                   [&](std::size_t i) { return 6 * TestFixture::eps * std::abs(h[i]); });
      gelu_forward<T>(Exec{}, in.matrix(t, f), in.matrix(t, f));
      EXPECT_EQ(in.values(), out.values());
    }
}

TYPED_TEST(Elementwise, GeluOfLargeValuesIsTheIdentityOrZero) {
  using T = TypeParam;
  const DeviceArray<T> x(std::vector<T>{T(50), T(-50), T(1e6), T(-1e6), T(0)});
  gelu_forward<T>(Exec{}, x.matrix(1, 5), x.matrix(1, 5));
  EXPECT_EQ(x.values(), (std::vector<T>{T(50), T(0), T(1e6), T(0), T(0)}));
}

TYPED_TEST(Elementwise, GeluBackwardMatchesFiniteDifferences) {
  using T = TypeParam;
  for (const std::int64_t t : small_sizes)
    for (const std::int64_t f : small_sizes) {
      const auto h = random_numbers<T>(t * f, 1, 2.0);
      const auto dg = random_numbers<T>(t * f, 2);
      const DeviceArray<T> d_h(h);
      const DeviceArray<T> d_dg(dg);
      const DeviceArray<T> dh(t * f);
      gelu_backward<T>(Exec{}, dh.matrix(t, f), d_dg.matrix(t, f), d_h.matrix(t, f));
      std::vector<double> expected;
      for (std::size_t i = 0; i < h.size(); ++i)
        expected.push_back(dg[i] *
                           reference::finite_difference(
                               [](const auto& x) { return reference::gelu(x[0]); }, {h[i]})[0]);
      // Differences: |gelu'''| < 3 and a few eps |gelu| / step. Kernel: tanh off by 5 eps enters
      // with at most 1/2 + |v| (1 + tanh) slope <= 1/2 + 2 |v| (1 + 0.14 v^2) eps where 1 - tanh^2
      // does not vanish (|v| < 4).
      const auto bound = [&](std::size_t i) {
        const double v = std::abs(h[i]);
        const double w = std::min(v, 4.0);
        const double step = reference::difference_step;
        const double differences =
            step * step / 2 + 4 * std::numeric_limits<double>::epsilon() * (1 + v) / step;
        return std::abs(dg[i]) *
               (differences + 5 * TestFixture::eps * (2 + 2 * w * (1 + 0.14 * w * w)));
      };
      expect_close(dh.values(), expected, bound);
      gelu_backward<T>(Exec{}, d_dg.matrix(t, f), d_dg.matrix(t, f), d_h.matrix(t, f));
      EXPECT_EQ(d_dg.values(), dh.values());
    }
}

TYPED_TEST(Elementwise, SwigluMatchesReference) {
  using T = TypeParam;
  for (const std::int64_t t : small_sizes)
    for (const std::int64_t f : small_sizes) {
      const auto h = random_numbers<T>(t * 2 * f, 1, 2.0);
      const DeviceArray<T> d_h(h);
      const DeviceArray<T> g(t * f);
      swiglu_forward<T>(Exec{}, g.matrix(t, f), d_h.matrix(t, 2 * f));
      std::vector<double> expected;
      for (std::int64_t i = 0; i < t * f; ++i) {
        const auto at = static_cast<std::size_t>(i / f * 2 * f + i % f);
        expected.push_back(reference::swiglu(h[at], h[at + static_cast<std::size_t>(f)]));
      }
      // exp: 1.1 ulp; then a sum, a quotient, a product and the store.
      expect_close(g.values(), expected,
                   [&](std::size_t i) { return 6 * TestFixture::eps * std::abs(expected[i]); });
    }
}

/// GELU's kernels, which have tests of their own, are the reference.
TYPED_TEST(Elementwise, GegluMultipliesTheGeluOfTheGate) {
  using T = TypeParam;
  for (const Gelu form : {Gelu::tanh, Gelu::exact, Gelu::quick})
    for (const std::int64_t t : small_sizes)
      for (const std::int64_t f : small_sizes) {
        const auto gate = random_numbers<T>(t * f, 1, 2.0);
        const auto up = random_numbers<T>(t * f, 2, 2.0);
        const auto dg = random_numbers<T>(t * f, 3);
        std::vector<double> h(2 * gate.size()), by_up(gate.size());
        const auto columns = static_cast<std::size_t>(f);
        const auto place = [&](std::size_t i) { return i / columns * 2 * columns + i % columns; };
        for (std::size_t i = 0; i < gate.size(); ++i) {
          h[place(i)] = gate[i];
          h[place(i) + columns] = up[i];
          by_up[i] = dg[i] * up[i];
        }
        const DeviceArray<T> d_h(h), d_gate(gate), d_dg(dg), d_by_up(by_up);
        const DeviceArray<T> g(t * f), dh(2 * t * f), value(t * f), slope(t * f);
        geglu_forward<T>(Exec{}, g.matrix(t, f), d_h.matrix(t, 2 * f), form);
        geglu_backward<T>(Exec{}, dh.matrix(t, 2 * f), d_dg.matrix(t, f), d_h.matrix(t, 2 * f),
                          form);
        gelu_forward<T>(Exec{}, value.matrix(t, f), d_gate.matrix(t, f), form);
        gelu_backward<T>(Exec{}, slope.matrix(t, f), d_by_up.matrix(t, f), d_gate.matrix(t, f),
                         form);
        const auto values = value.values(), slopes = slope.values();
        std::vector<double> expected(gate.size()), expected_dh(h.size()), size(h.size());
        for (std::size_t i = 0; i < gate.size(); ++i) {
          expected[i] = static_cast<double>(values[i]) * up[i];
          expected_dh[place(i)] = static_cast<double>(slopes[i]);
          expected_dh[place(i) + columns] = static_cast<double>(values[i]) * dg[i];
          size[place(i)] = size[place(i) + columns] =
              std::abs(dg[i]) * (1 + std::abs(up[i])) * (1 + std::abs(gate[i]));
        }
        // Products and stores, and expressions that the compiler may contract differently.
        expect_close(g.values(), expected,
                     [&](std::size_t i) { return 4 * TestFixture::eps * std::abs(expected[i]); });
        expect_close(dh.values(), expected_dh,
                     [&](std::size_t i) { return 8 * TestFixture::eps * size[i]; });
      }
}

TYPED_TEST(Elementwise, SwigluOfLargeGatesIsLinearOrZero) {
  using T = TypeParam;
  const DeviceArray<T> h(std::vector<T>{T(1000), T(-1000), T(0), T(3), T(5), T(7)});
  const DeviceArray<T> g(3);
  const DeviceArray<T> dg(3, T(1));
  const DeviceArray<T> dh(6, T(9));
  swiglu_forward<T>(Exec{}, g.matrix(1, 3), h.matrix(1, 6));
  swiglu_backward<T>(Exec{}, dh.matrix(1, 6), dg.matrix(1, 3), h.matrix(1, 6));
  EXPECT_EQ(g.values(), (std::vector<T>{T(3000), T(0), T(0)}));
  EXPECT_EQ(dh.values(), (std::vector<T>{T(3), T(0), T(3.5), T(1000), T(0), T(0)}));
  clamped_swiglu_forward<T>(Exec{}, g.matrix(1, 3), h.matrix(1, 6), 4000);
  clamped_swiglu_backward<T>(Exec{}, dh.matrix(1, 6), dg.matrix(1, 3), h.matrix(1, 6), 4000);
  EXPECT_EQ(g.values(), (std::vector<T>{T(4000), T(0), T(0)}));
  EXPECT_EQ(dh.values(), (std::vector<T>{T(4), T(0), T(4), T(1000), T(0), T(0)}));
}

/// Some factors are below −limit, some above.
TYPED_TEST(Elementwise, ClampedSwigluMatchesFiniteDifferences) {
  using T = TypeParam;
  constexpr double limit = 1.5;
  const auto function = [](const auto& x) { return reference::clamped_swiglu(x[0], x[1], limit); };
  for (const std::int64_t t : small_sizes)
    for (const std::int64_t f : small_sizes) {
      const auto h = random_numbers<T>(t * 2 * f, 1, 2.0);
      const auto dg = random_numbers<T>(t * f, 2);
      const DeviceArray<T> d_h(h), d_dg(dg), g(t * f), dh(t * 2 * f);
      clamped_swiglu_forward<T>(Exec{}, g.matrix(t, f), d_h.matrix(t, 2 * f), limit);
      clamped_swiglu_backward<T>(Exec{}, dh.matrix(t, 2 * f), d_dg.matrix(t, f),
                                 d_h.matrix(t, 2 * f), limit);
      const auto columns = static_cast<std::size_t>(f);
      std::vector<double> expected(dg.size()), of_h(h.size()), size(h.size());
      for (std::size_t i = 0; i < dg.size(); ++i) {
        const std::size_t at = i / columns * 2 * columns + i % columns;
        const double a = h[at], b = h[at + columns];
        expected[i] = function(std::vector{a, b});
        const auto both = reference::finite_difference(function, {a, b});
        of_h[at] = dg[i] * both[0];
        of_h[at + columns] = dg[i] * both[1];
        size[at] = size[at + columns] = std::abs(dg[i]) * (1 + std::abs(a)) * (1 + std::abs(b));
      }
      expect_close(g.values(), expected, [&](std::size_t i) {
        return 8 * TestFixture::eps * (std::abs(expected[i]) + 1);
      });
      // As for swiglu, with derivatives up to 1.702³ times as large.
      const double step = reference::difference_step;
      const double relative = 6 * step * step + 4 * std::numeric_limits<double>::epsilon() / step +
                              20 * TestFixture::eps;
      expect_close(dh.values(), of_h, [&](std::size_t i) { return relative * size[i]; });
      clamped_swiglu_backward<T>(Exec{}, d_h.matrix(t, 2 * f), d_dg.matrix(t, f),
                                 d_h.matrix(t, 2 * f), limit);
      EXPECT_EQ(d_h.values(), dh.values());
    }
}

TYPED_TEST(Elementwise, SwigluBackwardMatchesFiniteDifferences) {
  using T = TypeParam;
  for (const std::int64_t t : small_sizes)
    for (const std::int64_t f : small_sizes) {
      const auto h = random_numbers<T>(t * 2 * f, 1, 2.0);
      const auto dg = random_numbers<T>(t * f, 2);
      const DeviceArray<T> d_h(h);
      const DeviceArray<T> d_dg(dg);
      const DeviceArray<T> dh(t * 2 * f);
      swiglu_backward<T>(Exec{}, dh.matrix(t, 2 * f), d_dg.matrix(t, f), d_h.matrix(t, 2 * f));
      const auto columns = static_cast<std::size_t>(f);
      std::vector<double> expected(h.size()), size(h.size());
      for (std::size_t i = 0; i < dg.size(); ++i) {
        const std::size_t at = i / columns * 2 * columns + i % columns;
        const double a = h[at], b = h[at + columns];
        const auto both = reference::finite_difference(
            [](const auto& x) { return reference::swiglu(x[0], x[1]); }, {a, b});
        expected[at] = dg[i] * both[0];
        expected[at + columns] = dg[i] * both[1];
        size[at] = size[at + columns] = std::abs(dg[i]) * (1 + std::abs(a)) * (1 + std::abs(b));
      }
      // Differences: the third derivative is below 1, and a few eps |a b| / step. Kernel: s within
      // 4 eps of itself, and the derivative a sum of terms of at most 1 + |a|.
      const double step = reference::difference_step;
      const double relative =
          step * step + 4 * std::numeric_limits<double>::epsilon() / step + 10 * TestFixture::eps;
      expect_close(dh.values(), expected, [&](std::size_t i) { return relative * size[i]; });
      swiglu_backward<T>(Exec{}, d_h.matrix(t, 2 * f), d_dg.matrix(t, f), d_h.matrix(t, 2 * f));
      EXPECT_EQ(d_h.values(), dh.values());
    }
}

TYPED_TEST(Elementwise, DropoutMatchesReference) {
  using T = TypeParam;
  for (const std::int64_t t : small_sizes)
    for (const std::int64_t d : small_sizes)
      for (const double rate : {0.0, 0.1, 0.5}) {
        const Dropout dropout{rate, mask_key, 7};
        const auto x = random_numbers<T>(t * d, 1);
        const auto z = random_numbers<T>(t * d, 2);
        const auto factor = reference::dropout_factors(t, d, rate, mask_key, 7);
        const DeviceArray<T> d_x(x);
        const DeviceArray<T> d_z(z);
        const DeviceArray<T> sum(t * d);
        const DeviceArray<T> product(t * d);
        const DeviceArray<T> backward(t * d);
        residual_dropout_forward<T>(Exec{}, sum.matrix(t, d), d_x.matrix(t, d), d_z.matrix(t, d),
                                    dropout);
        dropout_forward<T>(Exec{}, product.matrix(t, d), d_z.matrix(t, d), dropout);
        dropout_backward<T>(Exec{}, backward.matrix(t, d), d_z.matrix(t, d), dropout);
        std::vector<double> expected_sum, expected_product;
        for (std::size_t i = 0; i < x.size(); ++i) {
          expected_product.push_back(factor[i] * z[i]);
          expected_sum.push_back(x[i] + factor[i] * z[i]);
        }
        // Factor, product and sum each round once.
        expect_close(product.values(), expected_product, [&](std::size_t i) {
          return 2 * TestFixture::eps * std::abs(expected_product[i]);
        });
        expect_close(sum.values(), expected_sum, [&](std::size_t i) {
          return 2 * TestFixture::eps * (std::abs(x[i]) + std::abs(expected_product[i]));
        });
        EXPECT_EQ(backward.values(), product.values());  // linear and diagonal: its own transpose
        residual_dropout_forward<T>(Exec{}, d_x.matrix(t, d), d_x.matrix(t, d), d_z.matrix(t, d),
                                    dropout);
        EXPECT_EQ(d_x.values(), sum.values());
        dropout_forward<T>(Exec{}, d_z.matrix(t, d), d_z.matrix(t, d), dropout);
        EXPECT_EQ(d_z.values(), product.values());
      }
}

TYPED_TEST(Elementwise, DropoutMaskDoesNotDependOnTheSplitOfRows) {
  using T = TypeParam;
  constexpr std::int64_t rows = 41;
  for (const std::int64_t d : {1, 13, 128, 300}) {  // 300: more than one batch of words per row
    const DeviceArray<T> x(random_numbers<T>(rows * d, 1)), z(random_numbers<T>(rows * d, 2));
    const DeviceArray<T> whole[] = {DeviceArray<T>(rows * d), DeviceArray<T>(rows * d),
                                    DeviceArray<T>(rows * d)};
    const DeviceArray<T> parts[] = {DeviceArray<T>(rows * d), DeviceArray<T>(rows * d),
                                    DeviceArray<T>(rows * d)};
    const auto run = [&](const DeviceArray<T>* y, std::int64_t first, std::int64_t count) {
      const auto some = [&](const DeviceArray<T>& array) {
        return View2<T>(array.data() + first * d, static_cast<std::size_t>(count),
                        static_cast<std::size_t>(d));
      };
      const Dropout dropout{0.3, mask_key, 100 + first};
      dropout_forward<T>(Exec{}, some(y[0]), some(z), dropout);
      dropout_backward<T>(Exec{}, some(y[1]), some(z), dropout);
      residual_dropout_forward<T>(Exec{}, some(y[2]), some(x), some(z), dropout);
    };
    run(whole, 0, rows);
    std::int64_t first = 0;
    for (const std::int64_t count : {1, 2, 7, 0, 31}) {
      run(parts, first, count);
      first += count;
    }
    ASSERT_EQ(first, rows);
    for (int k = 0; k < 3; ++k) EXPECT_EQ(parts[k].values(), whole[k].values()) << k;
  }
}

TEST(Dropout, KeepsTheMean) {
  constexpr std::int64_t rows = 512;
  constexpr std::int64_t d = 768;
  constexpr double n = rows * d;
  for (const double rate : {0.1, 0.5, 0.9}) {
    const DeviceArray<double> x(std::vector<double>(rows * d, 1.0));
    dropout_forward<double>(Exec{}, x.matrix(rows, d), x.matrix(rows, d), {rate, mask_key, 0});
    double sum = 0;
    for (const double value : x.values()) sum += value;
    // Each element has variance rate / (1 - rate); six standard deviations of the mean.
    EXPECT_NEAR(sum / n, 1.0, 6 * std::sqrt(rate / (1 - rate) / n)) << rate;
  }
}

TEST(Dropout, RateZeroLaunchesNothingInPlace) {
  const DeviceArray<float> x(std::vector<float>{1, 2, 3, 4});
  const testing::LaunchRecorder recorder;
  dropout_forward<float>(Exec{}, x.matrix(2, 2), x.matrix(2, 2), {});
  dropout_backward<float>(Exec{}, x.matrix(2, 2), x.matrix(2, 2), {});
  EXPECT_TRUE(recorder.labels().empty());
}

TEST(Dropout, RejectsARateOutOfRange) {
  const DeviceArray<float> x(4);
  EXPECT_THROW(dropout_forward<float>(Exec{}, x.matrix(2, 2), x.matrix(2, 2), {1.0, mask_key, 0}),
               Error);
  EXPECT_THROW(dropout_forward<float>(Exec{}, x.matrix(2, 2), x.matrix(2, 2), {-0.1, mask_key, 0}),
               Error);
}

/// A separate function, because nvcc does not accept KOKKOS_LAMBDA in a test's private body.
void fill_with_words(View1<std::uint32_t> words, const RandomKey& key, std::int64_t first) {
  const std::int64_t n = extent(words, 0);
  const RandomKey array = key;
  for_rows(
      "kernels/test_words", Exec{}, 1, KOKKOS_LAMBDA(const Team& team, std::int64_t) {
        std::uint32_t* out = words.data();
        for_words(team, array, first, n,
                  [&](std::int64_t i, std::uint32_t word) { out[i] = word; });
      });
}

TEST(Words, MatchPhilox) {
  for (const std::int64_t first :
       {0L, 1L, 2L, 3L, 1023L, (1L << 34) - 6})  // the last crosses 2^32 blocks
    for (const std::int64_t n : {1, 4, 13, 255, 256, 257, 1000}) {
      const DeviceArray<std::uint32_t> words(n);
      fill_with_words(words.flat(), mask_key, first);
      const auto actual = words.values();
      for (std::int64_t i = 0; i < n; ++i)
        ASSERT_EQ(actual[static_cast<std::size_t>(i)], reference::random_word(mask_key, first + i))
            << first << " + " << i;
    }
}

TYPED_TEST(Elementwise, AccumulateScaleFillAndCopyMatchReference) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 13, 128, 4096, 10001}) {
    const auto x = random_numbers<T>(n, 1);
    const auto y = random_numbers<T>(n, 2);
    const DeviceArray<T> d_x(x);
    const DeviceArray<T> d_y(y);
    std::vector<double> expected(y);
    accumulate<T>(Exec{}, d_y.flat(), d_x.flat());
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += x[i];
    const auto one_rounding = [&](std::size_t i) {
      return TestFixture::eps * std::abs(expected[i]);
    };
    expect_close(d_y.values(), expected, one_rounding);
    scale<T>(Exec{}, d_x.flat(), 0.3);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = 0.3 * x[i];
    expect_close(d_x.values(), expected, one_rounding);
    copy<T>(Exec{}, d_y.flat(), d_x.flat());
    EXPECT_EQ(d_y.values(), d_x.values());
    fill<T>(Exec{}, d_y.flat(), -1.5);
    EXPECT_EQ(d_y.values(), std::vector<T>(static_cast<std::size_t>(n), T(-1.5)));
  }
}

}  // namespace
}  // namespace trireme::kernels
