#pragma once

#include <trireme/kernels/flash_delta.hpp>
#include <trireme/kernels/flash_group_backward_tile.hpp>
#include <trireme/kernels/flash_group_forward.hpp>

#include <cstdint>

/// Launches of the warpgroup kernels (src/kernels/sm_90a). A stream is a cudaStream_t. A launch
/// fails if this build has no kernel for the head size.
namespace trireme::kernels {

/// Whether this build has the warpgroup kernels and the process's device can run them.
bool group_kernels_available();

constexpr bool has_group_forward(std::int64_t head_size) {
  return head_size == 64 || head_size == 96 || head_size == 128 || head_size == 192 ||
         head_size == 256;
}

constexpr bool has_group_backward(std::int64_t head_size) {
  return head_size == 64 || head_size == 96 || head_size == 128 || head_size == 192 ||
         head_size == 256;
}

/// Launches group_forward of flash_launch.hpp, for Bf16 and Fp16, on `processors` multiprocessors.
template <class T>
void launch_group_forward(void* stream, const GroupForwardArguments<T>& a, const T* qkv,
                          int head_size, bool with_dropout, int processors);

/// Launches flash_delta of flash_launch.hpp.
template <class T>
void launch_group_delta(void* stream, const FlashDeltaArguments<T>& a, int head_size);
/// Launches group_backward of flash_launch.hpp.
template <class T>
void launch_group_backward(void* stream, const GroupBackwardArguments<T>& a, int head_size,
                           bool with_dropout);

}  // namespace trireme::kernels
