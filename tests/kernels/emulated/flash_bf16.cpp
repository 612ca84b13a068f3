#if !defined(__CUDACC__) && !defined(__HIPCC__)  // see test_flash_device.cpp
#include "support/emulated_attention.hpp"

namespace trireme::testing {

template class EmulatedAttention<Bf16, 16>;
template class EmulatedAttention<Bf16, 32>;
template class EmulatedAttention<Bf16, 64>;
template class EmulatedAttention<Bf16, 80>;
template class EmulatedAttention<Bf16, 96>;

}  // namespace trireme::testing

#endif
