#include <trireme/kernels/lanes.hpp>
#include <trireme/kernels/math.hpp>

#include <kernels/cases.hpp>
#include <support/device_array.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::kernels {
namespace {

using testing::DeviceArray;

enum class Function { exponential, of_difference, hyperbolic_tangent };

/// The function at every x, computed in lanes as in kernels.
template <class T>
std::vector<T> evaluate(Function function, const std::vector<T>& x) {
  const DeviceArray<T> in(x);
  const DeviceArray<T> out(static_cast<std::int64_t>(x.size()));
  const View1<T> from = in.flat();
  const View1<T> to = out.flat();
  for_chunks(
      "kernels/test_math", Exec{}, static_cast<std::int64_t>(x.size()),
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        const T* x_part = from.data() + first;
        T* y_part = to.data() + first;
        if (function == Function::exponential)
          for_lanes(team, count, [&](std::int64_t i) { y_part[i] = fast_exp(x_part[i]); });
        else if (function == Function::of_difference)
          for_lanes(team, count, [&](std::int64_t i) { y_part[i] = exp_of_difference(x_part[i]); });
        else
          for_lanes(team, count, [&](std::int64_t i) { y_part[i] = fast_tanh(x_part[i]); });
      });
  return out.values();
}

/// Largest error in units of the last place of the correctly rounded result, over `points` in [low,
/// high]. The reference is libm in the next wider format.
template <class T>
double largest_error(Function function, double low, double high, int points) {
  using Wide = std::conditional_t<std::is_same_v<T, float>, double, long double>;
  std::vector<T> x;
  for (int i = 0; i <= points; ++i) x.push_back(static_cast<T>(low + (high - low) * i / points));
  const std::vector<T> y = evaluate(function, x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Wide wide = static_cast<Wide>(x[i]);
    const Wide exact = function == Function::exponential ? std::exp(wide) : std::tanh(wide);
    const T rounded = std::abs(static_cast<T>(exact));
    const T unit = std::nextafter(rounded, std::numeric_limits<T>::infinity()) - rounded;
    if (!std::isfinite(rounded) || !std::isfinite(unit)) continue;
    worst = std::max(worst, static_cast<double>(std::abs(static_cast<Wide>(y[i]) - exact) /
                                                static_cast<Wide>(unit)));
  }
  return worst;
}

/// Bounds of math.hpp for hosts; devices' own functions are within 2 units (CUDA C++ Programming
/// Guide, 17.1).
constexpr double exp_bound = exec_on_host || as_on_device ? 1.1 : 2.0;
constexpr double tanh_bound = exec_on_host || as_on_device ? 3.0 : 2.0;

TEST(Math, ExpOfFloatIsWithinItsBound) {
  EXPECT_LT(largest_error<float>(Function::exponential, -87.33, 88.72, 4000000), exp_bound);
  EXPECT_LT(largest_error<float>(Function::exponential, -1, 1, 2000000), exp_bound);
  EXPECT_LT(largest_error<float>(Function::exponential, -105, -87.33, 400000),
            1.0);  // denormal results
}

TEST(Math, ExpOfDoubleIsWithinItsBound) {
  EXPECT_LT(largest_error<double>(Function::exponential, -708.39, 709.78, 1000000), exp_bound);
  EXPECT_LT(largest_error<double>(Function::exponential, -1, 1, 1000000), exp_bound);
  EXPECT_LT(largest_error<double>(Function::exponential, -747, -708.39, 200000),
            1.0);  // denormal results
}

/// Whether exp_of_difference has the bits of fast_exp from `low` to 0, at −inf and at NaN.
template <class T>
bool difference_has_the_same_bits(double low, int points) {
  std::vector<T> x{-std::numeric_limits<T>::infinity(), std::numeric_limits<T>::quiet_NaN(),
                   T(-0.0)};
  for (int i = 0; i <= points; ++i) x.push_back(static_cast<T>(low - low * i / points));
  const std::vector<T> a = evaluate(Function::exponential, x);
  const std::vector<T> b = evaluate(Function::of_difference, x);
  EXPECT_EQ(b[0], T(0));
  EXPECT_TRUE(std::isnan(b[1]));
  return std::equal(a.begin() + 2, a.end(), b.begin() + 2);
}

TEST(Math, ExpOfDifferenceHasTheBitsOfExp) {
  EXPECT_TRUE(difference_has_the_same_bits<float>(-110, 2000000));
  EXPECT_TRUE(difference_has_the_same_bits<double>(-750, 1000000));
}

TEST(Math, TanhIsWithinItsBound) {
  for (const double end : {1e-30, 1e-3, 1.0, 25.0}) {
    EXPECT_LT(largest_error<float>(Function::hyperbolic_tangent, -end, end, 1000000), tanh_bound)
        << end;
    EXPECT_LT(largest_error<double>(Function::hyperbolic_tangent, -end, end, 300000), tanh_bound)
        << end;
  }
}

template <class T>
class MathLimits : public ::testing::Test {};
TYPED_TEST_SUITE(MathLimits, WideTypes);

TYPED_TEST(MathLimits, ExpHandlesOverflowUnderflowAndNaN) {
  using T = TypeParam;
  constexpr T inf = std::numeric_limits<T>::infinity();
  constexpr T huge = std::numeric_limits<T>::max();
  const T over = std::log(huge) * T(1.0001);
  const T under = std::log(std::numeric_limits<T>::denorm_min()) * T(1.01);
  const auto y = evaluate<T>(Function::exponential, {T(0), -T(0), inf, huge, over, -inf, -huge,
                                                     under, std::numeric_limits<T>::quiet_NaN()});
  EXPECT_EQ(y[0], T(1));
  EXPECT_EQ(y[1], T(1));
  for (int i = 2; i < 5; ++i) EXPECT_EQ(y[static_cast<std::size_t>(i)], inf) << i;
  for (int i = 5; i < 8; ++i) EXPECT_EQ(y[static_cast<std::size_t>(i)], T(0)) << i;
  EXPECT_TRUE(std::isnan(y[8]));
}

TYPED_TEST(MathLimits, TanhHandlesInfinitiesZerosAndNaN) {
  using T = TypeParam;
  constexpr T inf = std::numeric_limits<T>::infinity();
  const auto y =
      evaluate<T>(Function::hyperbolic_tangent,
                  {inf, -inf, T(0), -T(0), std::numeric_limits<T>::quiet_NaN(), T(30), T(-30)});
  EXPECT_EQ(y[0], T(1));
  EXPECT_EQ(y[1], T(-1));
  EXPECT_EQ(y[2], T(0));
  EXPECT_FALSE(std::signbit(y[2]));
  EXPECT_EQ(y[3], T(0));
  EXPECT_TRUE(std::signbit(y[3]));
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], T(1));
  EXPECT_EQ(y[6], T(-1));
}

}  // namespace
}  // namespace trireme::kernels
