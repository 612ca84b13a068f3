#pragma once

#include <trireme/base/narrow.hpp>
#include <trireme/base/philox.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if !defined(__CUDACC__) && !defined(__HIPCC__) && !defined(SYCL_LANGUAGE_VERSION) && \
    (defined(__clang__) || __GNUC__ >= 12)
#define TRIREME_HAS_SHUFFLES
#endif

/// Transposing copies of blocks. Hosts transpose squares of one vector's lanes in registers.
namespace trireme::kernels {

/// A square has as many rows and columns as a vector has lanes.
template <class A>
struct Square {
#if defined(__AVX512F__)
  static constexpr int bytes = 64;
#elif defined(__AVX__)
  static constexpr int bytes = 32;
#else
  static constexpr int bytes = 16;
#endif
  static constexpr int lanes = bytes / static_cast<int>(sizeof(A));
};

#ifdef TRIREME_HAS_SHUFFLES
namespace detail {

template <class A>
using Vector [[gnu::vector_size(Square<A>::bytes)]] = A;

/// One round exchanges elements of two rows that are `apart` rows apart. Returns the source of lane
/// `lane` of the first or the second row, as an index into both rows concatenated.
template <int apart, bool second>
constexpr int exchanged(int lane, int lanes) {
  if constexpr (second) return (lane & apart) != 0 ? lanes + lane : lane + apart;
  return (lane & apart) != 0 ? lanes + lane - apart : lane;
}

template <class A, int apart, int... lane>
[[gnu::always_inline]] inline void exchange(Vector<A>* rows, std::integer_sequence<int, lane...>) {
  constexpr int lanes = Square<A>::lanes;
#pragma GCC unroll 16
  for (int i = 0; i < lanes; ++i) {
    if ((i & apart) != 0) continue;
    const Vector<A> a = rows[i];
    const Vector<A> b = rows[i + apart];
    rows[i] = __builtin_shufflevector(a, b, exchanged<apart, false>(lane, lanes)...);
    rows[i + apart] = __builtin_shufflevector(a, b, exchanged<apart, true>(lane, lanes)...);
  }
}

/// Eklundh's transposition: log2(lanes) rounds that exchange elements at distances 1, 2, 4 …
template <class A, int apart = 1>
[[gnu::always_inline]] inline void transpose_rows(Vector<A>* rows) {
  if constexpr (apart < Square<A>::lanes) {
    exchange<A, apart>(rows, std::make_integer_sequence<int, Square<A>::lanes>{});
    transpose_rows<A, 2 * apart>(rows);
  }
}

template <class A, class From>
[[gnu::always_inline]] inline Vector<A> load(const From* from) {
  A numbers[Square<A>::lanes];
#pragma omp simd
  for (int l = 0; l < Square<A>::lanes; ++l) numbers[l] = static_cast<A>(from[l]);
  Vector<A> v;
  std::memcpy(&v, numbers, sizeof v);
  return v;
}

/// Stores each lane as bf16, rounded as in bf16_bits.
[[gnu::always_inline]] inline void store_bf16(Bf16* to, Vector<float> v) {
  using Bits = Vector<std::uint32_t>;
  using Halves [[gnu::vector_size(Square<float>::bytes / 2)]] = std::uint16_t;
  Bits bits;
  std::memcpy(&bits, &v, sizeof v);
  const Bits rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  const Bits nan = bits | 0x00400000U;
  const Bits upper = ((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded) >> 16;
  const Halves halves = __builtin_convertvector(upper, Halves);
  std::memcpy(to, &halves, sizeof halves);
}

template <class A, class To>
[[gnu::always_inline]] inline void store(To* to, Vector<A> v) {
  if constexpr (std::is_same_v<To, Bf16>) return store_bf16(to, v);
  A numbers[Square<A>::lanes];
  std::memcpy(numbers, &v, sizeof v);
#pragma omp simd
  for (int l = 0; l < Square<A>::lanes; ++l) to[l] = static_cast<To>(numbers[l]);
}

}  // namespace detail
#endif

/// to[c·to_stride + r] = factor(c) · from[r·from_stride + c] for r < rows, c < columns, computed in
/// type A. The threads of the team share the block. The caller adds the barriers.
template <class A, class To, class From, class Team, class Factor>
KOKKOS_INLINE_FUNCTION void transpose(const Team& team, To* to, std::int64_t to_stride,
                                      const From* from, std::int64_t from_stride, std::int64_t rows,
                                      std::int64_t columns, const Factor& factor) {
  constexpr int n = exec_on_host ? Square<A>::lanes : 1;
  const auto row_squares = static_cast<int>((rows + n - 1) / n);
  const auto column_squares = static_cast<int>((columns + n - 1) / n);
  Kokkos::parallel_for(
      Kokkos::TeamThreadRange(team, row_squares * column_squares), [&](int square) {
        const std::int64_t r0 = std::int64_t{square % row_squares} * n;
        const std::int64_t c0 = std::int64_t{square / row_squares} * n;
        const From* source = from + r0 * from_stride + c0;
        To* target = to + c0 * to_stride + r0;
#ifdef TRIREME_HAS_SHUFFLES
        if constexpr (exec_on_host) {
          if (r0 + n <= rows && c0 + n <= columns) {
            detail::Vector<A> held[n];
            for (int i = 0; i < n; ++i) held[i] = detail::load<A>(source + i * from_stride);
            detail::transpose_rows<A>(held);
            for (int i = 0; i < n; ++i)
              detail::store<A>(target + i * to_stride, held[i] * factor(c0 + i));
            return;
          }
        }
#endif
        for (std::int64_t r = 0; r < n && r0 + r < rows; ++r)
          for (std::int64_t c = 0; c < n && c0 + c < columns; ++c)
            target[c * to_stride + r] =
                static_cast<To>(factor(c0 + c) * static_cast<A>(source[r * from_stride + c]));
      });
}

}  // namespace trireme::kernels
