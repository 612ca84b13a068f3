#include <trireme/kernels/flash_launch.hpp>
#include <trireme/kernels/group_launch.hpp>

namespace trireme::kernels {

using sm_90a::StreamGrid;

#define TRIREME_INSTANTIATE(T)                                                            \
  template void group_forward<T, 256>(const StreamGrid&, const GroupForwardArguments<T>&, \
                                      const T*, bool);                                    \
  template void flash_delta<T, 256>(const StreamGrid&, const FlashDeltaArguments<T>&);    \
  template void group_backward<T, 256>(const StreamGrid&, const GroupBackwardArguments<T>&, bool)
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
