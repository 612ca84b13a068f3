#include <trireme/kernels/flash_group_backward.hpp>
#include <trireme/kernels/group_launch.hpp>

#include <type_traits>

namespace trireme::kernels {
namespace {

template <class F>
void with_head_size(int head_size, const F& f) {
  switch (head_size) {
    case 64:
      return f(std::integral_constant<int, 64>());
    case 96:
      return f(std::integral_constant<int, 96>());
    case 128:
      return f(std::integral_constant<int, 128>());
    case 192:
      return f(std::integral_constant<int, 192>());
    case 256:
      return f(std::integral_constant<int, 256>());
    default:
      check(false, "no attention kernel for head size ", head_size);
  }
}

template <class Kernel, class T>
void launch_as(void* stream, GroupBackwardArguments<T> a, int head_size) {
  const int blocks =
      set_group_backward<typename Kernel::Tile>(a, head_size, sm_90a::make_tensor_map);
  sm_90a::launch<Kernel>(stream, "kernels/attention_backward", blocks, a);
}

}  // namespace

template <class T>
void launch_group_delta(void* stream, const FlashDeltaArguments<T>& a, int head_size) {
  with_head_size(head_size, [&]<int size>(std::integral_constant<int, size>) {
    using Delta = FlashDelta<T, size>;
    const std::int64_t blocks = (a.rows + Delta::rows_per_block - 1) / Delta::rows_per_block;
    sm_90a::launch<Delta>(stream, "kernels/attention_delta", static_cast<int>(blocks), a);
  });
}

template <class T>
void launch_group_backward(void* stream, GroupBackwardArguments<T> a, int head_size,
                           bool with_dropout) {
  with_head_size(head_size, [&]<int size>(std::integral_constant<int, size>) {
    if (with_dropout)
      launch_as<GroupBackward<T, size, true>>(stream, a, size);
    else
      launch_as<GroupBackward<T, size, false>>(stream, a, size);
  });
}

#define TRIREME_INSTANTIATE(T)                                                    \
  template void launch_group_delta<T>(void*, const FlashDeltaArguments<T>&, int); \
  template void launch_group_backward<T>(void*, GroupBackwardArguments<T>, int, bool)
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
