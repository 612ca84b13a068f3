#include <trireme/base/philox.hpp>
#include <trireme/kernels/arithmetic.hpp>
#include <trireme/tensor/fence.hpp>

#include "support/device_array.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace trireme::kernels {
namespace {

using namespace trireme::testing;

/// The timed function must be what its name says: a loop that a compiler removed would be fast.
template <class Real>
void expect_results(Arithmetic kind, double (*expected)(double)) {
  const Exec exec;
  const auto input = uniform<Real>(arithmetic_elements, 1);
  const DeviceArray<Real> x(input);
  const DeviceArray<Real> y(arithmetic_elements, Real(-7));
  arithmetic_work<Real>(exec, y.flat(), x.flat(), kind, 3);
  fence(exec, "test");
  const auto found = y.values();
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected(static_cast<double>(input[i])), 1e-6) << i;
}

TEST(ArithmeticWork, ComputesTheMeasuredFunctions) {
  const auto sum_of_both = [](double x) { return std::cos(x) + std::sin(x); };
  expect_results<float>(Arithmetic::exponential, std::exp);
  expect_results<double>(Arithmetic::exponential, std::exp);
  expect_results<float>(Arithmetic::hyperbolic_tangent, std::tanh);
  expect_results<double>(Arithmetic::hyperbolic_tangent, std::tanh);
  expect_results<float>(Arithmetic::error_function, std::erf);
  expect_results<double>(Arithmetic::error_function, std::erf);
  expect_results<float>(Arithmetic::sine_and_cosine, sum_of_both);
  expect_results<double>(Arithmetic::sine_and_cosine, sum_of_both);
}

TEST(ArithmeticWork, RandomWordsMatchDropout) {
  const Exec exec;
  const DeviceArray<float> x(arithmetic_elements, 0.0F), y(arithmetic_elements, -7.0F);
  arithmetic_work<float>(exec, y.flat(), x.flat(), Arithmetic::random_word, 1);
  fence(exec, "test");
  const auto found = y.values();
  const RandomKey key{1, Purpose::dropout, 0, 0};
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_EQ(found[i], static_cast<float>(philox(key, i / 4).w[i % 4] & 1U)) << i;
}

}  // namespace
}  // namespace trireme::kernels
