#include <trireme/base/check.hpp>
#include <trireme/kernels/block_launch.hpp>
#include <trireme/kernels/flash_arguments.hpp>

#include <algorithm>

namespace trireme::kernels {

bool flash_available() {
  constexpr std::uint32_t largest = []<int... sizes>(std::integer_sequence<int, sizes...>) {
    return std::max(
        {FlashForwardTile<sizes>::shared_bytes..., FlashBackwardTile<sizes>::shared_bytes...});
  }
  (FlashHeadSizes());
  static const bool available = block_kernel_runs<FlashDelta<Bf16, 64>>(std::int64_t{largest});
  return available;
}

template <class T>
void flash_attention_forward(const Exec& exec, View2<T> o, View3<float> logsumexp,
                             View2<const T> qkv, const AttentionShape& shape,
                             const AttentionDropout& dropout) {
  const ExecGrid grid{exec};
  const auto a = flash_forward_arguments<T>(o, logsumexp, qkv, shape, dropout, grid.cache_bytes());
  const bool found =
      with_flash_kernel(shape.head_size, [&]<int size>(std::integral_constant<int, size>) {
        flash_forward<T, size>(grid, a, dropout.rate > 0.0);
      });
  check(found, "no attention kernel for head size ", shape.head_size);
}

template <class T>
void group_attention_forward(const Exec& exec, void* stream, View2<T> o, View3<float> logsumexp,
                             View2<const T> qkv, const AttentionShape& shape,
                             const AttentionDropout& dropout) {
  const auto a = group_forward_arguments<T>(o, logsumexp, qkv, shape, dropout, cache_bytes(exec));
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
