#pragma once

#include <trireme/base/narrow.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

/// Types and sizes for tests of kernels.
namespace trireme::kernels {

using WideTypes = ::testing::Types<float, double>;
using NarrowTypes = ::testing::Types<Bf16, Fp16>;
using AllTypes = ::testing::Types<float, double, Bf16, Fp16>;

inline constexpr std::int64_t small_sizes[] = {1, 13, 128};
inline constexpr double norm_epsilon = 1e-5;

/// `values` [rows, columns] with `gap` NaNs after every row.
template <class T>
std::vector<T> with_gaps(const std::vector<T>& values, std::int64_t columns, std::int64_t gap) {
  std::vector<T> out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    out.push_back(values[i]);
    if (static_cast<std::int64_t>(i + 1) % columns == 0)
      out.insert(out.end(), static_cast<std::size_t>(gap),
                 T(std::numeric_limits<float>::quiet_NaN()));
  }
  return out;
}

}  // namespace trireme::kernels
