#pragma once

#include <trireme/base/types.hpp>
#include <trireme/kernels/handle.hpp>

/// Measured rates of matrix products. The functions wait for the handle and allocate memory: call
/// them outside the training loop.
namespace trireme::kernels {

/// Best rate, in FLOP/s, of repeated large square products of `type` on this rank, measured for at
/// least 0.1 s on hosts and 0.3 s on devices.
double measure_matmul_peak(const Handle& handle, DType type);

/// measure_matmul_peak() for fp8_product with E4M3 operands and a result of Bf16, without the time
/// to round the operands.
double measure_fp8_peak(const Handle& handle);

}  // namespace trireme::kernels
