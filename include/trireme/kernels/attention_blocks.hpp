#pragma once

#include <trireme/base/philox.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/bf16_tiles.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/kernels/math.hpp>
#include <trireme/kernels/tile.hpp>
#include <trireme/kernels/transpose.hpp>

#include <cstdint>

/// Common parts of the portable attention kernels: block sizes, copies of blocks, dropout mask.
namespace trireme::kernels {

/// Queries and keys per block: equal numbers, so that the causal mask cuts only diagonal blocks.
inline constexpr int attention_block = exec_on_host ? 64 : 32;

using AttentionPolicy = Kokkos::TeamPolicy<Exec, LightKernel>;
using AttentionMember = AttentionPolicy::member_type;

/// Returns `shape` with its defaults filled in; a window that is at least as long as the sequence
/// becomes 0 (no window). Error if the shape is inconsistent.
AttentionShape resolved(const AttentionShape& shape);

/// Head size K, and K rounded up to multiples of a register tile's rows and of its lanes.
template <class T>
struct HeadSizes {
  std::int64_t size, rows, lanes;
  explicit HeadSizes(std::int64_t head_size)
      : size(head_size),
        rows(padded(head_size, Tile<T>::rows)),
        lanes(padded(head_size, Tile<T>::lanes)) {}
};

/// Prefetches a row of a later block on hosts; no effect on devices.
template <class T>
TRIREME_FUNCTION void prefetch_row([[maybe_unused]] const T* row,
                                   [[maybe_unused]] std::int64_t size) {
#if !defined(__CUDA_ARCH__) && !defined(__HIP_DEVICE_COMPILE__) && !defined(__SYCL_DEVICE_ONLY__)
  constexpr std::int64_t line = 64 / sizeof(T);
  if constexpr (exec_on_host)
    for (std::int64_t d = 0; d < size; d += line) __builtin_prefetch(row + d, 0, 2);
#endif
}

/// to[r, d] = from[r, d] for r < valid and d < size, otherwise 0. to [rows, width].
template <class T, class A>
TRIREME_FUNCTION void copy_block(const AttentionMember& team, A* to, std::int64_t width,
                                 const T* from, std::int64_t from_stride, std::int64_t valid,
                                 std::int64_t size, int rows) {
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int r) {
    A* __restrict row = to + r * width;
    const T* __restrict source = from + r * from_stride;
    const std::int64_t filled = r < valid ? size : 0;
    if (r + rows < valid) prefetch_row(source + rows * from_stride, size);  // next block
#pragma omp simd
    for (std::int64_t d = 0; d < filled; ++d) row[d] = static_cast<A>(source[d]);
    for (std::int64_t d = filled; d < width; ++d) row[d] = A(0);
  });
}

/// to[d, r] = factor · from[r, d] for r < valid, otherwise 0. to [size, attention_block].
template <class T, class A>
TRIREME_FUNCTION void copy_transposed(const AttentionMember& team, A* to, const T* from,
                                      std::int64_t from_stride, std::int64_t valid,
                                      std::int64_t size, A factor) {
  const std::int64_t rows = valid < attention_block ? valid : attention_block;
  transpose<A>(team, to, attention_block, from, from_stride, rows, size,
               [&](std::int64_t) { return factor; });
  if (rows == attention_block) return;
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, static_cast<int>(size)), [&](int d) {
    for (std::int64_t r = rows; r < attention_block; ++r) to[d * attention_block + r] = A(0);
  });
}

/// Number of four-byte elements for the packed operands of any native attention_product.
TRIREME_FUNCTION constexpr std::int64_t native_elements(std::int64_t head_size) {
  const std::int64_t longest = head_size < attention_block ? attention_block : head_size;
  return Bf16SmallProduct::packed_elements(longest, attention_block, longest) / 2;
}

/// c = or += a b by block_product. On hosts, if T is Bf16 and `packed` is not null, the processor's
/// bf16 instructions multiply over the whole depth; `packed` receives the operands as bf16.
template <Write write, class T, class A, class DepthOf>
TRIREME_FUNCTION void attention_product(const AttentionMember& team, [[maybe_unused]] A* packed,
                                        Lanes<A> c, std::int64_t rows, std::int64_t lanes,
                                        [[maybe_unused]] std::int64_t depth, Broadcast<A> a,
                                        Lanes<const A> b, const DepthOf& depth_of) {
  if constexpr (exec_on_host && std::is_same_v<T, Bf16>) {
    if (packed != nullptr) {
      const Bf16SmallProduct product{
          c.data,   c.stride,           rows, lanes, depth, a.data, a.row, a.depth, b.data,
          b.stride, write == Write::add};
      product(bf16_instructions(), reinterpret_cast<Bf16*>(packed));
      return;
    }
  }
  block_product<write>(team, c, rows, lanes, a, b, depth_of);
}

/// scores = cap tanh(scores / cap), for `count` scores.
template <class A>
TRIREME_FUNCTION void cap_scores(A* __restrict scores, std::int64_t count, double cap) {
  const A limit = static_cast<A>(cap), inverse = static_cast<A>(1 / cap);
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) scores[i] = limit * fast_tanh(scores[i] * inverse);
}

/// The dropout mask of one head of one sample.
struct AttentionMask {
  RandomKey key;
  std::uint32_t threshold;  // elements with a smaller word are dropped
  double kept;              // factor of kept elements
  std::int64_t sequence;
  std::int64_t first;  // index of the word of query 0 and key 0

  /// result[j] = 0 or `kept` for key k0 + j of query i, j in [0, attention_block). Not inlined on
  /// hosts: GCC 12 does not vectorise the function inside a larger loop.
  template <class A>
  TRIREME_APART_ON_HOSTS void factors(A* __restrict result, std::int64_t i, std::int64_t k0) const {
    constexpr int blocks = attention_block / 4;
    std::uint32_t words[4 * blocks + 4];
    const std::int64_t element = first + i * sequence + k0;
    const auto block = static_cast<std::uint64_t>(element) / 4;
    const int offset = static_cast<int>(element % 4);
#pragma omp simd
    for (int b = 0; b < blocks; ++b) {
      const Words4 four = philox(key, block + static_cast<std::uint64_t>(b));
      for (int w = 0; w < 4; ++w) words[4 * b + w] = four.w[w];
    }
    if (offset > 0) {  // the row begins, and so ends, within a block of words
      const Words4 four = philox(key, block + blocks);
      for (int w = 0; w < 4; ++w) words[4 * blocks + w] = four.w[w];
    }
    const A factor = static_cast<A>(kept);
    const std::uint32_t* __restrict word = words + offset;
#pragma omp simd
    for (int j = 0; j < attention_block; ++j) result[j] = word[j] < threshold ? A(0) : factor;
  }
};

/// The masks of all heads and samples.
struct AttentionMasks {
  AttentionDropout dropout;
  std::int64_t sequence;
  std::uint32_t threshold;
  bool active;

  AttentionMasks(const AttentionDropout& of, const AttentionShape& shape);

  TRIREME_FUNCTION AttentionMask operator()(std::int64_t b, std::int64_t h) const {
    const std::int64_t plane =
        (dropout.first_sample + b) * dropout.all_heads + dropout.first_head + h;
    return {dropout.key, threshold, 1.0 / (1.0 - dropout.rate), sequence,
            plane * sequence * sequence};
  }
};

}  // namespace trireme::kernels
