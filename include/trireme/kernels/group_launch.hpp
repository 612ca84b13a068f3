#pragma once

#if defined(__CUDACC__)

#include <trireme/base/check.hpp>
#include <trireme/kernels/cuda_warpgroup.hpp>
#include <trireme/kernels/group_kernels.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>

namespace trireme::kernels::sm_90a {

inline void check_cuda(cudaError_t error, const char* what) {
  check(error == cudaSuccess, what, ": ", cudaGetErrorString(error));
}

/// The shape as the driver's CUtensorMap.
TensorMap make_tensor_map(const TensorMapShape& shape);

/// Two counters that are zero; the kernel resets them. Concurrent kernels have different counters.
unsigned* next_counters();

/// A device's stream, as flash_launch.hpp requires it.
struct StreamGrid {
  void* stream;
  int device_processors = 0;  ///< for the forward kernels

  int processors() const { return device_processors; }
  TensorMap tensor_map(const TensorMapShape& shape) const { return make_tensor_map(shape); }
  unsigned* counters() const { return next_counters(); }

  template <class Kernel>
  void launch(const char* label, std::int64_t blocks, const typename Kernel::Arguments& a) const {
    using Tile = typename Kernel::Tile;
    constexpr std::uint32_t bytes = Tile::shared_bytes + 1024;  // tiles begin at multiples of 1024
    static const bool prepared = [&] {
      check_cuda(cudaFuncSetAttribute(run_groups_on_cuda<Kernel>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                 label);
      return true;
    }();
    static_cast<void>(prepared);
    run_groups_on_cuda<Kernel><<<static_cast<unsigned>(blocks), Tile::threads, bytes,
                                 static_cast<cudaStream_t>(stream)>>>(a);
    check_cuda(cudaGetLastError(), label);
  }
};

}  // namespace trireme::kernels::sm_90a

namespace trireme::kernels {

// Defined in flash_launch.hpp; every head size is a separate compilation unit
// (sm_90a/group_kernels_instances.cpp.in).
template <class T, int head_size, class Grid>
void group_forward(Grid& grid, const GroupForwardArguments<T>& a, const T* qkv, bool with_dropout);
template <class T, int head_size, class Grid>
void flash_delta(Grid& grid, const FlashDeltaArguments<T>& a);
template <class T, int head_size, class Grid>
void group_backward(Grid& grid, const GroupBackwardArguments<T>& a, bool with_dropout);

}  // namespace trireme::kernels

#endif
