#pragma once

#include <trireme/base/function.hpp>
#include <trireme/base/types.hpp>

#include <cstdint>

/// One-byte floating-point types for matrix products (Micikevicius et al. 2022, arXiv 2209.05433):
/// E4M3 for weights and activations, E5M2 for gradients. Conversion from float rounds to the
/// nearest value, with ties to even, and saturates at the largest finite value, also for
/// infinities; a NaN stays a NaN. Hosts and devices give the same bits.
namespace trireme {

namespace detail {

/// Bits of the fp8 value nearest to x. `mantissa`: number of stored mantissa bits. `bias`: exponent
/// bias. `largest`: bits of the largest finite value.
template <int mantissa, int bias, std::uint32_t largest>
TRIREME_FUNCTION std::uint8_t fp8_bits(float x) {
  constexpr int dropped = 23 - mantissa;
  constexpr std::uint32_t half = (1U << (dropped - 1)) - 1U;
  // Adding 2^(1 − bias + dropped) gives the last bit of the sum the weight of the smallest
  // subnormal value, so that the addition itself rounds.
  constexpr std::uint32_t aligning = static_cast<std::uint32_t>(127 + 1 - bias + dropped) << 23;
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const std::uint32_t moved = magnitude - (static_cast<std::uint32_t>(127 - bias) << 23);
  const std::uint32_t normal = (moved + half + ((moved >> dropped) & 1U)) >> dropped;
  const float sum = __builtin_bit_cast(float, magnitude) + __builtin_bit_cast(float, aligning);
  const std::uint32_t subnormal = __builtin_bit_cast(std::uint32_t, sum) - aligning;
  const std::uint32_t rounded =
      magnitude < (static_cast<std::uint32_t>(128 - bias) << 23) ? subnormal : normal;
  const std::uint32_t finite = rounded < largest ? rounded : largest;
  const std::uint32_t is = ((bits >> 24) & 0x80U) | finite;
  return static_cast<std::uint8_t>(magnitude > 0x7f800000U ? 0x7fU : is);
}

/// The float that equals the fp8 value with the bits `number`. Multiplying by 2^(127 − bias)
/// corrects the exponent, and makes subnormal values normal floats. `special`: the smallest bit
/// pattern without sign that is an infinity or a NaN.
template <int mantissa, int bias, std::uint32_t special>
TRIREME_FUNCTION float float_of_fp8(std::uint8_t number) {
  constexpr std::uint32_t factor = static_cast<std::uint32_t>(127 + 127 - bias) << 23;
  const auto bits = static_cast<std::uint32_t>(number);
  const std::uint32_t moved = (bits & 0x7fU) << (23 - mantissa);
  const float scaled = __builtin_bit_cast(float, moved) * __builtin_bit_cast(float, factor);
  const std::uint32_t magnitude =
      (bits & 0x7fU) >= special ? moved | 0x7f800000U : __builtin_bit_cast(std::uint32_t, scaled);
  return __builtin_bit_cast(float, magnitude | (bits & 0x80U) << 24);
}

}  // namespace detail

/// Operands of matrix products: type of [precision] compute, fp32, or fp8 in the layers.
enum class Products : std::uint8_t { compute, fp32, fp8 };
/// The maximum that determines a scale: the largest or the newest maximum in the history.
enum class Fp8Algorithm : std::uint8_t { max, most_recent };

EnumWords enum_words(Products);
EnumWords enum_words(Fp8Algorithm);

/// 4 exponent and 3 mantissa bits: up to 448; the smallest normal value is 2^-6, the smallest
/// positive value 2^-9. No infinity, and one NaN per sign.
struct E4M3 {
  std::uint8_t bits;
  static constexpr int largest_exponent = 8;  ///< largest = 1.75 · 2^8

  E4M3() = default;
  TRIREME_FUNCTION explicit E4M3(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    std::uint16_t two;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0F), "f"(x));
    bits = static_cast<std::uint8_t>(two);
#else
    bits = detail::fp8_bits<3, 7, 0x7eU>(x);
#endif
  }
  TRIREME_FUNCTION operator float() const {
    return detail::float_of_fp8<3, 7, 0x7fU>(bits);
  }
};

/// 5 exponent and 2 mantissa bits, as in IEEE 754: up to 57344; the smallest normal value is 2^-14,
/// the smallest positive value 2^-16.
struct E5M2 {
  std::uint8_t bits;
  static constexpr int largest_exponent = 15;  ///< largest = 1.75 · 2^15

  E5M2() = default;
  TRIREME_FUNCTION explicit E5M2(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    std::uint16_t two;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0F), "f"(x));
    bits = static_cast<std::uint8_t>(two);
#else
    bits = detail::fp8_bits<2, 15, 0x7bU>(x);
#endif
  }
  TRIREME_FUNCTION operator float() const {
    return detail::float_of_fp8<2, 15, 0x7cU>(bits);
  }
};

/// Bytes of an operand of `elements` one-byte values, rounded up to a multiple of 64.
inline constexpr Bytes fp8_operand_bytes(std::int64_t elements) {
  return (elements + 63) / 64 * 64;
}

/// Scales are powers of two between 2^-fp8_scale_limit and 2^fp8_scale_limit, so that the product
/// of two scales is a normal float.
inline constexpr int fp8_scale_limit = 62;

/// Exponent of the largest power of two that scales values up to `maximum` > 0 to at most 1.75 ·
/// 2^largest_exponent; at most fp8_scale_limit and at least −fp8_scale_limit.
TRIREME_FUNCTION int fp8_scale_exponent(float maximum, int largest_exponent) {
  const auto bits = __builtin_bit_cast(std::uint32_t, maximum);
  const int exponent = static_cast<int>(bits >> 23) - 127;
  const int most = largest_exponent - exponent - ((bits & 0x7fffffU) > 0x600000U ? 1 : 0);
  const int capped = most < fp8_scale_limit ? most : fp8_scale_limit;
  return capped > -fp8_scale_limit ? capped : -fp8_scale_limit;
}

/// 2^exponent; the result must be a normal float.
TRIREME_FUNCTION float power_of_two(int exponent) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(127 + exponent) << 23);
}

}  // namespace trireme
