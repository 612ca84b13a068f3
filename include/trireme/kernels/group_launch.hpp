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

/// The tensor and its box as a CUtensorMap, which the driver encodes.
TensorMap make_tensor_map(const TensorMapShape& shape);

/// Two counters that are zero, for one launch; the kernel sets them to zero again. 64 consecutive
/// launches have different counters.
unsigned* next_counters();

/// The Grid of flash_launch.hpp for warpgroup kernels on a CUDA stream.
struct StreamGrid {
  void* stream;
  int device_processors = 0;  ///< number of multiprocessors; only forward kernels use it

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

// Defined in flash_launch.hpp. Each head size is a separate compilation unit
// (src/kernels/sm_90a/group_kernels_instances.cpp.in).
template <class T, int head_size, class Grid>
void group_forward(Grid& grid, const GroupForwardArguments<T>& a, const T* qkv, bool with_dropout);
template <class T, int head_size, class Grid>
void flash_delta(Grid& grid, const FlashDeltaArguments<T>& a);
template <class T, int head_size, class Grid>
void group_backward(Grid& grid, const GroupBackwardArguments<T>& a, bool with_dropout);

}  // namespace trireme::kernels

#endif
