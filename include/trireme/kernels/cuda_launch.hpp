#pragma once

#include <trireme/tensor/views.hpp>

#if defined(KOKKOS_ENABLE_CUDA)

#include <trireme/base/check.hpp>
#include <trireme/kernels/cuda_block.hpp>

#include <cstdint>

namespace trireme::kernels {

inline void check_cuda(cudaError_t error, const char* what) {
  check(error == cudaSuccess, what, ": ", cudaGetErrorString(error));
}

/// Launches Kernel::run on exec's stream, under a label that Kokkos' tools see as one of theirs.
template <class Kernel>
void launch_on_cuda(const Exec& exec, const char* label, std::int64_t blocks,
                    const typename Kernel::Arguments& arguments) {
  using Tile = typename Kernel::Tile;
  static const bool prepared = [] {
    const auto bytes = static_cast<int>(Tile::shared_bytes);
    check_cuda(cudaFuncSetAttribute(run_on_cuda<Kernel>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
               "shared memory of an attention kernel");
    if (bytes > 0)
      check_cuda(
          cudaFuncSetAttribute(run_on_cuda<Kernel>, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared),
          "shared memory of an attention kernel");
    return true;
  }();
  static_cast<void>(prepared);
  std::uint64_t id = 0;
  const bool tools = Kokkos::Tools::profileLibraryLoaded();
  if (tools)
    Kokkos::Tools::beginParallelFor(label, Kokkos::Tools::Experimental::device_id(exec), &id);
  run_on_cuda<Kernel>
      <<<static_cast<unsigned>(blocks), Tile::threads, Tile::shared_bytes, exec.cuda_stream()>>>(
          arguments);
  if (tools) Kokkos::Tools::endParallelFor(id);
  check_cuda(cudaGetLastError(), label);
}

}  // namespace trireme::kernels

#endif
