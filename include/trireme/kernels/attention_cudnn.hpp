#pragma once

#include <trireme/kernels/attention.hpp>

/// Attention by cuDNN (cudnn_attention.hpp) on Kokkos' views. Forward and backward return false,
/// with nothing queued, for calls that cuDNN does not support: windows, dropout, parts of groups of
/// heads, arrays or rows that do not begin at multiples of 16 bytes, or no kernel within the
/// workspace. shape must be resolved.
namespace trireme::kernels {

template <class T>
bool attention_forward_cudnn(const Handle& handle, View2<T> o, View3<float> logsumexp,
                             View2<const T> qkv, const AttentionShape& shape,
                             const AttentionDropout& dropout);
template <class T>
bool attention_backward_cudnn(const Handle& handle, View2<T> dqkv, View2<const T> grad,
                              View2<const T> o, View2<const T> qkv, View3<const float> logsumexp,
                              View1<float> workspace, const AttentionShape& shape,
                              const AttentionDropout& dropout);

}  // namespace trireme::kernels
