#pragma once

#include <cstdint>

/// MXFP4 of the OCP Microscaling Formats Specification 1.0, as two tensors of bytes: blocks of 16
/// bytes with 32 values of 4 bits (E2M1), the even value in the lower bits, and the exponent of
/// each block (E8M0, bias 127).
namespace trireme::hugging_face {

inline constexpr std::int64_t mxfp4_block = 32;  ///< values of a block

/// Writes values [first, first + count) of a tensor. `codes` and `scales` begin with the bytes of
/// value `first`. The values of a block with scale 255 are NaN.
void decode_mxfp4(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t first,
                  std::int64_t count, double* out);

}  // namespace trireme::hugging_face
