#pragma once

#include <trireme/base/function.hpp>
#include <trireme/base/philox.hpp>
#include <trireme/kernels/tensor_map.hpp>
#include <trireme/kernels/warp_tiles.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

/// Common parts of the tensor-core attention kernels: sizes, the order of blocks, and the dropout
/// mask of a fragment. A plane is a head of a sample.
namespace trireme::kernels {

/// Head sizes that have tensor-core kernels.
using FlashHeadSizes = std::integer_sequence<int, 16, 32, 64, 80, 96, 112, 128, 160, 192, 256>;

/// Number of elements of a row in shared memory: a multiple of 32 (64 bytes). Columns beyond the
/// head size are neither written nor part of any result.
TRIREME_FUNCTION constexpr int flash_columns(int head_size) {
  return (head_size + 31) / 32 * 32;
}

/// Calls f with the head size as a std::integral_constant. Returns false, without calling f, if
/// there is no kernel for the head size.
template <class F>
constexpr bool with_flash_kernel(std::int64_t head_size, const F& f) {
  const auto is = [&]<int size>(std::integral_constant<int, size> constant) {
    if (head_size == size) f(constant);
    return head_size == size;
  };
  return [&]<int... sizes>(std::integer_sequence<int, sizes...>) {
    return (is(std::integral_constant<int, sizes>()) || ...);
  }
  (FlashHeadSizes());
}

constexpr bool has_flash_kernel(std::int64_t head_size) {
  return with_flash_kernel(head_size, [](auto) {});
}

/// The resolved AttentionShape, and other values that all blocks of threads read. Query i sees the
/// keys i − back … i + ahead of its sequence, without the keys of earlier documents.
struct FlashShape {
  static constexpr int unbounded = 1 << 29;  ///< more than any sequence

  int batch = 0, sequence = 0, heads = 0, key_value_heads = 0, group = 1, heads_before = 0;
  int back = unbounded, ahead = 0;
  float scale = 0.0F;
  int section = 1;                          ///< number of planes in flight at a time
  std::int64_t qkv_stride = 0;              ///< from row to row, in elements
  const std::int32_t* positions = nullptr;  ///< [B·S], as in AttentionShape; null: one document

  TRIREME_FUNCTION int first_key(int query) const { return query > back ? query - back : 0; }
  /// First token of a query's document. Queries beyond the sequence are in the last document.
  TRIREME_FUNCTION int document_start(int b, int query) const {
    const int row = query < sequence ? query : sequence - 1;
    return row - positions[std::int64_t{b} * sequence + row];
  }
  /// First key that a query of sample b sees, with or without documents.
  template <bool with_documents>
  TRIREME_FUNCTION int first_key(int b, int query) const {
    const int first = first_key(query);
    if constexpr (with_documents) {
      const int start = document_start(b, query);
      return start > first ? start : first;
    }
    return first;
  }
  /// One past the last key that a query sees.
  TRIREME_FUNCTION int end_key(int query) const {
    return query + ahead + 1 < sequence ? query + ahead + 1 : sequence;
  }
  TRIREME_FUNCTION int key_value_head(int h) const { return (heads_before + h) / group; }
  /// The query heads [first_head(kv), end_head(kv)) use head kv of keys and values.
  TRIREME_FUNCTION int end_head(int kv) const {
    const int end = (kv + 1) * group - heads_before;
    return end < heads ? end : heads;
  }
  TRIREME_FUNCTION int first_head(int kv) const {
    const int first = kv * group - heads_before;
    return first > 0 ? first : 0;
  }
};

/// Packed queries, keys and values as a tensor [K, heads, S, B] with axis 0 contiguous. A box has
/// 64 elements of `rows` rows of one head; elements of a box beyond the tensor are zero.
inline TensorMapShape heads_map(const void* qkv, const FlashShape& s, int head_size, int rows) {
  return {qkv,
          {head_size, s.heads + 2 * s.key_value_heads, s.sequence, s.batch},
          {2 * head_size, 2 * s.qkv_stride, 2 * s.qkv_stride * s.sequence},
          {64, 1, static_cast<std::uint32_t>(rows), 1}};
}

/// Work of the block of threads with this ticket: turn number `turn`, one block of queries or keys,
/// of plane `plane`. Planes are grouped in sections. A section runs the first turn of all its
/// planes, then the second turn of all its planes, and so on.
struct FlashTurn {
  int plane, turn;
  TRIREME_FUNCTION FlashTurn(int ticket, int planes, int turns, int section) {
    const int first = ticket / (section * turns) * section;
    const int here = planes - first < section ? planes - first : section;
    const int rest = ticket - first * turns;
    plane = first + rest % here;
    turn = rest / here;
  }
};

/// AttentionDropout for fragments. Dropped probabilities are multiplied by 0; kept probabilities
/// are not changed, and their sums are multiplied by `kept` later.
struct FlashDropout {
  RandomKey key;
  std::uint32_t threshold = 0;  ///< elements with a smaller word are dropped
  float kept = 1.0F;
  std::int64_t first_sample = 0, first_head = 0, all_heads = 0;

