#pragma once

#include <trireme/tensor/views.hpp>

namespace trireme {

/// Runs a kernel that captures views and numbers, and fails unless it reads their values. Compilers
/// for devices compile a kernel twice, for the host and for the device. If the two disagree on
/// where a captured view ends, as nvcc 12.9 and 13.0 do about views with [[no_unique_address]]
/// (kokkos/mdspan, pull requests 434 and 435), kernels compute on wrong addresses and bounds,
/// without an error.
void check_kernel_arguments(const Exec& exec);

}  // namespace trireme
