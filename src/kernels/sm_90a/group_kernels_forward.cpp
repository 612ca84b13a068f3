#include <trireme/kernels/group_launch.hpp>

namespace trireme::kernels {
namespace {

template <class T, int head_size, bool with_dropout>
void launch_as(void* stream, GroupForwardArguments<T> a, const T* qkv, int processors) {
  using Kernel = GroupForward<T, head_size, with_dropout>;
  using Tile = typename Kernel::Tile;
  set_group_forward_blocks<Tile>(a, processors);
  a.counters = sm_90a::next_counters();
  a.queries = sm_90a::make_tensor_map(heads_map(qkv, a.shape, head_size, Tile::queries));
  a.keys = sm_90a::make_tensor_map(heads_map(qkv, a.shape, head_size, Tile::keys));
  sm_90a::launch<Kernel>(stream, "kernels/attention_forward", a.blocks, a);
}

template <class T, int head_size>
void launch_with(void* stream, const GroupForwardArguments<T>& a, const T* qkv, bool with_dropout,
                 int processors) {
  if (with_dropout)
    launch_as<T, head_size, true>(stream, a, qkv, processors);
  else
    launch_as<T, head_size, false>(stream, a, qkv, processors);
}

}  // namespace

template <class T>
void launch_group_forward(void* stream, GroupForwardArguments<T> a, const T* qkv, int head_size,
                          bool with_dropout, int processors) {
  switch (head_size) {
    case 64:
      return launch_with<T, 64>(stream, a, qkv, with_dropout, processors);
    case 96:
      return launch_with<T, 96>(stream, a, qkv, with_dropout, processors);
    case 128:
      return launch_with<T, 128>(stream, a, qkv, with_dropout, processors);
    case 192:
      return launch_with<T, 192>(stream, a, qkv, with_dropout, processors);
    case 256:
      return launch_with<T, 256>(stream, a, qkv, with_dropout, processors);
    default:
      check(false, "no attention kernel for head size ", head_size);
  }
}

#define TRIREME_INSTANTIATE(T) \
  template void launch_group_forward<T>(void*, GroupForwardArguments<T>, const T*, int, bool, int)
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
