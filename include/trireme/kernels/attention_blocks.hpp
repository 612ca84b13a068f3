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
/// Errors for attention to keys of the same array, or of an array of their own.
void expect_own_keys(const AttentionShape& shape);
void expect_other_keys(const AttentionShape& shape);

/// Head size K, and K rounded up to multiples of a register tile's rows and of its lanes.
template <class T>
struct HeadSizes {
  std::int64_t size, rows, lanes;
  explicit HeadSizes(std::int64_t head_size)
      : size(head_size),
        rows(padded(head_size, Tile<T>::rows)),
        lanes(padded(head_size, Tile<T>::lanes)) {}
};

/// Rows of a later block, which a product on a host prefetches part by part while it computes. A
/// processor has few buffers for cache misses, so a loop that prefetched all rows would stall.
template <class T>
struct RowsAhead {
  const T* first = nullptr;
  std::int64_t stride = 0, rows = 0, size = 0;

  /// Prefetches part `part` of `parts` of the rows.
  TRIREME_FUNCTION void prefetch([[maybe_unused]] std::int64_t part,
                                 [[maybe_unused]] std::int64_t parts) const {
#if !defined(__CUDA_ARCH__) && !defined(__HIP_DEVICE_COMPILE__) && !defined(__SYCL_DEVICE_ONLY__)
    constexpr std::int64_t line = 64 / sizeof(T);
    if constexpr (exec_on_host)
      for (std::int64_t r = rows * part / parts; r < rows * (part + 1) / parts; ++r)
        for (std::int64_t d = 0; d < size; d += line)
          __builtin_prefetch(first + r * stride + d, 0, 2);
#endif
  }
};

/// The rows of the block after `from`, which has `valid` or fewer rows.
template <class T>
TRIREME_FUNCTION RowsAhead<T> rows_after(const T* from, std::int64_t stride, std::int64_t valid,
                                         std::int64_t size) {
  const std::int64_t rest = valid - attention_block;
  if (rest <= 0) return {};
  return {from + attention_block * stride, stride, rest < attention_block ? rest : attention_block,
          size};
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

/// Packed operands of a product by the processor's bf16 instructions. At most one of them is null:
/// the product packs it in `work`. Without `work`, the product does not use these instructions.
struct NativeOperands {
  Bf16* work = nullptr;
  const Bf16* left = nullptr;
  const Bf16* right = nullptr;
};

/// Number of four-byte elements of a packed operand.
TRIREME_FUNCTION constexpr std::int64_t native_elements(std::int64_t lines, std::int64_t depth) {
  return Bf16Operand::packed_elements(lines, depth) / 2;
}

/// Packs a left operand [rows, depth], or a right operand [depth, lanes], of native products in
/// `to`, if T is Bf16 on a host and `to` is not null.
template <class T, class A>
TRIREME_FUNCTION void pack_left([[maybe_unused]] Bf16* to, [[maybe_unused]] std::int64_t rows,
                                [[maybe_unused]] std::int64_t depth,
                                [[maybe_unused]] Broadcast<A> a) {
  if constexpr (exec_on_host && std::is_same_v<T, Bf16>) {
    const bool contiguous = a.depth == 1;
    const Bf16Operand operand{a.data, contiguous ? a.row : a.depth, contiguous, rows, depth};
    if (to != nullptr) operand.pack(bf16_instructions(), Bf16Side::left, to);
  }
}
template <class T, class A>
TRIREME_FUNCTION void pack_right([[maybe_unused]] Bf16* to, [[maybe_unused]] std::int64_t lanes,
                                 [[maybe_unused]] std::int64_t depth,
                                 [[maybe_unused]] Lanes<const A> b) {
  if constexpr (exec_on_host && std::is_same_v<T, Bf16>) {
    const Bf16Operand operand{b.data, b.stride, false, lanes, depth};
    if (to != nullptr) operand.pack(bf16_instructions(), Bf16Side::right, to);
  }
}

/// c = or += a b by block_product. On hosts, if T is Bf16 and `native` has memory, the processor's
/// bf16 instructions compute the product over the whole depth, of operands rounded to bf16.
/// Prefetches `ahead`.
template <Write write, class T, class A, class DepthOf, class E = A>
TRIREME_FUNCTION void attention_product(const AttentionMember& team,
                                        [[maybe_unused]] NativeOperands native, Lanes<A> c,
                                        std::int64_t rows, std::int64_t lanes,
                                        [[maybe_unused]] std::int64_t depth, Broadcast<A> a,
                                        Lanes<const A> b, const DepthOf& depth_of,
                                        const RowsAhead<E>& ahead = {}) {
  if constexpr (exec_on_host && std::is_same_v<T, Bf16>) {
    if (native.work != nullptr) {
      ahead.prefetch(0, 1);
      if (native.left == nullptr) pack_left<T>(native.work, rows, depth, a);
      if (native.right == nullptr) pack_right<T>(native.work, lanes, depth, b);
      const Bf16* const left = native.left == nullptr ? native.work : native.left;
      const Bf16* const right = native.right == nullptr ? native.work : native.right;
      const Bf16SmallProduct product{c.data, c.stride, rows,  lanes,
                                     depth,  left,     right, write == Write::add};
      return product(bf16_instructions());
    }
  }
  const std::int64_t row_tiles = rows / Tile<A>::rows, lane_tiles = lanes / Tile<A>::lanes;
  block_product<write>(team, c, rows, lanes, a, b, [&](std::int64_t i, std::int64_t j) {
    ahead.prefetch(j / Tile<A>::lanes * row_tiles + i / Tile<A>::rows, row_tiles * lane_tiles);
    return depth_of(i, j);
  });
}

/// scores = cap tanh(scores / cap), for `count` scores.
template <class A>
TRIREME_FUNCTION void cap_scores(A* __restrict scores, std::int64_t count, double cap) {
  const A limit = static_cast<A>(cap), inverse = static_cast<A>(1 / cap);
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) scores[i] = limit * fast_tanh(scores[i] * inverse);
}

