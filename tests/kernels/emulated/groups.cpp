#if !defined(__CUDACC__) && !defined(__HIPCC__)  // see test_flash_device.cpp
#include "support/emulated_group_attention.hpp"

namespace trireme::testing {

template class EmulatedGroupAttention<Bf16, 64>;
template class EmulatedGroupAttention<Bf16, 96>;
template class EmulatedGroupAttention<Bf16, 128>;
template class EmulatedGroupAttention<Bf16, 192>;

}  // namespace trireme::testing

#endif
