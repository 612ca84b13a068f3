#pragma once

#include <trireme/base/types.hpp>

/// Memory that matrix products take beside their operands, in bytes: plan/ counts with it, kernels/
/// allocates it.
namespace trireme {

/// Rows, columns and depth of the operands that are widened to fp32 at a time where no library
/// multiplies narrow ones.
inline constexpr std::int64_t widened_block = 1024;
inline constexpr Bytes widened_workspace_bytes = 3 * widened_block * widened_block * 4;

/// Threads among which a device divides the sums of a matrix's columns: some hundred for each of
/// the multiprocessors of today's largest. A constant, so that the order of the sums is the same on
/// all devices.
inline constexpr std::int64_t column_sum_threads = std::int64_t{1} << 17;
/// Their partial sums, as doubles.
inline constexpr Bytes column_sum_bytes = column_sum_threads * 8;

/// What NVIDIA recommends for Hopper and Blackwell; 4 MiB would do before. One size for all,
/// because `trireme check` plans where no device is.
inline constexpr Bytes cublaslt_workspace_bytes = Bytes{32} << 20;

}  // namespace trireme
