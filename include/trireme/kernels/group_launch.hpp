#pragma once

#if defined(__CUDACC__)

#include <trireme/base/check.hpp>
#include <trireme/kernels/cuda_warpgroup.hpp>
#include <trireme/kernels/group_kernels.hpp>

#include <cuda_runtime_api.h>

namespace trireme::kernels::sm_90a {

inline void check_cuda(cudaError_t error, const char* what) {
  check(error == cudaSuccess, what, ": ", cudaGetErrorString(error));
}

/// The shape as a CUtensorMap of the driver.
TensorMap make_tensor_map(const TensorMapShape& shape);

/// Two counters that are zero, which the kernel leaves so. Kernels that run at the same time have
/// different ones.
unsigned* next_counters();

/// Runs Kernel::run for `blocks` blocks.
template <class Kernel>
void launch(void* stream, const char* label, int blocks, const typename Kernel::Arguments& a) {
  using Tile = typename Kernel::Tile;
  constexpr std::uint32_t bytes = Tile::shared_bytes + 1024;  // tiles begin at multiples of 1024
  static const bool prepared = [&] {
    check_cuda(cudaFuncSetAttribute(run_groups_on_cuda<Kernel>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
               label);
    return true;
  }();
  static_cast<void>(prepared);
  run_groups_on_cuda<Kernel>
      <<<static_cast<unsigned>(blocks), Tile::threads, bytes, static_cast<cudaStream_t>(stream)>>>(
          a);
  check_cuda(cudaGetLastError(), label);
}

}  // namespace trireme::kernels::sm_90a

#endif
