#pragma once

#include <trireme/kernels/flash_attention.hpp>
#include <trireme/kernels/flash_backward.hpp>
#include <trireme/kernels/flash_forward.hpp>
#include <trireme/kernels/group_kernels.hpp>

#include <cstdint>

/// Makes the arguments of the tensor-core attention kernels from the arguments of a call. The
/// launches of flash_launch.hpp add numbers of blocks, counters and tensor maps.
namespace trireme::kernels {

/// Arguments of a forward kernel, except queries, keys and values.
template <class Arguments, class T>
Arguments forward_arguments(View2<T> o, View3<float> logsumexp, View2<const T> qkv,
                            const AttentionShape& shape, const AttentionDropout& dropout,
                            std::int64_t room_bytes) {
  Arguments a;
  a.shape = flash_forward_shape(shape, row_stride(qkv), room_bytes);
  a.dropout = flash_dropout(shape, dropout);
  a.o = o.data();
  a.o_stride = row_stride(o);
  a.logsumexp = logsumexp.data();
  return a;
}

template <class T>
FlashForwardArguments<T> flash_forward_arguments(View2<T> o, View3<float> logsumexp,
                                                 View2<const T> qkv, const AttentionShape& shape,
                                                 const AttentionDropout& dropout,
                                                 std::int64_t cache_bytes) {
  auto a = forward_arguments<FlashForwardArguments<T>>(o, logsumexp, qkv, shape, dropout,
                                                       cache_bytes / 3);
  a.qkv = qkv.data();
  return a;
}

/// Arguments of the warpgroup forward kernel, without its tensor maps.
template <class T>
GroupForwardArguments<T> group_forward_arguments(View2<T> o, View3<float> logsumexp,
                                                 View2<const T> qkv, const AttentionShape& shape,
                                                 const AttentionDropout& dropout,
                                                 std::int64_t cache_bytes) {
  return forward_arguments<GroupForwardArguments<T>>(o, logsumexp, qkv, shape, dropout,
                                                     cache_bytes / 2);
}

/// Arguments of the two kernels of the backward pass, for delta and for the gradients.
/// `block_keys`: keys per block of the second kernel.
template <class T, class Gradients = FlashBackwardArguments<T>>
struct FlashGradientArguments {
  FlashDeltaArguments<T> delta;
  Gradients gradients;

  FlashGradientArguments(View2<T> dqkv, View2<const T> grad, View2<const T> o, View2<const T> qkv,
                         View3<const float> logsumexp, View1<float> workspace,
                         const AttentionShape& shape, const AttentionDropout& dropout,
                         int processors, int block_keys) {
    const FlashWorkspace parts(shape.sizes());
    float* const deltas = workspace.data() + parts.sums;
    auto* const counters = reinterpret_cast<unsigned*>(deltas + parts.deltas);
    delta = {static_cast<int>(shape.sequence),
             static_cast<int>(shape.heads),
             shape.tokens() * shape.heads,
             deltas,
             grad.data(),
             row_stride(grad),
             o.data(),
             row_stride(o),
             counters,
             parts.counters};
    Gradients& a = gradients;
    a.shape = flash_backward_shape(shape, row_stride(qkv), processors, block_keys);
    a.dropout = flash_dropout(shape, dropout);
    a.dqkv = dqkv.data();
    a.dqkv_stride = row_stride(dqkv);
    a.grad = grad.data();
    a.grad_stride = row_stride(grad);
    a.qkv = qkv.data();
    a.logsumexp = logsumexp.data();
    a.delta = deltas;
    a.sums = workspace.data();
    a.ticket = counters;
    a.turns = counters + 1;
  }
};

/// Arguments of the warpgroup backward kernels, without their tensor maps.
template <class T>
struct GroupGradientArguments : FlashGradientArguments<T, GroupBackwardArguments<T>> {
  GroupGradientArguments(View2<T> dqkv, View2<const T> grad, View2<const T> o, View2<const T> qkv,
                         View3<const float> logsumexp, View1<float> workspace,
                         const AttentionShape& shape, const AttentionDropout& dropout,
                         int processors)
      : FlashGradientArguments<T, GroupBackwardArguments<T>>(dqkv, grad, o, qkv, logsumexp,
                                                             workspace, shape, dropout, processors,
                                                             group_backward_keys(shape.head_size)) {
  }
};

// Defined in flash_launch.hpp. For devices, each head size is a separate compilation unit
// (flash_attention_instances.cpp.in).
template <class T, int head_size, class Grid>
void flash_forward(Grid& grid, const FlashForwardArguments<T>& a, bool with_dropout);
template <class T, int head_size, class Grid>
void flash_backward(Grid& grid, const FlashDeltaArguments<T>& delta,
                    const FlashBackwardArguments<T>& a, bool with_dropout);

}  // namespace trireme::kernels
