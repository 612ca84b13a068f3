#include <trireme/kernels/group_kernels.hpp>

#if !defined(TRIREME_HAS_GROUP_KERNELS)
#include <trireme/base/check.hpp>
#include <trireme/base/narrow.hpp>

namespace trireme::kernels {

bool group_kernels_available() {
  return false;
}

template <class T>
void launch_group_forward(void*, const GroupForwardArguments<T>&, const T*, int, bool, int) {
  check(false, "this build has no kernels for sm_90a");
}

template <class T>
void launch_group_delta(void*, const FlashDeltaArguments<T>&, int) {
  check(false, "this build has no kernels for sm_90a");
}
template <class T>
void launch_group_backward(void*, const GroupBackwardArguments<T>&, int, bool) {
  check(false, "this build has no kernels for sm_90a");
}

template void launch_group_delta<Bf16>(void*, const FlashDeltaArguments<Bf16>&, int);
template void launch_group_delta<Fp16>(void*, const FlashDeltaArguments<Fp16>&, int);
template void launch_group_backward<Bf16>(void*, const GroupBackwardArguments<Bf16>&, int, bool);
template void launch_group_backward<Fp16>(void*, const GroupBackwardArguments<Fp16>&, int, bool);
template void launch_group_forward<Bf16>(void*, const GroupForwardArguments<Bf16>&, const Bf16*,
                                         int, bool, int);
template void launch_group_forward<Fp16>(void*, const GroupForwardArguments<Fp16>&, const Fp16*,
                                         int, bool, int);

}  // namespace trireme::kernels

#endif
