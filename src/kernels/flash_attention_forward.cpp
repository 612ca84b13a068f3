#include <trireme/base/check.hpp>
#include <trireme/kernels/block_launch.hpp>
#include <trireme/kernels/flash_attention.hpp>
#include <trireme/kernels/flash_backward_tile.hpp>
#include <trireme/kernels/flash_forward.hpp>
#include <trireme/kernels/group_kernels.hpp>

#include <algorithm>

namespace trireme::kernels {

bool flash_available() {
  constexpr std::uint32_t largest =
      std::max({FlashForwardTile<128>::shared_bytes, FlashBackwardTile<128>::shared_bytes,
                FlashBackwardTile<160>::shared_bytes});
  static const bool available =
      block_kernel_runs<FlashForward<Bf16, 64, false>>(std::int64_t{largest});
  return available;
}

namespace {

template <class T, int head_size, bool with_dropout>
void launch(const Exec& exec, FlashForwardArguments<T> a) {
  using Kernel = FlashForward<T, head_size, with_dropout>;
  constexpr int queries = Kernel::Tile::queries;
  a.query_blocks = (a.shape.sequence + queries - 1) / queries;
  launch_blocks<Kernel>(exec, "kernels/attention_forward",
                        std::int64_t{a.shape.batch} * a.shape.heads * a.query_blocks, a);
}

template <class T, int head_size>
void launch(const Exec& exec, const FlashForwardArguments<T>& a, bool with_dropout) {
  if (with_dropout)
    launch<T, head_size, true>(exec, a);
  else
    launch<T, head_size, false>(exec, a);
}

}  // namespace

template <class T>
void flash_attention_forward(const Exec& exec, View2<T> o, View3<float> logsumexp,
                             View2<const T> qkv, const AttentionShape& shape,
                             const AttentionDropout& dropout) {
  FlashForwardArguments<T> a;
  a.shape = flash_forward_shape(shape, row_stride(qkv), cache_bytes(exec) / 3);
  a.dropout = flash_dropout(shape, dropout);
  a.o = o.data();
  a.o_stride = row_stride(o);
  a.logsumexp = logsumexp.data();
  a.qkv = qkv.data();
  const bool drops = dropout.rate > 0.0;
  const bool found = with_flash_kernel(
      shape.head_size,
      [&]<int size>(std::integral_constant<int, size>) { launch<T, size>(exec, a, drops); });
  check(found, "no attention kernel for head size ", shape.head_size);
}

template <class T>
void group_attention_forward(const Exec& exec, void* stream, View2<T> o, View3<float> logsumexp,
                             View2<const T> qkv, const AttentionShape& shape,
                             const AttentionDropout& dropout) {
  GroupForwardArguments<T> a;
  a.shape = flash_forward_shape(shape, row_stride(qkv), cache_bytes(exec) / 2);
  a.dropout = flash_dropout(shape, dropout);
  a.o = o.data();
  a.o_stride = row_stride(o);
  a.logsumexp = logsumexp.data();
  with_label(exec, "kernels/attention_forward", [&] {
    launch_group_forward<T>(stream, a, qkv.data(), static_cast<int>(shape.head_size),
                            dropout.rate > 0.0, processors(exec));
  });
}

#define TRIREME_INSTANTIATE(T)                                                                  \
  template void group_attention_forward<T>(const Exec&, void*, View2<T>, View3<float>,          \
                                           View2<const T>, const AttentionShape&,               \
                                           const AttentionDropout&);                            \
  template void flash_attention_forward<T>(const Exec&, View2<T>, View3<float>, View2<const T>, \
                                           const AttentionShape&, const AttentionDropout&)
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
