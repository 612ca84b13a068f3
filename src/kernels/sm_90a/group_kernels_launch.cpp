// Launches of the warpgroup kernels by head size. Each head size is compiled separately
// (group_kernels_instances.cpp.in).
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

}  // namespace

template <class T>
void launch_group_forward(void* stream, const GroupForwardArguments<T>& a, const T* qkv,
                          int head_size, bool with_dropout, int processors) {
  const sm_90a::StreamGrid grid{stream, processors};
  with_head_size(head_size, [&]<int size>(std::integral_constant<int, size>) {
    group_forward<T, size>(grid, a, qkv, with_dropout);
  });
}

template <class T>
void launch_group_delta(void* stream, const FlashDeltaArguments<T>& a, int head_size) {
  const sm_90a::StreamGrid grid{stream};
  with_head_size(head_size, [&]<int size>(std::integral_constant<int, size>) {
    flash_delta<T, size>(grid, a);
  });
}

template <class T>
void launch_group_backward(void* stream, const GroupBackwardArguments<T>& a, int head_size,
                           bool with_dropout) {
  const sm_90a::StreamGrid grid{stream};
  with_head_size(head_size, [&]<int size>(std::integral_constant<int, size>) {
    group_backward<T, size>(grid, a, with_dropout);
  });
}

#define TRIREME_INSTANTIATE(T)                                                                 \
  template void launch_group_forward<T>(void*, const GroupForwardArguments<T>&, const T*, int, \
                                        bool, int);                                            \
  template void launch_group_delta<T>(void*, const FlashDeltaArguments<T>&, int);              \
  template void launch_group_backward<T>(void*, const GroupBackwardArguments<T>&, int, bool)
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
