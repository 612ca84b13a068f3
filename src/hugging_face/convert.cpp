// Conversion between floating-point types through double, which holds every value of the other
// types exactly. Therefore each conversion rounds once.
#include <trireme/hugging_face/convert.hpp>

#include <trireme/base/check.hpp>

#include <bit>
#include <cmath>
#include <cstring>

namespace trireme::hugging_face {
namespace {

/// Double, Single and Short convert between the bits of a type in memory and double.
struct Double {
  using Bits = std::uint64_t;
  static double load(Bits bits) { return std::bit_cast<double>(bits); }
  static Bits store(double x) { return std::bit_cast<Bits>(x); }
};

struct Single {
  using Bits = std::uint32_t;
  static double load(Bits bits) { return static_cast<double>(std::bit_cast<float>(bits)); }
  static Bits store(double x) { return std::bit_cast<Bits>(static_cast<float>(x)); }
};

/// A 16-bit type with the fields of IEEE 754: sign, exponent, mantissa.
template <int exponent_bits>
struct Short {
  using Bits = std::uint16_t;
  static constexpr int mantissa_bits = 15 - exponent_bits;
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr int special = (1 << exponent_bits) - 1;  ///< exponent of infinities and NaN
  static constexpr Bits infinity = special << mantissa_bits;

  static double load(Bits bits) {
    const int exponent = (bits >> mantissa_bits) & special;
    const std::uint64_t mantissa = bits & ((1 << mantissa_bits) - 1);
    const std::uint64_t sign = std::uint64_t{bits} >> 15 << 63;
    const std::uint64_t moved = mantissa << (52 - mantissa_bits);
    if (exponent == special)
      return std::bit_cast<double>(sign | std::uint64_t{0x7ff} << 52 | moved);
    if (exponent == 0) {
      const double value = std::ldexp(static_cast<double>(mantissa), 1 - bias - mantissa_bits);
      return sign != 0 ? -value : value;
    }
    return std::bit_cast<double>(sign | static_cast<std::uint64_t>(exponent - bias + 1023) << 52 |
                                 moved);
  }

  static Bits store(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const auto sign = static_cast<Bits>(bits >> 63 << 15);
    const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023 + bias;
    const std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
    if (std::isnan(x))  // quiet NaN, with the upper part of the payload
      return static_cast<Bits>(sign | infinity | 1 << (mantissa_bits - 1) |
                               mantissa >> (52 - mantissa_bits));
    if (exponent >= special) return static_cast<Bits>(sign | infinity);
    // Subnormal values store their leading one explicitly, and their exponent field is 0. A carry
    // out of the mantissa increments the exponent, as rounding requires.
    const std::uint64_t whole = exponent > 0 ? static_cast<std::uint64_t>(exponent) << 52 | mantissa
                                             : std::uint64_t{1} << 52 | mantissa;
    const int cut = 52 - mantissa_bits + (exponent > 0 ? 0 : 1 - exponent);
    if (cut > 54) return sign;
    const std::uint64_t kept = whole >> cut;
    const std::uint64_t lost = whole & ((std::uint64_t{1} << cut) - 1);
    const std::uint64_t half = std::uint64_t{1} << (cut - 1);
    const bool up = lost > half || (lost == half && (kept & 1) != 0);
    return static_cast<Bits>(sign | (kept + (up ? 1 : 0)));
  }
};

using Brain = Short<8>;
using Half = Short<5>;

template <class Use>
auto with_type(DType type, const Use& use) {
  switch (type) {
    case DType::fp64:
      return use(Double{});
    case DType::fp32:
      return use(Single{});
    case DType::bf16:
      return use(Brain{});
    case DType::fp16:
      return use(Half{});
    case DType::int64:
    case DType::int32:
    case DType::uint32:
    case DType::uint16:
    case DType::uint8:
      break;
  }
  throw Error(text("cannot convert ", name_of(type), "; expected fp64, fp32, bf16 or fp16"));
}

template <class Type>
typename Type::Bits bits_at(const void* data, std::int64_t at) {
  typename Type::Bits bits;
  std::memcpy(&bits, static_cast<const char*>(data) + at * std::int64_t{sizeof bits}, sizeof bits);
  return bits;
}

template <class From, class To>
std::optional<std::int64_t> convert_all(const void* in, void* out, std::int64_t count) {
  std::optional<std::int64_t> lost;
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = From::load(bits_at<From>(in, i));
    const auto bits = To::store(x);
    std::memcpy(static_cast<char*>(out) + i * std::int64_t{sizeof bits}, &bits, sizeof bits);
    if (!lost && std::isfinite(x) && std::isinf(To::load(bits))) lost = i;
  }
  return lost;
}

}  // namespace

std::optional<std::int64_t> convert(DType from, const void* in, DType to, void* out,
                                    std::int64_t count) {
  if (from == to) {
    if (count > 0) std::memcpy(out, in, static_cast<std::size_t>(count * size_of(from)));
    return std::nullopt;
  }
  return with_type(from, [&]<class From>(From) {
    return with_type(to, [&]<class To>(To) -> std::optional<std::int64_t> {
      return convert_all<From, To>(in, out, count);
    });
  });
}

Nonfinite nonfinite(DType type, const void* data, std::int64_t count) {
  return with_type(type, [&]<class Type>(Type) {
    Nonfinite found;
    for (std::int64_t i = 0; i < count; ++i) {
      if (std::isfinite(Type::load(bits_at<Type>(data, i)))) continue;
      if (found.count++ == 0) found.first = i;
    }
    return found;
  });
}

double number_at(DType type, const void* data, std::int64_t at) {
  return with_type(type, [&]<class Type>(Type) { return Type::load(bits_at<Type>(data, at)); });
}

}  // namespace trireme::hugging_face
