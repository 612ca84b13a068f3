#pragma once

#include <cstdint>

namespace trireme::kernels {

/// A tensor of four axes in global memory, and the shape of a box that one instruction copies into
/// shared memory. Axis 0 is contiguous. Elements of a box beyond the tensor become zero.
struct TensorMapShape {
  const void* base = nullptr;    ///< address, a multiple of 16
  std::int64_t sizes[4] = {};    ///< number of two-byte elements along each axis
  std::int64_t strides[3] = {};  ///< byte strides of axes 1, 2 and 3, multiples of 16
  std::uint32_t box[4] = {};     ///< sizes of the box; along axis 0: 64 (one row of 128 bytes)
};

/// The map in the format of the device's Tensor Memory Accelerator (CUtensorMap); tests use the
/// emulator's format. A TensorMap is a member of a kernel's Arguments.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

}  // namespace trireme::kernels
