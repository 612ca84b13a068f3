#if !defined(__CUDACC__) && !defined(__HIPCC__)  // see test_flash_device.cpp
#include "support/emulated_attention.hpp"

namespace trireme::testing {

template class EmulatedAttention<Bf16, 112>;
template class EmulatedAttention<Bf16, 128>;
template class EmulatedAttention<Bf16, 160>;
template class EmulatedAttention<Bf16, 256>;

}  // namespace trireme::testing

#endif
