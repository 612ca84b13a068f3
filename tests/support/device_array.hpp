#pragma once

#include <trireme/tensor/fence.hpp>
#include <trireme/tensor/views.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace trireme::testing {

/// An array in the memory of kernels that owns itself, for tests: `DeviceArray<float> x(values);
/// kernel(exec, x.view(2, 3));`
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::int64_t n) : memory_("test array", static_cast<std::size_t>(n)) {}
  DeviceArray(std::int64_t n, T value) : DeviceArray(n) { Kokkos::deep_copy(memory_, value); }

  /// Values are rounded to T.
  template <class U>
  explicit DeviceArray(const std::vector<U>& values)
      : DeviceArray(static_cast<std::int64_t>(values.size())) {
    assign(values);
  }

  template <class U>
  void assign(const std::vector<U>& values) {
    auto mirror = Kokkos::create_mirror_view(memory_);
    for (std::size_t i = 0; i < values.size(); ++i) mirror(i) = static_cast<T>(values[i]);
    Kokkos::deep_copy(memory_, mirror);
  }

  View1<T> view() const { return View1<T>(memory_.data(), memory_.extent(0)); }
  View1<T> view(std::int64_t n0) const { return View1<T>(memory_.data(), size(n0)); }
  View2<T> view(std::int64_t n0, std::int64_t n1) const {
    return View2<T>(memory_.data(), size(n0), size(n1));
  }
  View3<T> view(std::int64_t n0, std::int64_t n1, std::int64_t n2) const {
    return View3<T>(memory_.data(), size(n0), size(n1), size(n2));
  }
  View4<T> view(std::int64_t n0, std::int64_t n1, std::int64_t n2, std::int64_t n3) const {
    return View4<T>(memory_.data(), size(n0), size(n1), size(n2), size(n3));
  }
  T* data() const { return memory_.data(); }

  std::vector<T> to_host() const {
    fence(Exec{}, "test result");
    auto mirror = Kokkos::create_mirror_view(memory_);
    Kokkos::deep_copy(mirror, memory_);
    return std::vector<T>(mirror.data(), mirror.data() + mirror.extent(0));
  }

 private:
  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
  Kokkos::View<T*, Memory> memory_;
};

/// n numbers from N(0, spread^2), rounded to T so that kernel and reference begin with the same.
template <class T>
std::vector<double> random_numbers(std::int64_t n, unsigned seed, double spread = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0, spread);
  std::vector<double> values(static_cast<std::size_t>(n));
  for (double& value : values) value = static_cast<double>(static_cast<T>(normal(generator)));
  return values;
}

/// n numbers uniform in [-1, 1), the same for every T up to its rounding.
template <class T>
std::vector<T> uniform(std::int64_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> distribution(-1.0, 1.0);
  std::vector<T> values(static_cast<std::size_t>(n));
  for (T& value : values) value = static_cast<T>(distribution(generator));
  return values;
}

/// |actual[i] - expected[i]| <= bound(i) for every i; the first that is not is shown.
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
