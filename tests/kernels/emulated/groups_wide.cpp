#if !defined(__CUDACC__) && !defined(__HIPCC__)  // see test_flash_device.cpp
#include "support/emulated_group_attention.hpp"

namespace trireme::testing {

template class EmulatedGroupAttention<Bf16, 256>;
template class EmulatedGroupAttention<Fp16, 128>;
template void EmulatedGroupAttention<Fp16, 64>::forward();
template void EmulatedGroupAttention<Fp16, 192>::forward();

}  // namespace trireme::testing

#endif
