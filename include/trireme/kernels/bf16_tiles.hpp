#pragma once

#include <trireme/base/bf16_instructions.hpp>
#include <trireme/base/narrow.hpp>

#include <cstdint>

/// Blocks of bf16 products by x86 processors' bf16 instructions, or in plain C++; without Kokkos.
/// Sums are fp32, in an order of k that depends only on the instructions. A band is 32 rows of the
/// left operand or 32 columns of the right operand. A packed band is a sequence of pairs of tiles;
/// a tile has 32 elements of each of 16 lines (rows or columns).
namespace trireme::kernels {

inline constexpr std::int64_t bf16_band = 32;                       ///< rows or columns of a band
inline constexpr std::int64_t bf16_depth = 32;                      ///< elements of a tile's line
inline constexpr std::int64_t bf16_pair = bf16_band * bf16_depth;   ///< elements of two tiles
inline constexpr std::int64_t bf16_square = bf16_band * bf16_band;  ///< sums of a product of bands
/// Pairs of a left band's tiles that stay in the first-level cache while right bands are streamed.
inline constexpr std::int64_t bf16_cached_pairs = 16;

/// Side of a product. A tile of the left operand is 16 rows of 32 elements. A tile of the right
/// operand has a row for each of 16 pairs of k, with the pair's two elements of each of 16 columns.
enum class Bf16Side : std::uint8_t { left, right };

/// Up to 32 lines (rows or columns) of an operand; floats are rounded to bf16. Element k of line i
/// is from[i · stride + k] if `contiguous`, otherwise from[k · stride + i].
template <class E>
struct Bf16Lines {
  const E* from = nullptr;
  std::int64_t stride = 0;
  bool contiguous = true;
  std::int64_t lines = 0;  ///< 1 to 32; the other lines of the band are 0
  std::int64_t depth = 0;
};

/// Writes a band, ⌈depth / 32⌉ pairs of tiles, to `to`, aligned to 64 bytes. E: Bf16 or float.
template <class E>
void pack_bf16(Bf16Instructions instructions, Bf16Side side, Bf16* to, const Bf16Lines<E>& lines);

/// Every thread calls enter_bf16 before, and leave_bf16 after, a sequence of add_bf16_square calls.
void enter_bf16(Bf16Instructions instructions);
void leave_bf16(Bf16Instructions instructions);

/// sums [32, 32], with rows every `stride` elements, = left · right, or += if `continues`. left and
/// right are packed bands of `pairs` pairs of tiles. Bands and rows are aligned to 64 bytes.
void add_bf16_square(Bf16Instructions instructions, float* sums, std::int64_t stride,
                     const Bf16* left, const Bf16* right, std::int64_t pairs, bool continues);

/// c = sums + bias + c, computed in fp32 and rounded to C; without bias if `bias` is null, and + c
/// only if `adds`. c [rows, columns], at most [32, 32], with rows every `stride` elements; sums
/// [32, 32], aligned to 64 bytes; bias [columns]. C: Bf16 or float.
template <class C>
void finish_bf16_square(Bf16Instructions instructions, C* c, std::int64_t stride, std::int64_t rows,
                        std::int64_t columns, const float* sums, bool adds, const Bf16* bias);

/// An operand of products of small fp32 matrices: `lines` rows of a left operand, or columns of a
/// right operand. Element k of line i is from[i · stride + k] if `contiguous`, otherwise from[k ·
/// stride + i].
struct Bf16Operand {
  const float* from;
  std::int64_t stride;
  bool contiguous;
  std::int64_t lines, depth;

  /// Number of elements of the packed operand.
  TRIREME_FUNCTION static constexpr std::int64_t packed_elements(std::int64_t lines,
                                                                 std::int64_t depth) {
    return (lines + bf16_band - 1) / bf16_band * ((depth + bf16_depth - 1) / bf16_depth) *
           bf16_pair;
  }
  /// Rounds the operand to bf16 and writes its bands to `to`, which is aligned to 64 bytes.
  void pack(Bf16Instructions instructions, Bf16Side side, Bf16* to) const;
};

/// A product of two packed operands: c(i,j) = Σ_k left(i,k) right(k,j), or += if `adds`. c(i,j) =
/// c[i · c_stride + j]; c is aligned to 64 bytes, and c_stride is a multiple of 16.
struct Bf16SmallProduct {
  float* c;
  std::int64_t c_stride, rows, columns, depth;
  const Bf16* left;
  const Bf16* right;
  bool adds;

  void operator()(Bf16Instructions instructions) const;
};

}  // namespace trireme::kernels
