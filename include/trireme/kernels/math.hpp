#pragma once

#include <trireme/tensor/views.hpp>

#include <Kokkos_Core.hpp>

#include <cmath>
#include <cstdint>
#include <type_traits>

/// exp and tanh that vectorise. On hosts they have no branches, tables or calls, so that a `#pragma
/// omp simd` loop around them becomes vector code; on devices they are the device's own functions.
/// -ffast-math must be off. On hosts, both use the classical reduction x = n ln 2 + r, |r| ≤ ln 2 /
/// 2 (Muller, "Elementary Functions", ch. 11), with polynomials interpolated at Chebyshev nodes.
namespace trireme::kernels {

#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__) || defined(__SYCL_DEVICE_ONLY__)
#define TRIREME_DEVICE_CODE 1
#else
#define TRIREME_DEVICE_CODE 0
#endif

/// sqrt, log, cos and other functions for hosts and devices: `math::sqrt(x)`.
#if KOKKOS_VERSION >= 30700
namespace math = Kokkos;
#else
namespace math = std;
#endif

/// Infinity as a value that device code may use.
template <class T>
inline constexpr T infinity = static_cast<T>(__builtin_inf());

namespace detail {

/// Constants of the reduction. The low bits of x + shift are x, rounded to an integer.
template <class T>
struct ExpConstants;

template <>
struct ExpConstants<float> {
  using Bits = std::uint32_t;
  static constexpr int mantissa = 23;
  static constexpr int bias = 127;
  static constexpr float shift = 12582912.0F;            // 1.5 * 2^23
  static constexpr float lowest = -104.0F;               // exp rounds to 0 below -103.98
  static constexpr float highest = 89.0F;                // exp overflows above 88.73
  static constexpr float ln2_high = 0.693145751953125F;  // 15 bits: n * ln2_high is exact
  static constexpr float ln2_low = 1.4286068203094173e-6F;
  static constexpr float tanh_one = 10.0F;  // tanh rounds to 1 above 9.02

  /// (e^r - 1 - r) / r^2, with an absolute error of 1.7e-10.
  static KOKKOS_FORCEINLINE_FUNCTION float polynomial(float r) {
    float p = 1.989099082e-04F;
    p = p * r + 1.393365000e-03F;
    p = p * r + 8.333310925e-03F;
    p = p * r + 4.166646493e-02F;
    p = p * r + 1.666666668e-01F;
    return p * r + 5.000000013e-01F;
  }
};

template <>
struct ExpConstants<double> {
  using Bits = std::uint64_t;
  static constexpr int mantissa = 52;
  static constexpr int bias = 1023;
  static constexpr double shift = 6755399441055744.0;     // 1.5 * 2^52
  static constexpr double lowest = -746.0;                // exp rounds to 0 below -745.14
  static constexpr double highest = 710.0;                // exp overflows above 709.79
  static constexpr double ln2_high = 0.6931471804855391;  // 33 bits
  static constexpr double ln2_low = 7.440617110012397e-11;
  static constexpr double tanh_one = 20.0;  // tanh rounds to 1 above 19.07

