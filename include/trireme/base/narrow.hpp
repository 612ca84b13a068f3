#pragma once

#include <trireme/base/function.hpp>
#include <trireme/base/types.hpp>

#include <cstdint>
#include <type_traits>

/// Two-byte floating-point types for storage. Arithmetic is in float: conversion to float is
/// implicit and exact, and conversion from float rounds to the nearest value, with ties to even.
namespace trireme {

namespace detail {

/// Bits of the nearest bf16: the upper half of the bits of a float. A carry out of the mantissa
/// increments the exponent, which rounds correctly. A NaN is not rounded; its quiet bit is set.
TRIREME_FUNCTION std::uint16_t bf16_bits(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  const std::uint32_t nan = bits | 0x00400000U;
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return static_cast<std::uint16_t>((is_nan ? nan : rounded) >> 16);
}

TRIREME_FUNCTION float float_of_bf16(std::uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
}

/// Bits of the nearest IEEE half. For a normal result, the exponent is shifted, and the mantissa is
/// rounded as in bf16_bits. Below 2^-14, adding 0.5 gives the last bit of the sum the weight of the
/// smallest subnormal half, so that the addition itself rounds.
TRIREME_FUNCTION std::uint16_t fp16_bits(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const std::uint32_t moved = magnitude - (112U << 23);
  const std::uint32_t normal = (moved + 0xfffU + ((moved >> 13) & 1U)) >> 13;
  const float sum = __builtin_bit_cast(float, magnitude) + 0.5F;
  const std::uint32_t subnormal = __builtin_bit_cast(std::uint32_t, sum) - 0x3f000000U;
  const std::uint32_t finite = magnitude < (113U << 23) ? subnormal : normal;
  const std::uint32_t large = magnitude >= 0x477ff000U ? 0x7c00U : finite;  // infinity: >= 65520
  const std::uint32_t nan = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
  return static_cast<std::uint16_t>(sign | (magnitude > 0x7f800000U ? nan : large));
}

/// The float that equals a half. Multiplying by 2^112 corrects the exponent.
TRIREME_FUNCTION float float_of_fp16(std::uint16_t half) {
  const auto bits = static_cast<std::uint32_t>(half);
  const std::uint32_t moved = (bits & 0x7fffU) << 13;
  const float scaled = __builtin_bit_cast(float, moved) * 5192296858534827628530496329220096.0F;
  const std::uint32_t special = moved | 0x7f800000U;  // infinity and NaN
  const std::uint32_t magnitude =
      (bits & 0x7c00U) == 0x7c00U ? special : __builtin_bit_cast(std::uint32_t, scaled);
  return __builtin_bit_cast(float, magnitude | (bits & 0x8000U) << 16);
}

}  // namespace detail

/// bfloat16: a float's range, 8 bits of precision.
struct Bf16 {
  std::uint16_t bits;

  Bf16() = default;
  /// Converts a double by way of float, which rounds twice.
  template <class N>
  requires std::is_arithmetic_v<N> TRIREME_FUNCTION explicit Bf16(N x)
      : bits(detail::bf16_bits(static_cast<float>(x))) {}
  TRIREME_FUNCTION operator float() const { return detail::float_of_bf16(bits); }
};

/// IEEE 754 binary16: up to 65504, 11 bits of precision down to 2^-14, gradual underflow.
struct Fp16 {
  std::uint16_t bits;

  Fp16() = default;
  template <class N>
  requires std::is_arithmetic_v<N> TRIREME_FUNCTION explicit Fp16(N x)
      : bits(detail::fp16_bits(static_cast<float>(x))) {}
  TRIREME_FUNCTION operator float() const { return detail::float_of_fp16(bits); }
};

/// Type of the weights in the optimizer and in checkpoints, for a model that computes in `compute`.
inline DType master_type(DType compute) {
  return compute == DType::bf16 || compute == DType::fp16 ? DType::fp32 : compute;
}

template <class T>
inline constexpr bool is_narrow =
    std::is_same_v<std::remove_const_t<T>, Bf16> || std::is_same_v<std::remove_const_t<T>, Fp16>;

template <>
inline constexpr DType dtype_of<Bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<Fp16> = DType::fp16;

}  // namespace trireme
