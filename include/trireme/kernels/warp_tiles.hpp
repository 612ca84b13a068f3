#pragma once

#include <trireme/base/function.hpp>

#include <cstdint>

/// Matrix products of two-byte values by the tensor cores of one warp. Kernels are templates over a
/// `Block`: a block of threads as seen by one of its threads. On NVIDIA devices (cuda_block.hpp) a
/// Block uses the processor's instructions; in tests (tests/support/block_emulator.hpp) a host runs
/// the same kernels and checks their accesses. A Block has
///
///     int thread(), index();                     index of this thread; of the block
///     std::uint32_t shared();                    address of the block's shared memory
///     void barrier();                            barrier of all threads of the block
///     bool any(bool);                            whether any argument in the warp is true
///     T shuffle_xor(T x, int lanes);             x of lane ^ lanes; T is 32 bits wide
///     void multiply_add<T>(c, a, b0, b1);        c += a·b, 16×8 += 16×16 · 16×8, fp32 sums
///     void load_matrices(r, address);            four 8×8 matrices, a row at each lane's address
///     void load_matrices_transposed(r, address); likewise, each matrix transposed
///     std::uint32_t pack<T>(float low, float high);  rounded to the nearest
///     void copy_async<bytes>(to, from, valid);   global to shared, or zeros; 4 or 16 bytes
///     void commit();                             ends a group of copies
///     void wait<n>();                            waits for all groups of copies but the last n
///     void store(address, std::uint32_t);        writes shared memory
///     void load_pair(float (&)[2], address);     reads shared memory
///     void read16(words, p), store16(p, words), store4(p, word);  access global memory
///     void read4(floats, p), write4(p, floats);  access global memory shared with other blocks
///     unsigned take_ticket(unsigned* p);         (*p)++, the same result for the whole block
///     void await(unsigned* p, unsigned value);   waits until *p is value; acquire semantics
///     void release(unsigned* p, unsigned value); sets *p after all writes before the last barrier
///     float exp2(float), log(float), larger(float, float);
///     std::uint32_t unknown(std::uint32_t x);    x, opaque to the compiler
///
/// Fragments have the layout of the PTX ISA, "Matrix Fragments for mma.m16n8k16": lane 4 g + t has
/// rows g and g + 8, columns 2t and 2t + 1 of the sums.
namespace trireme::kernels {

inline constexpr int warp_lanes = 32;

/// Position of a matrix operand in the lanes of load_matrices. `tall`: rows 0 … 15 of 8 columns,
/// then rows 0 … 15 of the next 8 columns; for a left operand, or for two right operands that are
/// stored transposed. `wide`: rows 0 … 7 of two groups of 8 columns, then rows 8 … 15; for two
/// right operands, each stored as [column, depth], or for a left operand that is stored transposed.
enum class Fragment : std::uint8_t { tall, wide };

/// Rows of `columns` two-byte elements in shared memory. Pieces of 16 bytes are permuted within a
/// row, so that the pieces of one column in eight rows are in eight different groups of banks.
template <int columns>
struct SharedRows {
  static constexpr int pieces = columns / 8;
  static_assert(columns % 32 == 0);
  static constexpr std::uint32_t row_bytes = 2 * columns;

  std::uint32_t first = 0;  ///< address, a multiple of 128

  static constexpr TRIREME_FUNCTION std::uint32_t bytes(int rows) {
    return static_cast<std::uint32_t>(rows) * row_bytes;
  }
  /// Consecutive rows begin in the same group of banks if their number of pieces is a multiple of
  /// 8, otherwise alternately in two groups.
  TRIREME_DEVICE_FUNCTION static std::uint32_t swizzle(std::uint32_t row) {
    return pieces % 8 == 0 ? row & 7 : (row >> 1) & 3;
  }
  TRIREME_DEVICE_FUNCTION std::uint32_t at(int row, int piece) const {
    const auto r = static_cast<std::uint32_t>(row);
    return first + r * row_bytes + ((static_cast<std::uint32_t>(piece) ^ swizzle(r)) << 4);
  }
};

/// Addresses of one lane's operands: at(row, piece) is the address for the operand that begins at
/// this row and piece. `row` is a multiple of 8, `piece` is even.
template <int columns>
class FragmentPlaces {
 public:
  using Rows = SharedRows<columns>;

  TRIREME_DEVICE_FUNCTION FragmentPlaces(Rows rows, Fragment kind, int lane) {
    const bool tall = kind == Fragment::tall;
    const int row = tall ? lane % 16 : lane % 8 + lane / 16 * 8;
    const int piece = tall ? lane / 16 : lane / 8 % 2;
    const auto r = static_cast<std::uint32_t>(row);
    first_ = rows.first + r * Rows::row_bytes;
    piece_ = (static_cast<std::uint32_t>(piece) ^ Rows::swizzle(r)) << 4;
  }
  TRIREME_DEVICE_FUNCTION std::uint32_t at(int row, int piece) const {
    return first_ + static_cast<std::uint32_t>(row) * Rows::row_bytes +
           ((static_cast<std::uint32_t>(piece) << 4) ^ piece_);
  }