  /// (e^r - 1 - r) / r^2, with an absolute error of 1.6e-19.
  static KOKKOS_FORCEINLINE_FUNCTION double polynomial(double r) {
    double p = 2.09146869680868758e-09;
    p = p * r + 2.51052170047207447e-08;
    p = p * r + 2.75572736431102974e-07;
    p = p * r + 2.75572554002064223e-06;
    p = p * r + 2.48015873255477427e-05;
    p = p * r + 1.98412698748206266e-04;
    p = p * r + 1.38888888888837481e-03;
    p = p * r + 8.33333333332613585e-03;
    p = p * r + 4.16666666666666713e-02;
    p = p * r + 1.66666666666666713e-01;
    return p * r + 5.00000000000000000e-01;
  }
};

/// e^x = (1 + q) 2^n: q keeps the relative accuracy of e^r - 1. `n` is two's complement.
template <class T>
struct Reduced {
  T q;
  typename ExpConstants<T>::Bits n;
};

template <class T>
KOKKOS_FORCEINLINE_FUNCTION Reduced<T> reduce_exp(T x) {
  using C = ExpConstants<T>;
  using Bits = typename C::Bits;
  const T shifted = x * static_cast<T>(1.44269504088896340736) + C::shift;
  const T rounded = shifted - C::shift;
  const T r = (x - rounded * C::ln2_high) - rounded * C::ln2_low;
  const Bits n = __builtin_bit_cast(Bits, shifted) - __builtin_bit_cast(Bits, C::shift);
  return {r + (r * r) * C::polynomial(r), n};
}

/// 2^n for n within the normal range, `n` in two's complement.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION T power_of_two(typename ExpConstants<T>::Bits n) {
  using C = ExpConstants<T>;
  return __builtin_bit_cast(T, (n + C::bias) << C::mantissa);
}

template <class T>
KOKKOS_FORCEINLINE_FUNCTION T host_exp(T x) {
  using C = ExpConstants<T>;
  x = x < C::lowest ? C::lowest : x;  // a NaN passes both tests
  x = x > C::highest ? C::highest : x;
  const Reduced<T> e = reduce_exp(x);
  // n exceeds the normal range at both ends (double: [-1076, 1024]), hence two factors.
  using Signed = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  const auto half = static_cast<typename C::Bits>(static_cast<Signed>(e.n) >> 1);
  return (static_cast<T>(1) + e.q) * power_of_two<T>(half) * power_of_two<T>(e.n - half);
}

/// host_exp for x ≤ 1.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION T host_exp_of_difference(T x) {
  using C = ExpConstants<T>;
  const Reduced<T> e = reduce_exp(x < C::lowest ? C::lowest : x);
  // 2^n may be subnormal. 2^(n + lift) is normal, and the second product rounds once.
  constexpr int lift = C::bias / 2 + 1;
  return (static_cast<T>(1) + e.q) * power_of_two<T>(e.n + lift) *
         power_of_two<T>(static_cast<typename C::Bits>(-lift));
}

/// tanh |x| = t / (t + 2) with t = e^(2|x|) - 1, which has no cancellation.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION T host_tanh(T x) {
  using C = ExpConstants<T>;
  T y = x < 0 ? -x : x;
  y = y > C::tanh_one ? C::tanh_one : y;
  const Reduced<T> e = reduce_exp(y + y);
  const T scale = power_of_two<T>(e.n);
  const T t = scale * e.q + (scale - static_cast<T>(1));
  const T magnitude = t / (t + static_cast<T>(2));
  constexpr typename C::Bits sign = typename C::Bits{1} << (8 * sizeof(T) - 1);
  const auto bits = __builtin_bit_cast(typename C::Bits, magnitude) |
                    (__builtin_bit_cast(typename C::Bits, x) & sign);
  return __builtin_bit_cast(T, bits);
}

}  // namespace detail

/// e^x. On hosts the error is below 1.1 ulp (float and double) for normal results, and at most one
/// unit of the smallest subnormal for subnormal results. e^-inf = 0, e^inf = inf, NaN stays NaN;
/// overflow gives inf, underflow is gradual.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION T fast_exp(T x) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
#if TRIREME_DEVICE_CODE
  return math::exp(x);
#else
  return detail::host_exp(x);
#endif
}

/// fast_exp(x) for a difference x from a maximum, as in a softmax: the same bits for x ≤ 1 and NaN,
/// by fewer instructions on hosts.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION T exp_of_difference(T x) {
#if TRIREME_DEVICE_CODE
  return math::exp(x);
#else
  return detail::host_exp_of_difference(x);
#endif
}

/// tanh x. On hosts the error is below 3 ulp; tanh ±0 = ±0, tanh ±inf = ±1, NaN stays NaN.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION T fast_tanh(T x) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
#if TRIREME_DEVICE_CODE
  return math::tanh(x);
#else
  return detail::host_tanh(x);
#endif
}

}  // namespace trireme::kernels
