#pragma once

#include <trireme/kernels/flash_problem.hpp>
#include <trireme/kernels/warp_tiles.hpp>

#include <cstdint>

/// Sizes, arguments and block indices of FlashBackward.
namespace trireme::kernels {

/// Keys per block. The gradients of keys and values stay in registers.
constexpr int flash_backward_keys(std::int64_t head_size) {
  return head_size > 160 ? 64 : 128;
}

/// Sizes of a block of threads. Its warps form two grids. One grid has 4 rows and `sides` columns:
/// a warp has warp_keys keys, and one side of the queries (for scores) or of the head's elements
/// (for gradients of keys and values). The other has query_warps rows, for the queries' gradient.
template <int head_size>
struct FlashBackwardTile {
  static constexpr int keys = flash_backward_keys(head_size);
  static constexpr int warps = head_size <= 64 ? 4 : 8;
  static constexpr int threads = warps * warp_lanes;
  static constexpr int sides = warps / 4;
  static constexpr int warp_keys = keys * sides / warps;
  static constexpr int row_tiles = warp_keys / 16;  // key tiles per warp
  static constexpr int queries = (head_size > 64 && head_size <= 128) || head_size == 192 ? 64 : 32;
  static constexpr int side_queries = queries / sides;
  static constexpr int side_elements = flash_columns(head_size) / sides;
  static constexpr int blocks_per_processor = head_size <= 64 ? 2 : 1;

  static constexpr int query_warps =
      (head_size > 64 && head_size <= 96) || head_size == 192 ? 4 : 2;
  static constexpr int query_tiles = queries / 16 / query_warps;  // query tiles per warp
  static constexpr int head_warps = warps / query_warps;
  static constexpr int head_pairs = head_size / 16;  // pairs of tiles
  static constexpr int warp_pairs = (head_pairs + head_warps - 1) / head_warps;

  using Rows = SharedRows<flash_columns(head_size)>;
  using Scores = SharedRows<queries>;  // [keys, queries]
  static constexpr std::uint32_t keys_at = 0;
  static constexpr std::uint32_t values_at = Rows::bytes(keys);
  static constexpr std::uint32_t scores_at = values_at + Rows::bytes(keys);
  static constexpr std::uint32_t gradients_at = scores_at + (sides > 1 ? Scores::bytes(keys) : 0);
  static constexpr std::uint32_t step_at = gradients_at + Scores::bytes(keys);  // two step buffers
  static constexpr std::uint32_t grads_after = Rows::bytes(queries);  // offset in a buffer
  static constexpr std::uint32_t logsumexp_after = 2 * grads_after;
  static constexpr std::uint32_t delta_after = logsumexp_after + 4 * queries;
  static constexpr std::uint32_t step_bytes = delta_after + 4 * queries;
  static constexpr std::uint32_t shared_bytes = step_at + 2 * step_bytes;
  static_assert(step_bytes % 128 == 0);
};

template <class T>
struct FlashBackwardArguments {
  FlashShape shape;
  FlashDropout dropout;
  T* dqkv;
  std::int64_t dqkv_stride;
  const T* grad;
  std::int64_t grad_stride;
  const T* qkv;
  const float* logsumexp;  // [B, H, S]
  const float* delta;      // [B, H, S]
  float* sums;             // sums of the queries' gradients: [B, H, query_blocks, queries·K]
  unsigned* turns;         // [B, H, query_blocks]: one past the last block of keys in each sum
  unsigned* ticket;        // number of blocks of threads that have started
  int key_blocks, query_blocks;
};

/// A step of a block of keys: a block of queries of head h that sees some of the keys. A block of
/// keys visits the query heads of its group one after another.
struct FlashBackwardStep {
  int h, query_block;
};

/// Work of a block of threads: block key_block of head kv of keys and values of sample b, with the
/// query heads [first_head, end_head). Tile::keys and Tile::queries are the numbers of keys per
/// block and of queries per step.
template <class Tile, class Arguments, bool with_documents = false>
struct FlashBackwardPlace {
  using Step = FlashBackwardStep;

  int b, kv, key_block, first_head, end_head;
  int end_query = 0;  ///< with documents: one past the last query that sees a key of this block

