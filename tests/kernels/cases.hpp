#pragma once

#include <trireme/base/narrow.hpp>

#include <gtest/gtest.h>

#include <cstdint>

/// Types and sizes for tests of kernels.
namespace trireme::kernels {

using WideTypes = ::testing::Types<float, double>;
using NarrowTypes = ::testing::Types<Bf16, Fp16>;
using AllTypes = ::testing::Types<float, double, Bf16, Fp16>;

inline constexpr std::int64_t small_sizes[] = {1, 13, 128};
inline constexpr double norm_epsilon = 1e-5;

}  // namespace trireme::kernels