/// Calls f(bucket, begin, end) for the parts of the offsets first, …, first + count − 1: bucket
/// `bucket` has the offsets first + x with begin ≤ x < end. The threads of the team share the
/// buckets.
template <class F>
TRIREME_FUNCTION void for_buckets(const AttentionMember& team, const RelativeBuckets& buckets,
                                  std::int64_t first, std::int64_t count, const F& f) {
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, buckets.count), [&](int bucket) {
    const RelativeBuckets::Offsets all = buckets.offsets(bucket);
    const std::int64_t begin = all.begin > first ? all.begin - first : 0;
    const std::int64_t end = all.end - first < count ? all.end - first : count;
    if (begin < end) f(bucket, static_cast<int>(begin), static_cast<int>(end));
  });
}

/// Number of offsets of the pairs of queries and keys of two blocks.
inline constexpr int block_offsets = 2 * attention_block - 1;

/// The dropout mask of one head of one sample.
struct AttentionMask {
  RandomKey key;
  std::uint32_t threshold;  // elements with a smaller word are dropped
  double kept;              // factor of kept elements
  std::int64_t keys;        // words per query
  std::int64_t first;       // index of the word of query 0 and key 0

  /// result[j] = 0 or `kept` for key k0 + j of query i, j in [0, attention_block). Not inlined on
  /// hosts: GCC 12 does not vectorise the function inside a larger loop.
  template <class A>
  TRIREME_APART_ON_HOSTS void factors(A* __restrict result, std::int64_t i, std::int64_t k0) const {
    constexpr int blocks = attention_block / 4;
    std::uint32_t words[4 * blocks + 4];
    const std::int64_t element = first + i * keys + k0;
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
  std::int64_t sequence, keys;
  std::uint32_t threshold;
  bool active;

  AttentionMasks(const AttentionDropout& of, const AttentionShape& shape);

  TRIREME_FUNCTION AttentionMask operator()(std::int64_t b, std::int64_t h) const {
    const std::int64_t plane =
        (dropout.first_sample + b) * dropout.all_heads + dropout.first_head + h;
    return {dropout.key, threshold, 1.0 / (1.0 - dropout.rate), keys, plane * sequence * keys};
  }
};

}  // namespace trireme::kernels