  TRIREME_DEVICE_FUNCTION FlashBackwardPlace(const Arguments& a, int ticket) {
    const FlashShape& s = a.shape;
    // The first keys come first: with a causal mask, most queries see them.
    const FlashTurn turn(ticket, s.batch * s.key_value_heads, a.key_blocks, s.section);
    b = turn.plane / s.key_value_heads;
    kv = turn.plane % s.key_value_heads;
    key_block = turn.turn;
    first_head = s.first_head(kv);
    end_head = s.end_head(kv);
    if constexpr (with_documents) end_query = last_in_documents(s);
  }

  TRIREME_DEVICE_FUNCTION int first_key() const { return key_block * Tile::keys; }
  TRIREME_DEVICE_FUNCTION static int first_query(const Step& step) {
    return step.query_block * Tile::queries;
  }
  TRIREME_DEVICE_FUNCTION int first_query_block(const Arguments& a) const {
    const int first = first_key() - a.shape.ahead;
    return first > 0 ? first / Tile::queries : 0;
  }
  /// One past the last block of queries that sees a key of this block.
  TRIREME_DEVICE_FUNCTION int end_query_block(const Arguments& a) const {
    const int end = with_documents ? end_query : first_key() + Tile::keys + a.shape.back;
    return ((end < a.shape.sequence ? end : a.shape.sequence) + Tile::queries - 1) / Tile::queries;
  }
  TRIREME_DEVICE_FUNCTION Step first_step(const Arguments& a) const {
    return {first_head, first_query_block(a)};
  }
  TRIREME_DEVICE_FUNCTION bool is_step(const Step& step) const { return step.h < end_head; }
  TRIREME_DEVICE_FUNCTION Step next(const Arguments& a, Step step) const {
    if (++step.query_block < end_query_block(a)) return step;
    return {step.h + 1, first_query_block(a)};
  }

  /// Index of the step's block of queries among the blocks of queries of all heads and samples.
  TRIREME_DEVICE_FUNCTION int turn(const Arguments& a, const Step& step) const {
    return (b * a.shape.heads + step.h) * a.query_blocks + step.query_block;
  }
  /// Whether the step's queries see no keys before (is_first) or after (is_last) this block.
  TRIREME_DEVICE_FUNCTION bool is_first(const Arguments& a, const Step& step) const {
    if (key_block == 0 || first_key() + a.shape.back <= first_query(step)) return true;
    if constexpr (with_documents)
      return first_key() <= a.shape.document_start(b, first_query(step));
    return false;
  }
  TRIREME_DEVICE_FUNCTION bool is_last(const Arguments& a, const Step& step) const {
    return first_key() + Tile::keys >= a.shape.end_key(first_query(step) + Tile::queries - 1);
  }
  TRIREME_DEVICE_FUNCTION std::int64_t first_token(const Arguments& a) const {
    return std::int64_t{b} * a.shape.sequence;
  }

 private:
  /// One past the last query that sees the last key of this block. No later query sees an earlier
  /// key, because documents begin in order.
  TRIREME_DEVICE_FUNCTION int last_in_documents(const FlashShape& s) const {
    const int last = first_key() + Tile::keys - 1;
    int begin = first_key(), end = last + 1 + s.back;  // queries before `begin` see the key
    if (end > s.sequence) end = s.sequence;
    while (begin < end) {
      const int middle = begin + (end - begin) / 2;
      if (s.document_start(b, middle) <= last)
        begin = middle + 1;
      else
        end = middle;
    }
    return end;
  }
};

/// Position of a thread in the block: its lane and its warp.
template <int head_size>
struct FlashBackwardLanes {
  using Tile = FlashBackwardTile<head_size>;

  int lane, warp;

  TRIREME_DEVICE_FUNCTION explicit FlashBackwardLanes(int thread)
      : lane(thread % warp_lanes), warp(thread / warp_lanes) {}

  /// key(), query(), element(): first key of the warp in the block, first query of its side in the
  /// step, and first element of its side of the head.
  TRIREME_DEVICE_FUNCTION int key() const { return warp / Tile::sides * Tile::warp_keys; }
  TRIREME_DEVICE_FUNCTION int query() const { return warp % Tile::sides * Tile::side_queries; }
  TRIREME_DEVICE_FUNCTION int element() const { return warp % Tile::sides * Tile::side_elements; }

  /// Addresses of a lane's operands in rows of `columns` elements at offset `at` of shared memory.
  template <int columns, class Block>
  TRIREME_DEVICE_FUNCTION FragmentPlaces<columns> places(Block& block, Fragment kind,
                                                         std::uint32_t at) const {
    return FragmentPlaces<columns>({block.shared() + at}, kind, unknown(block, lane));
  }
};

}  // namespace trireme::kernels
