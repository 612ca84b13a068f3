#if !defined(__CUDACC__) && !defined(__HIPCC__)  // see test_flash_device.cpp
#include "support/emulated_attention.hpp"

namespace trireme::testing {

template class EmulatedAttention<Fp16, 64>;
template class EmulatedAttention<Fp16, 128>;
template class EmulatedAttention<Fp16, 192>;

}  // namespace trireme::testing

#endif