 private:
  std::uint32_t first_, piece_;
};

/// Returns x, opaque to the compiler, which therefore keeps no values computed from x in registers.
template <class Block>
TRIREME_DEVICE_FUNCTION int unknown(Block& block, int x) {
  return static_cast<int>(block.unknown(static_cast<std::uint32_t>(x)));
}

/// sums[m][n] += Σ_k left(m, k) · right(k, n) over `steps` steps of depth 16; sums are 16×8 tiles.
/// left(k, m, r) loads the four registers of a left tile, right(k, n, r) the registers of the right
/// tiles n and n + 1.
template <class T, int row_tiles, int column_tiles, int steps, class Block, class Left, class Right>
TRIREME_DEVICE_FUNCTION void warp_product(Block& block, float (&sums)[row_tiles][column_tiles][4],
                                          const Left& left, const Right& right) {
  static_assert(column_tiles % 2 == 0);
#pragma unroll
  for (int k = 0; k < steps; ++k) {
    std::uint32_t a[row_tiles][4];
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) left(k, m, a[m]);
#pragma unroll
    for (int n = 0; n < column_tiles; n += 2) {
      std::uint32_t b[4];
      right(k, n, b);
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        block.template multiply_add<T>(sums[m][n], a[m], b[0], b[1]);
        block.template multiply_add<T>(sums[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// Packs sums as the left operand of the next product: the columns of the sums become its depth,
/// and step k consists of the tiles 2k and 2k + 1.
template <class T, int column_tiles, class Block>
TRIREME_DEVICE_FUNCTION void pack_left(Block& block, std::uint32_t (&packed)[column_tiles / 2][4],
                                       const float (&sums)[column_tiles][4]) {
#pragma unroll
  for (int k = 0; k < column_tiles / 2; ++k)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      packed[k][2 * half] = block.template pack<T>(sums[2 * k + half][0], sums[2 * k + half][1]);
      packed[k][2 * half + 1] =
          block.template pack<T>(sums[2 * k + half][2], sums[2 * k + half][3]);
    }
}

/// Transposes the 4×4 words of four lanes whose indices differ by 0 … 3 times `stride`: words[i] of
/// lane j becomes words[j] of lane i, with i and j from 0 to 3.
template <int stride, class Block>
TRIREME_DEVICE_FUNCTION void transpose_words(Block& block, std::uint32_t (&words)[4]) {
  const int place = block.thread() % warp_lanes / stride;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      const bool upper = (place & bit) != 0;
      const std::uint32_t got = block.shuffle_xor(upper ? words[i] : words[i + bit], bit * stride);
      words[i] = upper ? got : words[i];
      words[i + bit] = upper ? words[i + bit] : got;
    }
}

/// Multiplies rows g and g + 8 of the sums by factor[0] and factor[1], rounds them to T, and writes
/// their first `tiles` tiles: row g from `to` on, row g + 8 from `to` + 8 `stride` on, each row if
/// it is valid. Lanes write 16 bytes for four tiles at a time, and 4 bytes for each remaining tile.
template <class T, int column_tiles, class Block>
TRIREME_DEVICE_FUNCTION void write_sums(Block& block, T* to, std::int64_t stride,
                                        const bool (&valid)[2], const float (&factor)[2],
                                        const float (&sums)[column_tiles][4],
                                        int tiles = column_tiles) {
  const int t = block.thread() % 4;
  constexpr int whole = column_tiles / 4 * 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    T* const row = to + 8 * half * stride;
    const auto pair = [&](int n) {
      return block.template pack<T>(sums[n][2 * half] * factor[half],
                                    sums[n][2 * half + 1] * factor[half]);
    };
#pragma unroll
    for (int n = 0; n < whole; n += 4) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = pair(n + i);
      transpose_words<1>(block, words);
      if (valid[half] && n + t < tiles) block.store16(row + 8 * (n + t), words);
    }
#pragma unroll
    for (int n = whole; n < column_tiles; ++n)
      if (valid[half] && n < tiles) block.store4(row + 8 * n + 2 * t, pair(n));
  }
}

/// Copies rows of `columns` elements from global into shared memory, where rows are padded to a
/// multiple of 32 elements. A thread copies the same pieces of every `rows`-th row.
template <int columns, int threads>
class RowCopy {
 public:
  using Rows = SharedRows<(columns + 31) / 32 * 32>;
  static constexpr int lanes = Rows::pieces % 8 == 0 ? 8 : 4;  ///< threads per row
  static constexpr int rows = threads / lanes;                 ///< rows copied at a time
  static_assert(rows % 8 == 0);

  TRIREME_DEVICE_FUNCTION RowCopy(int thread, std::int64_t stride)
      : row_(thread / lanes),
        lane_(thread % lanes),
        from_(row_ * static_cast<int>(stride) + 8 * (thread % lanes)),
        stride_(stride) {
    const auto r = static_cast<std::uint32_t>(row_);
    to_ = r * Rows::row_bytes;
    piece_ = (static_cast<std::uint32_t>(thread % lanes) ^ Rows::swizzle(r)) << 4;
  }

  /// Copies rows 0 … count − 1 asynchronously; rows from row `valid` on become zero.
  template <int count, class T, class Block>
  TRIREME_DEVICE_FUNCTION void copy(Block& block, Rows to, const T* from, int valid) const {
#pragma unroll
    for (int r = 0; r < count; r += rows) {
      const T* row = from + from_ + r * stride_;
      const std::uint32_t place = to.first + to_ + static_cast<std::uint32_t>(r) * Rows::row_bytes;
      if (count % rows != 0 && row_ + r >= count) break;
#pragma unroll
      for (int p = 0; p < Rows::pieces; p += lanes) {
        if (p + lanes > columns / 8 && p + lane_ >= columns / 8) continue;
        block.template copy_async<16>(place + ((static_cast<std::uint32_t>(p) << 4) ^ piece_),
                                      row + 8 * p, row_ + r < valid);
      }
    }
  }

 private:
  int row_, lane_, from_;
  std::int64_t stride_;
  std::uint32_t to_, piece_;
};

}  // namespace trireme::kernels
