#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace trireme::testing {

/// n values from N(0, spread^2), rounded to T so that kernel and reference have equal inputs.
template <class T>
std::vector<double> random_numbers(std::int64_t n, unsigned seed, double spread = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0, spread);
  std::vector<double> values(static_cast<std::size_t>(n));
  for (double& value : values) value = static_cast<double>(static_cast<T>(normal(generator)));
  return values;
}

/// Expects |actual[i] - expected[i]| <= bound(i) for every i; shows the first violation.
template <class T, class Bound>
void expect_close(const std::vector<T>& actual, const std::vector<double>& expected,
                  const Bound& bound) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::abs(static_cast<double>(actual[i]) - expected[i]);
    ASSERT_LE(difference, bound(i))
        << "element " << i << " is " << actual[i] << ", expected " << expected[i];
  }
}

}  // namespace trireme::testing
