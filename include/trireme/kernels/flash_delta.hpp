#pragma once

#include <trireme/kernels/warp_tiles.hpp>

#include <cstdint>

namespace trireme::kernels {

template <class T>
struct FlashDeltaArguments {
  int sequence, heads;
  std::int64_t rows;  // B·S·H; heads vary fastest
  float* delta;       // [B, H, S]
  const T* grad;
  std::int64_t grad_stride;
  const T* o;
  std::int64_t o_stride;
  unsigned* counters;  // counters of the gradients' kernel, set to zero
  std::int64_t counter_count;
};

/// delta[b,h,i] = Σ_d grad[t, h·K + d] o[t, h·K + d], which equals Σ_j p dp (Dao et al. 2022, arXiv
/// 2205.14135, eq. 4). Eight lanes compute one sum. Also sets the counters to zero. The grid has
/// ⌈rows / rows_per_block⌉ blocks.
template <class T, int head_size>
struct FlashDelta {
  struct Tile {
    static constexpr int threads = 256;
    static constexpr int blocks_per_processor = 1;
    static constexpr std::uint32_t shared_bytes = 0;
  };
  static constexpr int lanes = 8;
  static constexpr int rows_per_block = Tile::threads / lanes;
  using Arguments = FlashDeltaArguments<T>;

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void run(Block& block, const Arguments& a) {
    const std::int64_t thread = std::int64_t{block.index()} * Tile::threads + block.thread();
    if (thread < a.counter_count) a.counters[thread] = 0;
    const std::int64_t row = thread / lanes;
    const bool valid = row < a.rows;
    const auto lane = static_cast<int>(thread % lanes);
    const std::int64_t token = row / a.heads;
    const auto h = static_cast<int>(row % a.heads);
    float sum = 0.0F;
    if (valid) {
      const T* x = a.grad + token * a.grad_stride + h * head_size;
      const T* y = a.o + token * a.o_stride + h * head_size;
      for (int piece = lane; piece < head_size / 8; piece += lanes)
        sum += product(block, x + 8 * piece, y + 8 * piece);
    }
    for (int other = 1; other < lanes; other *= 2) sum += block.shuffle_xor(sum, other);
    if (valid && lane == 0) {
      const std::int64_t plane = token / a.sequence * a.heads + h;
      a.delta[plane * a.sequence + token % a.sequence] = sum;
    }
  }

 private:
  template <class Block>
  TRIREME_DEVICE_FUNCTION static float product(Block& block, const T* x, const T* y) {
    std::uint32_t a[4], b[4];
    block.read16(a, x);
    block.read16(b, y);
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum += number(a[i]) * number(b[i]);
      sum += number(a[i] >> 16) * number(b[i] >> 16);
    }
    return sum;
  }
  TRIREME_DEVICE_FUNCTION static float number(std::uint32_t low_half) {
    return static_cast<float>(__builtin_bit_cast(T, static_cast<std::uint16_t>(low_half)));
  }
};

}  // namespace trireme::kernels
