#pragma once

#include <trireme/base/check.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Launches of kernels that are templates over a Block (warp_tiles.hpp). Only builds for CUDA can
/// launch them; in other builds, block_kernel_runs() returns false and launch_blocks() fails.
#if defined(KOKKOS_ENABLE_CUDA)

#include <trireme/kernels/cuda_block.hpp>

namespace trireme::kernels {

inline void check_launch(cudaError_t error, const char* what) {
  check(error == cudaSuccess, what, ": ", cudaGetErrorString(error));
}

/// Whether the current device can run Kernel: Kernel was compiled for compute capability 8.0 or
/// newer, and blocks of threads can have `shared_bytes` bytes of shared memory.
template <class Kernel>
bool block_kernel_runs(std::int64_t shared_bytes) {
  constexpr int of_the_block_itself = 1024;
  int device = 0, most = 0;
  cudaFuncAttributes attributes{};
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ==
             cudaSuccess &&
         cudaFuncGetAttributes(&attributes, run_on_cuda<Kernel>) == cudaSuccess &&
         attributes.ptxVersion >= 80 && shared_bytes + of_the_block_itself <= most;
}

inline int processors(const Exec& exec) {
  return exec.cuda_device_prop().multiProcessorCount;
}
inline std::int64_t cache_bytes(const Exec& exec) {
  return exec.cuda_device_prop().l2CacheSize;
}

/// Calls launch(), and reports it to Kokkos' tools as a parallel_for with this label.
template <class Launch>
void with_label(const Exec& exec, const char* label, const Launch& launch) {
  const bool tools = Kokkos::Tools::profileLibraryLoaded();
  std::uint64_t id = 0;
  if (tools)
    Kokkos::Tools::beginParallelFor(label, Kokkos::Tools::Experimental::device_id(exec), &id);
  launch();
  if (tools) Kokkos::Tools::endParallelFor(id);
}

/// Launches `blocks` blocks of threads that call Kernel::run, on exec's stream. Asynchronous.
template <class Kernel>
void launch_blocks(const Exec& exec, const char* label, std::int64_t blocks,
                   const typename Kernel::Arguments& arguments) {
  using Tile = typename Kernel::Tile;
  static const bool prepared = [] {
    constexpr auto bytes = static_cast<int>(Tile::shared_bytes);
    const auto set = [](cudaFuncAttribute attribute, int value) {
      check_launch(cudaFuncSetAttribute(run_on_cuda<Kernel>, attribute, value),
                   "shared memory of a kernel");
    };
    set(cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (bytes > 0)
      set(cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    return true;
  }();
  static_cast<void>(prepared);
  with_label(exec, label, [&] {
    run_on_cuda<Kernel>
        <<<static_cast<unsigned>(blocks), Tile::threads, Tile::shared_bytes, exec.cuda_stream()>>>(
            arguments);
  });
  check_launch(cudaGetLastError(), label);
}

}  // namespace trireme::kernels

#else

namespace trireme::kernels {

template <class Kernel>
bool block_kernel_runs(std::int64_t) {
  return false;
}
inline int processors(const Exec&) {
  return 0;
}
inline std::int64_t cache_bytes(const Exec&) {
  return 0;
}
template <class Launch>
void with_label(const Exec&, const char*, const Launch& launch) {
  launch();
}
template <class Kernel>
void launch_blocks(const Exec&, const char* label, std::int64_t,
                   const typename Kernel::Arguments&) {
  check(false, label, ": kernels for blocks of threads do not run on this device");
}

}  // namespace trireme::kernels

#endif

namespace trireme::kernels {

/// The Grid of flash_launch.hpp for exec's device.
struct ExecGrid {
  const Exec& exec;

  int processors() const { return kernels::processors(exec); }
  std::int64_t cache_bytes() const { return kernels::cache_bytes(exec); }
  template <class Kernel>
  void launch(const char* label, std::int64_t blocks,
              const typename Kernel::Arguments& arguments) const {
    launch_blocks<Kernel>(exec, label, blocks, arguments);
  }
};

}  // namespace trireme::kernels
