#include <trireme/kernels/weight_norm.hpp>
#include <trireme/tensor/fence.hpp>

#include "kernels/cases.hpp"
#include "support/device_array.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

/// Magnitudes and scales of rows against their definitions in double precision.
namespace trireme::kernels {
namespace {

using testing::at;
using testing::DeviceArray;
using testing::uniform;

template <class T>
class WeightNorm : public ::testing::Test {};
TYPED_TEST_SUITE(WeightNorm, AllTypes);

/// Half the distance between neighbouring numbers at 1.
template <class T>
constexpr double half_ulp() {
  if constexpr (std::is_same_v<T, Bf16>) return 0x1p-8;
  if constexpr (std::is_same_v<T, Fp16>) return 0x1p-11;
  return static_cast<double>(std::numeric_limits<Accumulate<T>>::epsilon()) / 2;
}

TYPED_TEST(WeightNorm, ScalesDivideMagnitudesByRowNorms) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  const double acc = half_ulp<Acc>();
  for (const std::int64_t n : {1, 13, 128})
    for (const std::int64_t m : {1, 13, 128}) {
      auto weights = uniform<T>(n * m, 1);
      if (n > 1) std::fill_n(weights.begin(), m, T(0));  // a row without a direction
      const auto given = uniform<T>(n, 2);
      const DeviceArray<T> w(weights), magnitude(given), norm(n);
      const DeviceArray<Acc> squares(n), scale(n);
      row_squares<T>(Exec{}, squares.flat(), w.matrix(n, m));
      row_magnitudes<T>(Exec{}, norm.flat(), squares.flat());
      row_scales<T>(Exec{}, scale.flat(), squares.flat(), squares.flat(), magnitude.flat());
      fence(Exec{}, "test");
      for (std::int64_t i = 0; i < n; ++i) {
        double square = 0;
        for (std::int64_t j = 0; j < m; ++j) {
          const auto x = static_cast<double>(weights[at(i * m + j)]);
          square += x * x;
        }
        const double expected = std::sqrt(square);
        // Sums of m rounded squares, a root, and a quotient.
        const double error = static_cast<double>(m + 4) * acc;
        const auto found = static_cast<double>(norm.values()[at(i)]);
        EXPECT_NEAR(found, expected, (error + half_ulp<T>()) * expected) << n << " × " << m;
        const double one_over = square > 0 ? 1 / expected : 0;
        EXPECT_NEAR(static_cast<double>(squares.values()[at(i)]), one_over, error * one_over);
        const double s = static_cast<double>(given[at(i)]) * one_over;
        EXPECT_NEAR(static_cast<double>(scale.values()[at(i)]), s, 2 * error * std::abs(s));
      }
    }
}

TYPED_TEST(WeightNorm, ScalesAndMultipliesColumns) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  const double rounding = half_ulp<T>() + 4 * half_ulp<Acc>();
  // Half of the smallest number of two bytes.
  const double least = std::is_same_v<T, Fp16> ? 0x1p-25 : 0;
  for (const std::int64_t rows : {1, 13, 128})
    for (const std::int64_t columns : {1, 13, 128}) {
      const auto x = uniform<T>(rows * columns, 1), dy = uniform<T>(rows * columns, 2);
      const auto scale = uniform<Acc>(columns, 3);
      const auto bias = uniform<T>(columns, 4);
      const DeviceArray<T> from(x), gradient(dy), shift(bias), plain(rows * columns);
      const DeviceArray<T> shifted(x), product(x);
      const DeviceArray<Acc> by(scale);
      scale_columns<T>(Exec{}, plain.matrix(rows, columns), from.matrix(rows, columns), by.flat());
      scale_columns<T>(Exec{}, shifted.matrix(rows, columns), shifted.matrix(rows, columns),
                       by.flat(), shift.flat());
      magnitude_terms<T>(Exec{}, product.matrix(rows, columns), gradient.matrix(rows, columns),
                         by.flat());
      fence(Exec{}, "test");
      const auto one = plain.values(), two = shifted.values(), three = product.values();
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        const auto v = static_cast<double>(x[at(i)]),
                   s = static_cast<double>(scale[at(i % columns)]);
        const auto b = static_cast<double>(bias[at(i % columns)]),
                   d = static_cast<double>(dy[at(i)]);
        ASSERT_NEAR(static_cast<double>(one[at(i)]), s * v, rounding * std::abs(s * v) + least);
        ASSERT_NEAR(static_cast<double>(two[at(i)]), s * v + b,
                    rounding * (std::abs(s * v) + std::abs(b)));
        ASSERT_NEAR(static_cast<double>(three[at(i)]), s * v * d,
                    rounding * std::abs(s * v * d) + least);
      }
    }
}

}  // namespace
}  // namespace trireme::kernels
