// Matrix products by register tiles: a team packs blocks of both operands into panels and
// multiplies them tile by tile. Each element is the sum, in order, of one sum per block of k.
#include <trireme/kernels/matmul_product.hpp>

#include <trireme/kernels/lanes.hpp>
#include <trireme/kernels/tile.hpp>

#include <algorithm>

namespace trireme::kernels {
namespace {

using Policy = Kokkos::TeamPolicy<Exec, LightKernel>;
using Member = Policy::member_type;

/// Sizes of a team's block. On hosts, both packed operands fit into a second-level cache of 1 MiB.
template <class T>
struct Block {
  static constexpr int rows = exec_on_host ? 256 : 64;
  static constexpr int lanes = exec_on_host ? 1536 / static_cast<int>(sizeof(T)) : 64;
  static constexpr int depth = exec_on_host ? 1024 / static_cast<int>(sizeof(T)) : 32;
  static constexpr std::int64_t left_elements = std::int64_t{rows} * depth;
  static constexpr std::int64_t right_elements = std::int64_t{lanes} * depth;
  static constexpr std::int64_t edge_elements = std::int64_t{Tile<T>::rows} * Tile<T>::lanes;
  /// Level of the scratch memory; on devices 0, which is shared memory.
  static constexpr int scratch_level = exec_on_host || as_on_device ? 1 : 0;
};

/// A matrix with any strides: element (i,j) is data[i·row + j·column].
template <class T>
struct Strided {
  const T* data;
  std::int64_t row;
  std::int64_t column;
};

template <class T>
Strided<T> strided(const View2<const T>& view, Transpose transpose) {
  const auto stride = static_cast<std::int64_t>(view.stride(0));
  return transpose == Transpose::yes ? Strided<T>{view.data(), 1, stride}
                                     : Strided<T>{view.data(), stride, 1};
}

/// Copies m(i,k), i < extent and k < depth, times alpha into panels of `Width` consecutive i. Panel
/// p holds i from p·Width on as [depth][Width], zero beyond the extent. For right operands, i
/// counts columns.
template <int Width, class T>
TRIREME_FUNCTION void pack(const Member& team, T* packed, Strided<T> m, std::int64_t extent,
                           std::int64_t depth, T alpha) {
  const int panels = static_cast<int>(padded(extent, Width) / Width);
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, panels), [&](int panel) {
    const std::int64_t first = std::int64_t{panel} * Width;
    const T* __restrict from = m.data + first * m.row;
    T* __restrict to = packed + first * depth;
    const auto width = static_cast<int>(extent - first < Width ? extent - first : Width);
    if (width < Width) {
      for (std::int64_t k = 0; k < depth; ++k)
        for (int i = 0; i < Width; ++i)
          to[k * Width + i] = i < width ? alpha * from[i * m.row + k * m.column] : T(0);
    } else if (m.row == 1) {
      for (std::int64_t k = 0; k < depth; ++k) {
#pragma omp simd
        for (int i = 0; i < Width; ++i) to[k * Width + i] = alpha * from[k * m.column + i];
      }
    } else {
      constexpr int strip = 8;  // consecutive k that are read at a time for each i
      std::int64_t k = 0;
      for (; k + strip <= depth; k += strip)
        for (int i = 0; i < Width; ++i)
          for (int s = 0; s < strip; ++s)
            to[(k + s) * Width + i] = alpha * from[i * m.row + (k + s) * m.column];
      for (; k < depth; ++k)
        for (int i = 0; i < Width; ++i) to[k * Width + i] = alpha * from[i * m.row + k * m.column];
    }
  });
}

/// c = alpha a b + beta c; one team computes one block of c.
template <class T>
struct TiledProduct {
  T* c;
  std::int64_t c_stride, rows, columns, depth, row_blocks;
  Strided<T> a, b;  // b is transposed: element (j,k)
  T alpha, beta;

  KOKKOS_FUNCTION void operator()(const Member& team) const {
    const std::int64_t i0 = team.league_rank() % row_blocks * Block<T>::rows;
    const std::int64_t j0 = team.league_rank() / row_blocks * Block<T>::lanes;
    const std::int64_t block_rows = smaller(rows - i0, Block<T>::rows);
    const std::int64_t block_columns = smaller(columns - j0, Block<T>::lanes);
    T* left = aligned_scratch<T, Block<T>::scratch_level>(
        team, Block<T>::left_elements + Block<T>::right_elements);
    T* right = left + Block<T>::left_elements;
    scale(team, i0, j0, block_rows, block_columns);
    for (std::int64_t k0 = 0; k0 < depth; k0 += Block<T>::depth) {
      const std::int64_t block_depth = smaller(depth - k0, Block<T>::depth);
      pack<Tile<T>::rows>(team, left, {a.data + i0 * a.row + k0 * a.column, a.row, a.column},
                          block_rows, block_depth, alpha);
      pack<Tile<T>::lanes>(team, right, {b.data + j0 * b.row + k0 * b.column, b.row, b.column},
                           block_columns, block_depth, T(1));
      team.team_barrier();
      multiply(team, i0, j0, block_rows, block_columns, left, right, block_depth,
               k0 == 0 && beta == T(0));
      team.team_barrier();
    }
  }

