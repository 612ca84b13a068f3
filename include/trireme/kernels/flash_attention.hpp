#pragma once

#include <trireme/base/kernel_memory.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/flash_problem.hpp>

#include <cstdint>
#include <initializer_list>

/// Attention on tensor cores: supported calls, and launches. Read the kernels in this order:
/// warp_tiles.hpp, flash_problem.hpp, flash_forward.hpp, flash_backward.hpp; then for compute
/// capability 9.0 warpgroup_tiles.hpp, flash_group_forward.hpp, flash_group_backward.hpp.
/// attention.hpp defines the results, and docs/attention.md describes the algorithms. Shapes must
/// be resolved (attention_blocks.hpp).
namespace trireme::kernels {

/// Whether the tensor-core kernels support this call: a head size in FlashHeadSizes, a positive
/// scale, no soft cap, biases or ranges of keys, at least one token and head, rows that begin at
/// multiples of 16 bytes, and sizes that are not too large for the kernels' indices. `strides` are
/// in two-byte elements.
bool flash_takes(const AttentionShape& shape, std::initializer_list<const void*> arrays,
                 std::initializer_list<std::int64_t> strides);

/// Whether the warpgroup forward kernel supports this call: as flash_takes, but with a head size of
/// has_group_forward() (group_kernels.hpp), and without documents.
bool group_forward_takes(const AttentionShape& shape, std::initializer_list<const void*> arrays,
                         std::initializer_list<std::int64_t> strides);

/// Whether the warpgroup backward kernel supports this call: as flash_takes, but with a head size
/// of has_group_backward(), and without documents.
bool group_backward_takes(const AttentionShape& shape, std::initializer_list<const void*> arrays,
                          std::initializer_list<std::int64_t> strides);

/// Whether arrays and their rows begin at multiples of 16 bytes; strides in two-byte elements.
bool rows_of_16_bytes(std::initializer_list<const void*> arrays,
                      std::initializer_list<std::int64_t> strides);

template <class T>
std::int64_t row_stride(View2<T> x) {
  return static_cast<std::int64_t>(x.stride(0));
}

/// The shape and the dropout in the kernels' form. `room_bytes`: bytes of the device's cache for
/// keys and values. `processors`: number of multiprocessors. Both determine how many heads are in
/// flight, and affect only speed. `block_keys`: keys per block of the backward kernel.
FlashShape flash_forward_shape(const AttentionShape& shape, std::int64_t qkv_stride,
                               std::int64_t room_bytes);
FlashShape flash_backward_shape(const AttentionShape& shape, std::int64_t qkv_stride,
                                int processors, int block_keys = 128);
FlashDropout flash_dropout(const AttentionShape& shape, const AttentionDropout& dropout);

/// Whether this build has the tensor-core kernels and this process's device can run them.
bool flash_available();

/// attention_forward by the tensor-core kernel. Requires flash_available() and flash_takes(). This
/// function and the next three are asynchronous, and instantiated for Bf16 and Fp16.
template <class T>
void flash_attention_forward(const Exec& exec, View2<T> o, View3<float> logsumexp,
                             View2<const T> qkv, const AttentionShape& shape,
                             const AttentionDropout& dropout);
/// attention_forward by the warpgroup kernel. Requires group_kernels_available() and
/// group_forward_takes().
template <class T>
void group_attention_forward(const Exec& exec, void* stream, View2<T> o, View3<float> logsumexp,
                             View2<const T> qkv, const AttentionShape& shape,
                             const AttentionDropout& dropout);
/// attention_backward by the tensor-core kernels. Requires flash_available() and flash_takes().
template <class T>
void flash_attention_backward(const Exec& exec, View2<T> dqkv, View2<const T> grad,
                              View2<const T> o, View2<const T> qkv, View3<const float> logsumexp,
                              View1<float> workspace, const AttentionShape& shape,
                              const AttentionDropout& dropout);
/// attention_backward by the warpgroup kernels. Requires group_kernels_available() and
/// group_backward_takes().
template <class T>
void group_attention_backward(const Exec& exec, void* stream, View2<T> dqkv, View2<const T> grad,
                              View2<const T> o, View2<const T> qkv, View3<const float> logsumexp,
                              View1<float> workspace, const AttentionShape& shape,
                              const AttentionDropout& dropout);

}  // namespace trireme::kernels
