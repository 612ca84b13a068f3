#pragma once

#include <trireme/tensor/views.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace trireme::testing {

inline std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Device memory owned by a test, filled from and copied to host vectors. Begins on a cache line.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::int64_t n, T value = T(0))
      : DeviceArray(std::vector<T>(static_cast<std::size_t>(n), value)) {}
  explicit DeviceArray(const std::vector<T>& values) : size_(values.size()) {
    const std::size_t bytes = size_ * sizeof(T) + 64;
    memory_ = Kokkos::View<char*, Memory>("test array", bytes);
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    data_ = reinterpret_cast<T*>((address + 63) / 64 * 64);
    assign(values);
  }

  /// Values of another type are rounded to T.
  template <class U>
  explicit DeviceArray(const std::vector<U>& values)
      : DeviceArray(std::vector<T>(values.begin(), values.end())) {}

  void assign(const std::vector<T>& values) { Kokkos::deep_copy(flat(), host(values)); }

  std::vector<T> values() const {
    std::vector<T> result(size_);
    Kokkos::deep_copy(
        Kokkos::View<T*, Kokkos::LayoutRight, Kokkos::HostSpace, Unmanaged>(result.data(), size_),
        View1<const T>(data_, size_));
    return result;
  }

  T* data() const { return data_; }
  View1<T> flat() const { return View1<T>(data_, size_); }
  View2<T> matrix(std::int64_t rows, std::int64_t columns) const {
    return View2<T>(data_, static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
  }
  View3<T> cube(std::int64_t n0, std::int64_t n1, std::int64_t n2) const {
    return View3<T>(data_, static_cast<std::size_t>(n0), static_cast<std::size_t>(n1),
                    static_cast<std::size_t>(n2));
  }

 private:
  static auto host(const std::vector<T>& values) {
    return Kokkos::View<const T*, Kokkos::LayoutRight, Kokkos::HostSpace, Unmanaged>(values.data(),
                                                                                     values.size());
  }

  Kokkos::View<char*, Memory> memory_;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// n values, uniform in [-1, 1); equal for every T up to its rounding.
template <class T>
std::vector<T> uniform(std::int64_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> distribution(-1.0, 1.0);
  std::vector<T> values(static_cast<std::size_t>(n));
  for (T& value : values) value = static_cast<T>(distribution(generator));
  return values;
}

}  // namespace trireme::testing
