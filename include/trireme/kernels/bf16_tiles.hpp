#pragma once

#include <trireme/base/bf16_instructions.hpp>
#include <trireme/base/narrow.hpp>

#include <cstdint>

/// Blocks of bf16 products in the instructions of x86 processors, without Kokkos. Sums are fp32:
/// of 32 products at a time, in the order of k, so that the bits of an element depend only on its
/// operands and the instructions. 32 rows of the left operand, or 32 columns of the right one, are
/// a band. A packed band is a sequence of pairs of tiles: 16 lines of 32 numbers each.
namespace trireme::kernels {

inline constexpr std::int64_t bf16_band = 32;                       ///< rows or columns of a band
inline constexpr std::int64_t bf16_depth = 32;                      ///< numbers of a line in a tile
inline constexpr std::int64_t bf16_pair = bf16_band * bf16_depth;   ///< elements of two tiles
inline constexpr std::int64_t bf16_square = bf16_band * bf16_band;  ///< sums of two bands' product
/// Pairs of tiles of a left band that stay in the first-level cache while right bands pass.
inline constexpr std::int64_t bf16_cached_pairs = 16;

/// Side of a product: a tile of the left operand is 16 rows of 32 elements, one of the right
/// operand is 16 pairs of k, each with the two elements of 16 columns.
enum class Bf16Side : std::uint8_t { left, right };

/// Up to 32 rows or columns of an operand, which are rounded to bf16 if they are floats. Element k
/// of row or column i is from[i · stride + k] if k is contiguous, otherwise from[k · stride + i].
template <class E>
struct Bf16Lines {
  const E* from = nullptr;
  std::int64_t stride = 0;
  bool contiguous = true;
  std::int64_t lines = 0;  ///< 1 to 32; the band's others are 0
  std::int64_t depth = 0;
};

/// Writes a band: ⌈depth / 32⌉ pairs of tiles, aligned to 64 bytes. E: Bf16 or float.
template <class E>
void pack_bf16(Bf16Instructions instructions, Bf16Side side, Bf16* to, const Bf16Lines<E>& lines);

/// Every thread calls this before a sequence of add_bf16_square, and leave_bf16 after it.
void enter_bf16(Bf16Instructions instructions);
void leave_bf16(Bf16Instructions instructions);

/// sums [32, 32] = left · right, or += if it `continues`: packed bands of `pairs` pairs of tiles.
/// Rows of sums begin every `stride` elements. All are aligned to 64 bytes.
void add_bf16_square(Bf16Instructions instructions, float* sums, std::int64_t stride,
                     const Bf16* left, const Bf16* right, std::int64_t pairs, bool continues);

/// c [rows, columns] = sums, + c if it `adds`, + bias [columns] unless null; rounded once. At most
/// 32 rows and columns. C: Bf16 or float.
template <class C>
void finish_bf16_square(Bf16Instructions instructions, C* c, std::int64_t stride, std::int64_t rows,
                        std::int64_t columns, const float* sums, bool adds, const Bf16* bias);

/// A product of small fp32 matrices, whose operands are rounded to bf16: c(i,j) = or += Σ_k a(i,k)
/// b(k,j), with a(i,k) = a[i · a_row + k · a_depth], of which one stride is 1, b(k,j) = b[k ·
/// b_stride + j] and c(i,j) = c[i · c_stride + j]. c is aligned to 64 bytes, c_stride a multiple of
/// 16.
struct Bf16SmallProduct {
  float* c;
  std::int64_t c_stride, rows, columns, depth;
  const float* a;
  std::int64_t a_row, a_depth;
  const float* b;
  std::int64_t b_stride;
  bool adds;

  /// Elements of `packed` of operator().
  TRIREME_FUNCTION static constexpr std::int64_t packed_elements(std::int64_t rows,
                                                                 std::int64_t columns,
                                                                 std::int64_t depth) {
    const std::int64_t bands =
        (rows + bf16_band - 1) / bf16_band + (columns + bf16_band - 1) / bf16_band;
    return bands * ((depth + bf16_depth - 1) / bf16_depth) * bf16_pair;
  }
  void operator()(Bf16Instructions instructions, Bf16* packed) const;
};

}  // namespace trireme::kernels
