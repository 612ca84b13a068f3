#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/erf.hpp>
#include <trireme/kernels/lanes.hpp>

#include <kernels/cases.hpp>
#include <reference/elementwise.hpp>
#include <reference/finite_difference.hpp>
#include <support/device_array.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

/// The exact form of GELU and the hyperbolic tangent, which bert's layers and heads use.
namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::expect_close;
using testing::random_numbers;

template <class T>
class ExactGelu : public ::testing::Test {
 protected:
  static constexpr double eps = std::numeric_limits<T>::epsilon();
};
TYPED_TEST_SUITE(ExactGelu, WideTypes);

template <class T>
std::vector<T> erf_of(const std::vector<T>& x) {
  const DeviceArray<T> in(x);
  const DeviceArray<T> out(static_cast<std::int64_t>(x.size()));
  const View1<T> from = in.flat();
  const View1<T> to = out.flat();
  for_chunks(
      "kernels/test_erf", Exec{}, static_cast<std::int64_t>(x.size()),
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        const T* x_part = from.data() + first;
        T* y_part = to.data() + first;
        for_lanes(team, count, [&](std::int64_t i) { y_part[i] = fast_erf(x_part[i]); });
      });
  return out.values();
}

TYPED_TEST(ExactGelu, ErfIsAccurateToFourEpsilon) {
  using T = TypeParam;
  using Wide = std::conditional_t<std::is_same_v<T, float>, double, long double>;
  for (const double end : {1e-30, 1e-3, 1.0, 30.0}) {
    std::vector<T> x;
    for (int i = 0; i <= 200000; ++i) x.push_back(static_cast<T>(end * (i / 1e5 - 1)));
    const std::vector<T> y = erf_of(x);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      worst = std::max(worst, static_cast<double>(std::abs(static_cast<Wide>(y[i]) -
                                                           std::erf(static_cast<Wide>(x[i])))));
    EXPECT_LT(worst, 4 * TestFixture::eps) << end;
  }
}

TYPED_TEST(ExactGelu, ErfHandlesInfinitiesAndNaN) {
  using T = TypeParam;
  constexpr T inf = std::numeric_limits<T>::infinity();
  const auto y = erf_of<T>({inf, -inf, std::numeric_limits<T>::max(),
                            std::numeric_limits<T>::quiet_NaN(), T(10), T(-10)});
  EXPECT_EQ(y[0], T(1));
  EXPECT_EQ(y[1], T(-1));
  EXPECT_EQ(y[2], T(1));
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_EQ(y[4], T(1));
  EXPECT_EQ(y[5], T(-1));
}

TYPED_TEST(ExactGelu, MatchesReference) {
  using T = TypeParam;
  for (const std::int64_t t : small_sizes)
    for (const std::int64_t f : small_sizes) {
      const auto h = random_numbers<T>(t * f, 1, 2.0);
      const DeviceArray<T> in(h);
      const DeviceArray<T> out(t * f);
      gelu_forward<T>(Exec{}, out.matrix(t, f), in.matrix(t, f), Gelu::exact);
      std::vector<double> expected;
      for (const double value : h) expected.push_back(reference::exact_gelu(value));
      // Half of erf's 4 eps; the rounding of its argument times 2/sqrt(pi) x e^(-x^2) < 0.49; a
      // sum, two products and the store.
      expect_close(out.values(), expected,
                   [&](std::size_t i) { return 6 * TestFixture::eps * std::abs(h[i]); });
      gelu_forward<T>(Exec{}, in.matrix(t, f), in.matrix(t, f), Gelu::exact);
      EXPECT_EQ(in.values(), out.values());
    }
}