  TRIREME_FUNCTION std::uint64_t first_element(const FlashShape& s, int b, int h) const {
    const std::int64_t plane = (first_sample + b) * all_heads + first_head + h;
    return static_cast<std::uint64_t>(plane * s.sequence * s.sequence);
  }
  TRIREME_FUNCTION bool drops(std::uint64_t element) const {
    const Words4 four = philox(key, element / 4);
    const auto i = static_cast<int>(element % 4);
    const std::uint32_t low = i == 0 ? four.w[0] : four.w[1];
    const std::uint32_t high = i == 2 ? four.w[2] : four.w[3];
    return (i < 2 ? low : high) < threshold;
  }

  /// Sets dropped[i] for the four probabilities of this lane in a 16×8 tile whose rows are queries
  /// and whose columns are keys. `element` is the element of row g and column 0 (lane = 4 g + t).
  /// If the length of a sequence is a multiple of 4, lanes 2j and 2j + 1 need the same two Philox
  /// blocks, and each lane computes one of them.
  template <class Block>
  TRIREME_DEVICE_FUNCTION void drops_of_queries(Block& block, bool (&dropped)[4],
                                                std::uint64_t element, int sequence) const {
    const int t = block.thread() % 4;
    const std::uint64_t below = element + 8 * static_cast<std::uint64_t>(sequence);
    const auto column = static_cast<std::uint64_t>(2 * t);
    if (sequence % 4 != 0) {
      for (int i = 0; i < 4; ++i)
        dropped[i] = drops((i < 2 ? element : below) + column + static_cast<std::uint64_t>(i % 2));
      return;
    }
    const bool odd = t % 2 != 0;
    const Words4 four = philox(key, ((odd ? below : element) + column) / 4);
    std::uint32_t got[2];
    for (int i = 0; i < 2; ++i) got[i] = block.shuffle_xor(odd ? four.w[i] : four.w[2 + i], 1);
    for (int i = 0; i < 2; ++i) {
      dropped[i] = (odd ? got[i] : four.w[i]) < threshold;
      dropped[2 + i] = (odd ? four.w[2 + i] : got[i]) < threshold;
    }
  }

  /// Sets dropped[i] for a tile whose rows are keys and whose columns are queries. `element` is the
  /// element of the tile's first query and first key. If the length of a sequence is a multiple of
  /// 4, four lanes that are consecutive in g share four Philox blocks.
  template <class Block>
  TRIREME_DEVICE_FUNCTION void drops_of_keys(Block& block, bool (&dropped)[4],
                                             std::uint64_t element, int sequence) const {
    const int lane = block.thread() % warp_lanes;
    const int g = lane / 4;
    const auto query = [&](int i) {
      return element + static_cast<std::uint64_t>(2 * (lane % 4) + i % 2) *
                           static_cast<std::uint64_t>(sequence);
    };
    if (sequence % 4 != 0) {
      for (int i = 0; i < 4; ++i)
        dropped[i] = drops(query(i) + static_cast<std::uint64_t>(g + i / 2 * 8));
      return;
    }
    const int mine = g % 4;
    const Words4 four =
        philox(key, (query(mine) + static_cast<std::uint64_t>(g / 4 * 4 + mine / 2 * 8)) / 4);
    std::uint32_t words[4] = {four.w[0], four.w[1], four.w[2], four.w[3]};
    transpose_words<4>(block, words);
    for (int i = 0; i < 4; ++i) dropped[i] = words[i] < threshold;
  }
};

}  // namespace trireme::kernels