 private:
  KOKKOS_FUNCTION static std::int64_t smaller(std::int64_t x, std::int64_t y) {
    return x < y ? x : y;
  }

  /// c = beta c, unless beta is 1, or beta is 0 and the first `multiply` overwrites c.
  KOKKOS_FUNCTION void scale(const Member& team, std::int64_t i0, std::int64_t j0,
                             std::int64_t block_rows, std::int64_t block_columns) const {
    if (beta == T(1) || (beta == T(0) && depth > 0)) return;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, static_cast<int>(block_rows)), [&](int i) {
      T* row = c + (i0 + i) * c_stride + j0;
      for (std::int64_t j = 0; j < block_columns; ++j) row[j] = beta == T(0) ? T(0) : beta * row[j];
    });
    team.team_barrier();
  }

  /// Adds the product of the packed panels to c, or, with `store`, stores it in c.
  KOKKOS_FUNCTION void multiply(const Member& team, std::int64_t i0, std::int64_t j0,
                                std::int64_t block_rows, std::int64_t block_columns, const T* left,
                                const T* right, std::int64_t block_depth, bool store) const {
    constexpr int tile_rows = Tile<T>::rows;
    constexpr int tile_lanes = Tile<T>::lanes;
    const int row_tiles = static_cast<int>(padded(block_rows, tile_rows) / tile_rows);
    const int lane_tiles = static_cast<int>(padded(block_columns, tile_lanes) / tile_lanes);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, row_tiles * lane_tiles), [&](int tile) {
      const std::int64_t i = std::int64_t{tile % row_tiles} * tile_rows;
      const std::int64_t j = std::int64_t{tile / row_tiles} * tile_lanes;
      const Broadcast<T> x{left + i * block_depth, 1, tile_rows};
      const Lanes<const T> y{right + j * block_depth, tile_lanes};
      T* out = c + (i0 + i) * c_stride + j0 + j;
      if (i + tile_rows <= block_rows && j + tile_lanes <= block_columns) {
        if (store)
          tile_product<Write::store>(Lanes<T>{out, c_stride}, x, y, block_depth);
        else
          tile_product<Write::add>(Lanes<T>{out, c_stride}, x, y, block_depth);
        return;
      }
      T edge[Block<T>::edge_elements];
      tile_product<Write::store>(Lanes<T>{edge, tile_lanes}, x, y, block_depth);
      for (int r = 0; r < tile_rows && i + r < block_rows; ++r)
        for (int s = 0; s < tile_lanes && j + s < block_columns; ++s)
          out[r * c_stride + s] = edge[r * tile_lanes + s] + (store ? T(0) : out[r * c_stride + s]);
    });
  }
};

}  // namespace

template <class T>
void matmul_tiled(const Exec& exec, View2<T> c, View2<const T> a, View2<const T> b, Transpose ta,
                  Transpose tb, double alpha, double beta) {
  const std::int64_t rows = extent(c, 0);
  const std::int64_t columns = extent(c, 1);
  if (rows == 0 || columns == 0) return;
  const std::int64_t row_blocks = padded(rows, Block<T>::rows) / Block<T>::rows;
  const std::int64_t column_blocks = padded(columns, Block<T>::lanes) / Block<T>::lanes;
  const TiledProduct<T> product{
      c.data(),
      static_cast<std::int64_t>(c.stride(0)),
      rows,
      columns,
      extent(a, ta == Transpose::yes ? 0 : 1),
      row_blocks,
      strided<T>(a, ta),
      strided<T>(b, tb == Transpose::yes ? Transpose::no : Transpose::yes),
      static_cast<T>(alpha),
      static_cast<T>(beta)};
  const auto scratch = aligned_scratch_bytes<T>(Block<T>::left_elements + Block<T>::right_elements);
  auto policy =
      Policy(exec, static_cast<int>(row_blocks * column_blocks), team_threads(exec))
          .set_scratch_size(Block<T>::scratch_level, Kokkos::PerTeam(static_cast<int>(scratch)));
  Kokkos::parallel_for("kernels/matmul_tiled", policy, product);
}

#define TRIREME_INSTANTIATE(T)                                                                    \
  template void matmul_tiled<T>(const Exec&, View2<T>, View2<const T>, View2<const T>, Transpose, \
                                Transpose, double, double)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