TYPED_TEST(ExactGelu, QuickFormMatchesReference) {
  using T = TypeParam;
  for (const std::int64_t t : small_sizes)
    for (const std::int64_t f : small_sizes) {
      const auto h = random_numbers<T>(t * f, 1, 2.0), dg = random_numbers<T>(t * f, 2);
      const DeviceArray<T> in(h), d_dg(dg), out(t * f), dh(t * f);
      gelu_forward<T>(Exec{}, out.matrix(t, f), in.matrix(t, f), Gelu::quick);
      gelu_backward<T>(Exec{}, dh.matrix(t, f), d_dg.matrix(t, f), in.matrix(t, f), Gelu::quick);
      std::vector<double> expected, slopes;
      for (std::size_t i = 0; i < h.size(); ++i) {
        expected.push_back(reference::quick_gelu(h[i]));
        slopes.push_back(dg[i] *
                         reference::finite_difference(
                             [](const auto& x) { return reference::quick_gelu(x[0]); }, {h[i]})[0]);
      }
      // exp: 1.1 ulp, and its argument's rounding times 1.702 |h| < 7; then a sum, a quotient, a
      // product and the store.
      expect_close(out.values(), expected,
                   [&](std::size_t i) { return 12 * TestFixture::eps * std::abs(h[i]); });
      // Differences of 1e-5 in double: 1e-9.
      expect_close(dh.values(), slopes,
                   [&](std::size_t i) { return (30 * TestFixture::eps + 1e-9) * std::abs(dg[i]); });
    }
}

TYPED_TEST(ExactGelu, BackwardMatchesFiniteDifferences) {
  using T = TypeParam;
  for (const std::int64_t t : small_sizes)
    for (const std::int64_t f : small_sizes) {
      const auto h = random_numbers<T>(t * f, 1, 2.0);
      const auto dg = random_numbers<T>(t * f, 2);
      const DeviceArray<T> d_h(h);
      const DeviceArray<T> d_dg(dg);
      gelu_backward<T>(Exec{}, d_dg.matrix(t, f), d_dg.matrix(t, f), d_h.matrix(t, f), Gelu::exact);
      std::vector<double> expected;
      for (std::size_t i = 0; i < h.size(); ++i)
        expected.push_back(
            dg[i] * reference::finite_difference(
                        [](const auto& x) { return reference::exact_gelu(x[0]); }, {h[i]})[0]);
      // Differences: |gelu'''| < 3 and a few eps |gelu| / step. Kernel: the distribution is off by
      // 3 eps, v times the density by a few of at most 0.25, and the result is below 1.2.
      expect_close(d_dg.values(), expected, [&](std::size_t i) {
        const double step = reference::difference_step;
        const double differences = step * step / 2 + 4 * std::numeric_limits<double>::epsilon() *
                                                         (1 + std::abs(h[i])) / step;
        return std::abs(dg[i]) * (differences + 6 * TestFixture::eps);
      });
    }
}

TYPED_TEST(ExactGelu, TanhAndItsGradientMatchReference) {
  using T = TypeParam;
  for (const std::int64_t n : small_sizes) {
    const auto x = random_numbers<T>(n * 3, 1, 2.0);
    const auto dy = random_numbers<T>(n * 3, 2);
    const DeviceArray<T> values(x);
    const DeviceArray<T> gradients(dy);
    tanh_forward<T>(Exec{}, values.matrix(n, 3), values.matrix(n, 3));
    std::vector<double> expected;
    for (const double v : x) expected.push_back(std::tanh(v));
    expect_close(values.values(), expected,
                 [&](std::size_t i) { return 3 * TestFixture::eps * std::abs(expected[i]); });
    tanh_backward<T>(Exec{}, gradients.matrix(n, 3), gradients.matrix(n, 3), values.matrix(n, 3));
    const auto y = values.values();  // the gradient uses them as rounded near 1
    std::vector<double> slopes;
    for (std::size_t i = 0; i < y.size(); ++i)
      slopes.push_back(dy[i] * (1 - static_cast<double>(y[i]) * static_cast<double>(y[i])));
    expect_close(gradients.values(), slopes,
                 [&](std::size_t i) { return 4 * TestFixture::eps * std::abs(dy[i]); });
  }
}

}  // namespace
}  // namespace trireme::kernels
