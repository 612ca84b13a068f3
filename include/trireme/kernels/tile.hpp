#pragma once

#include <trireme/base/philox.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Prefix of loops over a register tile's rows: only unrolled loops keep the tile in registers.
#if defined(__clang__) || defined(__CUDACC__)
#define TRIREME_UNROLL _Pragma("unroll")
#else
#define TRIREME_UNROLL _Pragma("GCC unroll 8")
#endif

/// Register tiles, the building blocks of matrix products and attention: operands in the team's
/// scratch memory, products of one tile, and products of blocks of tiles.
namespace trireme::kernels {

/// The block of a product that one thread keeps in registers: `rows` elements of the left operand,
/// each broadcast, times `lanes` elements of the right operand.
template <class T>
struct Tile {
#if defined(__AVX512F__)
  static constexpr int host_rows = 8;
  static constexpr int host_bytes = 128;
#else
  static constexpr int host_rows = 4;
  static constexpr int host_bytes = 64;
#endif
  static constexpr int rows = exec_on_host ? host_rows : 4;
  static constexpr int lanes = exec_on_host ? host_bytes / static_cast<int>(sizeof(T)) : 4;
};

/// Smallest multiple of `unit` that is at least n.
TRIREME_FUNCTION constexpr std::int64_t padded(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

/// Left operand of a tile product: a(i,k) = data[i·row + k·depth]. Each element is broadcast.
template <class T>
struct Broadcast {
  const T* data;
  std::int64_t row;
  std::int64_t depth;
};

/// Right operand, b(k,j) = data[k·stride + j], or result, c(i,j) = data[i·stride + j], of a tile
/// product. Lanes are contiguous.
template <class T>
struct Lanes {
  T* data;
  std::int64_t stride;
};

enum class Write { store, add };

/// c(i,j) = Σ_{k < depth} a(i,k) b(k,j), or += this sum, for one register tile. Every element is
/// summed in the order of k, so that its bits do not depend on the tile's position in a matrix.
template <Write write, class T>
TRIREME_FUNCTION void tile_product(Lanes<T> c, Broadcast<T> a, Lanes<const T> b,
                                   std::int64_t depth) {
  constexpr int rows = Tile<T>::rows;
  constexpr int lanes = Tile<T>::lanes;
  T sum[rows][lanes];
  TRIREME_UNROLL
  for (int i = 0; i < rows; ++i) {
#pragma omp simd
    for (int j = 0; j < lanes; ++j) sum[i][j] = T(0);
  }
  const T* __restrict left = a.data;
  const T* __restrict right = b.data;
  for (std::int64_t k = 0; k < depth; ++k) {
    TRIREME_UNROLL
    for (int i = 0; i < rows; ++i) {
      const T x = left[i * a.row + k * a.depth];
#pragma omp simd
      for (int j = 0; j < lanes; ++j) sum[i][j] += x * right[k * b.stride + j];
    }
  }
  T* __restrict out = c.data;
  TRIREME_UNROLL
  for (int i = 0; i < rows; ++i) {
#pragma omp simd
    for (int j = 0; j < lanes; ++j) {
      if constexpr (write == Write::add)
        out[i * c.stride + j] += sum[i][j];
      else
        out[i * c.stride + j] = sum[i][j];
    }
  }
}

/// Range begin ≤ k < end over which a tile sums. An empty range leaves the tile unchanged.
struct Depth {
  std::int64_t begin;
  std::int64_t end;
};

/// tile_product for each register tile of a block of `rows` by `lanes` elements, both multiples of
/// the tile's sizes. The threads of a team share the tiles. The tile that begins at (i, j) sums
/// over depth_of(i, j), so that products can skip masked parts. The caller adds the barriers.
template <Write write, class T, class Member, class DepthOf>
TRIREME_FUNCTION void block_product(const Member& team, Lanes<T> c, std::int64_t rows,
                                    std::int64_t lanes, Broadcast<T> a, Lanes<const T> b,
                                    const DepthOf& depth_of) {
  const int row_tiles = static_cast<int>(rows / Tile<T>::rows);
  const int lane_tiles = static_cast<int>(lanes / Tile<T>::lanes);
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, row_tiles * lane_tiles), [&](int tile) {
    const std::int64_t i = std::int64_t{tile % row_tiles} * Tile<T>::rows;
    const std::int64_t j = std::int64_t{tile / row_tiles} * Tile<T>::lanes;
    const Depth depth = depth_of(i, j);
    if (depth.begin >= depth.end) return;
    tile_product<write>(Lanes<T>{c.data + i * c.stride + j, c.stride},
                        Broadcast<T>{a.data + i * a.row + depth.begin * a.depth, a.row, a.depth},
                        Lanes<const T>{b.data + depth.begin * b.stride + j, b.stride},
                        depth.end - depth.begin);
  });
}

/// Bytes of scratch memory that a team requests for aligned_scratch() of `elements` elements.
template <class T>
constexpr std::int64_t aligned_scratch_bytes(std::int64_t elements) {
  return elements * static_cast<std::int64_t>(sizeof(T)) + 64;
}

/// Address of `elements` elements in the team's scratch memory, aligned to a cache line.
template <class T, int level = 1, class Member>
TRIREME_FUNCTION T* aligned_scratch(const Member& team, std::int64_t elements) {
  const auto bytes = static_cast<int>(elements * static_cast<std::int64_t>(sizeof(T)) + 64);
  const auto address = reinterpret_cast<std::uintptr_t>(team.team_scratch(level).get_shmem(bytes));
  return reinterpret_cast<T*>((address + 63) / 64 * 64);
}

}  // namespace trireme::kernels
