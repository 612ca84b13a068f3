#pragma once

#include <trireme/base/types.hpp>

/// Memory that matrix products need besides their operands, in bytes: plan/ counts it, kernels/
/// allocates it.
namespace trireme {

/// Rows, columns and depth of the operand blocks that are widened to fp32 at a time, where no
/// library multiplies two-byte types.
inline constexpr std::int64_t widened_block = 1024;
inline constexpr Bytes widened_workspace_bytes = 3 * widened_block * widened_block * 4;

/// Number of threads among which a device divides the column sums of a matrix: several hundred per
/// multiprocessor of today's largest devices. A constant, so that the order of the sums is the same
/// on all devices.
inline constexpr std::int64_t column_sum_threads = std::int64_t{1} << 17;
/// Bytes of the threads' partial sums, stored as doubles.
inline constexpr Bytes column_sum_bytes = column_sum_threads * 8;

/// Workspace size that NVIDIA recommends for Hopper and Blackwell; 4 MiB are enough for older
/// devices. All devices get the same size, because `trireme check` plans without a device.
inline constexpr Bytes cublaslt_workspace_bytes = Bytes{32} << 20;

}  // namespace trireme
