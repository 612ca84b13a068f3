#pragma once

#include <trireme/kernels/flash_backward_tile.hpp>
#include <trireme/kernels/warp_tiles.hpp>

#include <cstdint>

namespace trireme::kernels {

/// The gradient of a block of queries: gradients of scores times keys. A warp has query_tiles rows
/// of tiles from first_tile() on, and in each row every head_warps-th pair of tiles.
template <class T, int head_size>
class FlashQuerySums {
 public:
  using Tile = FlashBackwardTile<head_size>;
  using Arguments = FlashBackwardArguments<T>;
  using Step = FlashBackwardStep;
  using Lanes = FlashBackwardLanes<head_size>;
  using Sums = float[Tile::query_tiles][2 * Tile::warp_pairs][4];

  TRIREME_DEVICE_FUNCTION static int first_tile(const Lanes& lanes) {
    return lanes.warp / Tile::head_warps * Tile::query_tiles;
  }
  TRIREME_DEVICE_FUNCTION static int pair(const Lanes& lanes, int i) {
    return lanes.warp % Tile::head_warps + i * Tile::head_warps;
  }
  TRIREME_DEVICE_FUNCTION static bool exists(const Lanes& lanes, int i) {
    return Tile::head_pairs % Tile::head_warps == 0 || pair(lanes, i) < Tile::head_pairs;
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void add(Block& block, const Lanes& lanes, Sums& sums) {
    const auto left =
        lanes.template places<Tile::queries>(block, Fragment::wide, Tile::gradients_at);
    const auto right =
        lanes.template places<flash_columns(head_size)>(block, Fragment::tall, Tile::keys_at);
#pragma unroll
    for (int k = 0; k < Tile::keys / 16; ++k) {
      std::uint32_t a[Tile::query_tiles][4];
#pragma unroll
      for (int m = 0; m < Tile::query_tiles; ++m)
        block.load_matrices_transposed(a[m], left.at(16 * k, 2 * (first_tile(lanes) + m)));
#pragma unroll
      for (int i = 0; i < Tile::warp_pairs; ++i) {
        if (!exists(lanes, i)) break;
        std::uint32_t b[4];
        block.load_matrices_transposed(b, right.at(16 * k, 2 * pair(lanes, i)));
#pragma unroll
        for (int m = 0; m < Tile::query_tiles; ++m) {
          block.template multiply_add<T>(sums[m][2 * i], a[m], b[0], b[1]);
          block.template multiply_add<T>(sums[m][2 * i + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  /// Calls use(x, m, n) for each tile of the warp, where x are the lane's sums of the tile, and m
  /// and n are the tile's row and column in the block.
  template <class Use>
  TRIREME_DEVICE_FUNCTION static void for_tiles(const Lanes& lanes, Sums& sums, const Use& use) {
#pragma unroll
    for (int m = 0; m < Tile::query_tiles; ++m)
#pragma unroll
      for (int i = 0; i < 2 * Tile::warp_pairs; ++i)
        if (exists(lanes, i / 2))
          use(sums[m][i], first_tile(lanes) + m, 2 * pair(lanes, i / 2) + i % 2);
  }

  /// Address of this lane's sums of tile (m, n). Sums are stored by tile, and in a tile by lane.
  TRIREME_DEVICE_FUNCTION static float* place_of(const Lanes& lanes, float* sums, int m, int n) {
    return sums + (m * head_tiles + n) * 128 + 4 * lanes.lane;
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void read(Block& block, const Lanes& lanes, Sums& sums,
                                           float* from, bool first) {
    for_tiles(lanes, sums, [&](float(&x)[4], int m, int n) {
      if (first) {
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = 0.0F;
      } else {
        block.read4(x, place_of(lanes, from, m, n));
      }
    });
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void write(Block& block, const Lanes& lanes, Sums& sums,
                                            float* to) {
    for_tiles(lanes, sums,
              [&](float(&x)[4], int m, int n) { block.write4(place_of(lanes, to, m, n), x); });
  }

  template <class Block, class Place>
  TRIREME_DEVICE_FUNCTION static void round(Block& block, const Arguments& a, const Place& place,
                                            const Lanes& lanes, const Step& step, Sums& sums) {
    const float scale = a.shape.scale;
    for_tiles(lanes, sums, [&](const float(&x)[4], int m, int n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = place.first_query(step) + 16 * m + lanes.lane / 4 + 8 * half;
        if (query >= a.shape.sequence) continue;
        T* row = a.dqkv + (place.first_token(a) + query) * a.dqkv_stride + step.h * head_size;
        block.store4(row + 8 * n + 2 * (lanes.lane % 4),
                     block.template pack<T>(x[2 * half] * scale, x[2 * half + 1] * scale));
      }
    });
  }

 private:
  static constexpr int head_tiles = head_size / 8;
};

}  // namespace trireme::kernels
