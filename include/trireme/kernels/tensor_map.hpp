#pragma once

#include <cstdint>

namespace trireme::kernels {

/// A tensor of four axes in global memory, and a box of it that one instruction copies into shared
/// memory. Axis 0 is contiguous. What a box has beyond the tensor becomes zero.
struct TensorMapShape {
  const void* base = nullptr;    ///< a multiple of 16
  std::int64_t sizes[4] = {};    ///< numbers of two bytes along each axis
  std::int64_t strides[3] = {};  ///< bytes from one index of axes 1, 2 and 3 to the next: of 16
  std::uint32_t box[4] = {};     ///< axis 0: 64 numbers (one row of 128 bytes)
};

/// The same as the device's copy engine reads it (CUtensorMap), in tests as the emulator does. It
/// is a member of a kernel's Arguments.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

}  // namespace trireme::kernels
