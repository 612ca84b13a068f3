#include <trireme/kernels/block_launch.hpp>
#include <trireme/kernels/flash_launch.hpp>

namespace trireme::kernels {

#define TRIREME_INSTANTIATE(T)                                                                 \
  template void flash_forward<T, 128>(const ExecGrid&, const FlashForwardArguments<T>&, bool); \
  template void flash_backward<T, 128>(const ExecGrid&, const FlashDeltaArguments<T>&,         \
                                       const FlashBackwardArguments<T>&, bool)
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
