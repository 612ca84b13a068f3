#pragma once

#include <trireme/kernels/block_launch.hpp>
#include <trireme/kernels/flash_launch.hpp>

/// The launches on a device for one head size, for Bf16 and Fp16. Each head size has a file,
/// because it takes minutes to compile.
#define TRIREME_FLASH_INSTANCES(K)                                                                 \
  template void flash_forward<Bf16, K>(const ExecGrid&, const FlashForwardArguments<Bf16>&, bool); \
  template void flash_forward<Fp16, K>(const ExecGrid&, const FlashForwardArguments<Fp16>&, bool); \
  template void flash_backward<Bf16, K>(const ExecGrid&, const FlashDeltaArguments<Bf16>&,         \
                                        const FlashBackwardArguments<Bf16>&, bool);                \
  template void flash_backward<Fp16, K>(const ExecGrid&, const FlashDeltaArguments<Fp16>&,         \
                                        const FlashBackwardArguments<Fp16>&, bool)
