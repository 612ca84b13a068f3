// Launches of the gradient of attention on tensor cores: the arguments, which the kernels for warps
// and those for warpgroups share, and a kernel before them that computes delta and zeroes counters.
#include <trireme/base/check.hpp>
#include <trireme/kernels/block_launch.hpp>
#include <trireme/kernels/flash_attention.hpp>
#include <trireme/kernels/flash_backward.hpp>
#include <trireme/kernels/flash_delta.hpp>
#include <trireme/kernels/group_kernels.hpp>

namespace trireme::kernels {
namespace {

template <class T, int head_size, bool with_dropout>
void launch(const Exec& exec, FlashBackwardArguments<T> a) {
  using Kernel = FlashBackward<T, head_size, with_dropout>;
  using Tile = typename Kernel::Tile;
  static_assert(Tile::queries >= FlashWorkspace::smallest_block &&
                FlashWorkspace::largest_block % Tile::queries == 0);
  a.query_blocks = (a.shape.sequence + Tile::queries - 1) / Tile::queries;
  a.key_blocks = (a.shape.sequence + Tile::keys - 1) / Tile::keys;
  launch_blocks<Kernel>(exec, "kernels/attention_backward",
                        std::int64_t{a.shape.batch} * a.shape.key_value_heads * a.key_blocks, a);
}

/// Computes the deltas and zeroes the counters, then computes the gradients.
template <class T, int head_size>
void launch(const Exec& exec, const FlashDeltaArguments<T>& delta,
            const FlashBackwardArguments<T>& a, bool with_dropout) {
  using Delta = FlashDelta<T, head_size>;
  launch_blocks<Delta>(exec, "kernels/attention_delta",
                       (delta.rows + Delta::rows_per_block - 1) / Delta::rows_per_block, delta);
  if (with_dropout)
    launch<T, head_size, true>(exec, a);
  else
    launch<T, head_size, false>(exec, a);
}

template <class T>
FlashDeltaArguments<T> delta_arguments(View2<const T> grad, View2<const T> o,
                                       View1<float> workspace, const AttentionShape& shape) {
  const FlashWorkspace parts(shape.sizes());
  float* const deltas = workspace.data() + parts.sums;
  return {static_cast<int>(shape.sequence),
          static_cast<int>(shape.heads),
          shape.tokens() * shape.heads,
          deltas,
          grad.data(),
          row_stride(grad),
          o.data(),
          row_stride(o),
          reinterpret_cast<unsigned*>(deltas + parts.deltas),
          parts.counters};
}

/// All but the numbers of blocks.
template <class T>
void set_arguments(FlashBackwardArguments<T>& a, const FlashShape& shape,
                   const FlashDropout& dropout, const FlashDeltaArguments<T>& delta, View2<T> dqkv,
                   View2<const T> qkv, View3<const float> logsumexp, View1<float> workspace) {
  a.shape = shape;
  a.dropout = dropout;
  a.dqkv = dqkv.data();
  a.dqkv_stride = row_stride(dqkv);
  a.grad = delta.grad;
  a.grad_stride = delta.grad_stride;
  a.qkv = qkv.data();
  a.logsumexp = logsumexp.data();
  a.delta = delta.delta;
  a.sums = workspace.data();
  a.ticket = delta.counters;
  a.turns = delta.counters + 1;
}

}  // namespace

template <class T>
void flash_attention_backward(const Exec& exec, View2<T> dqkv, View2<const T> grad,
                              View2<const T> o, View2<const T> qkv, View3<const float> logsumexp,
                              View1<float> workspace, const AttentionShape& shape,
                              const AttentionDropout& dropout) {
  const auto delta = delta_arguments<T>(grad, o, workspace, shape);
  FlashBackwardArguments<T> a;
  set_arguments<T>(a, flash_backward_shape(shape, row_stride(qkv), processors(exec)),
                   flash_dropout(shape, dropout), delta, dqkv, qkv, logsumexp, workspace);
  const bool drops = dropout.rate > 0.0;
  const bool found = with_flash_kernel(
      shape.head_size,
      [&]<int size>(std::integral_constant<int, size>) { launch<T, size>(exec, delta, a, drops); });
  check(found, "no attention kernel for head size ", shape.head_size);
}

template <class T>
void group_attention_backward(const Exec& exec, void* stream, View2<T> dqkv, View2<const T> grad,
                              View2<const T> o, View2<const T> qkv, View3<const float> logsumexp,
                              View1<float> workspace, const AttentionShape& shape,
                              const AttentionDropout& dropout) {
  const auto delta = delta_arguments<T>(grad, o, workspace, shape);
  const auto head_size = static_cast<int>(shape.head_size);
  GroupBackwardArguments<T> a;
  set_arguments<T>(a,
                   flash_backward_shape(shape, row_stride(qkv), processors(exec),
                                        group_backward_keys(head_size)),
                   flash_dropout(shape, dropout), delta, dqkv, qkv, logsumexp, workspace);
  with_label(exec, "kernels/attention_delta",
             [&] { launch_group_delta<T>(stream, delta, head_size); });
  with_label(exec, "kernels/attention_backward",
             [&] { launch_group_backward<T>(stream, a, head_size, dropout.rate > 0.0); });
}

#define TRIREME_INSTANTIATE(T)                                                                     \
  template void group_attention_backward<T>(                                                       \
      const Exec&, void*, View2<T>, View2<const T>, View2<const T>, View2<const T>,                \
      View3<const float>, View1<float>, const AttentionShape&, const AttentionDropout&);           \
  template void flash_attention_backward<T>(const Exec&, View2<T>, View2<const T>, View2<const T>, \
                                            View2<const T>, View3<const float>, View1<float>,      \
                                            const AttentionShape&, const AttentionDropout&)
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
