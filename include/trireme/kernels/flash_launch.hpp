#pragma once

#include <trireme/kernels/flash_attention.hpp>
#include <trireme/kernels/flash_backward.hpp>
#include <trireme/kernels/flash_delta.hpp>
#include <trireme/kernels/flash_forward.hpp>

#include <cstdint>

/// Launches of the kernels of attention on tensor cores: arguments, numbers of blocks, order. A
/// Grid runs them: ExecGrid on a device (block_launch.hpp), EmulatedGrid in tests, so that both run
/// the same launches. It has processors(), cache_bytes(), and launch<Kernel>(label, blocks,
/// arguments).
namespace trireme::kernels {

constexpr int blocks_of(std::int64_t sequence, int block) {
  return static_cast<int>((sequence + block - 1) / block);
}

/// Arguments of a forward kernel, without its queries, keys and values.
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

template <class Kernel, class Grid>
void launch_flash_forward(Grid& grid, typename Kernel::Arguments a) {
  a.query_blocks = blocks_of(a.shape.sequence, Kernel::Tile::queries);
  grid.template launch<Kernel>("kernels/attention_forward",
                               std::int64_t{a.shape.batch} * a.shape.heads * a.query_blocks, a);
}

/// flash_attention_forward for one head size.
template <class T, int head_size, class Grid>
void flash_forward(Grid& grid, const FlashForwardArguments<T>& a, bool with_dropout) {
  if (with_dropout)
    launch_flash_forward<FlashForward<T, head_size, true>>(grid, a);
  else
    launch_flash_forward<FlashForward<T, head_size, false>>(grid, a);
}

/// Arguments of the two kernels of the backward pass, which share the workspace. `block_keys`: keys
/// of a block of the second one.
template <class T, class Gradients = FlashBackwardArguments<T>>
struct FlashGradientArguments {
  FlashDeltaArguments<T> delta;
  Gradients gradients;

  FlashGradientArguments(View2<T> dqkv, View2<const T> grad, View2<const T> o, View2<const T> qkv,
                         View3<const float> logsumexp, View1<float> workspace,
                         const AttentionShape& shape, const AttentionDropout& dropout,
                         int processors, int block_keys = 128) {
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

template <class Kernel, class Grid>
void launch_flash_gradients(Grid& grid, typename Kernel::Arguments a) {
  using Tile = typename Kernel::Tile;
  static_assert(Tile::queries >= FlashWorkspace::smallest_block &&
                FlashWorkspace::largest_block % Tile::queries == 0);
  a.query_blocks = blocks_of(a.shape.sequence, Tile::queries);
  a.key_blocks = blocks_of(a.shape.sequence, Tile::keys);
  grid.template launch<Kernel>("kernels/attention_backward",
                               std::int64_t{a.shape.batch} * a.shape.key_value_heads * a.key_blocks,
                               a);
}

/// flash_attention_backward for one head size: computes the deltas and zeroes the counters, then
/// computes the gradients.
template <class T, int head_size, class Grid>
void flash_backward(Grid& grid, const FlashGradientArguments<T>& a, bool with_dropout) {
  using Delta = FlashDelta<T, head_size>;
  grid.template launch<Delta>("kernels/attention_delta",
                              (a.delta.rows + Delta::rows_per_block - 1) / Delta::rows_per_block,
                              a.delta);
  if (with_dropout)
    launch_flash_gradients<FlashBackward<T, head_size, true>>(grid, a.gradients);
  else
    launch_flash_gradients<FlashBackward<T, head_size, false>>(grid, a.gradients);
}

}  // namespace trireme::kernels
