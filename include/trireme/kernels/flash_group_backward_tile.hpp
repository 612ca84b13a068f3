#pragma once

#include <trireme/kernels/flash_backward_tile.hpp>
#include <trireme/kernels/warpgroup_tiles.hpp>

#include <cstdint>

/// Sizes, arguments and barriers of GroupBackward.
namespace trireme::kernels {

/// Keys per block. The gradients of keys and values stay in the registers of two groups.
constexpr int group_backward_keys(std::int64_t head_size) {
  return head_size > 128 ? 64 : 128;
}

/// Sizes of a block of threads. Two warpgroups multiply. A third warpgroup copies rows, and adds
/// and rounds sums. For head sizes up to 128, each multiplying group has 64 keys, with all queries
/// and all elements. For larger heads, the gradients of 64 keys fill the registers of both groups.
/// The groups then have the same keys (`shares`). Each group has half of the queries for the scores
/// and one side of the elements for the gradients, and the groups exchange probabilities and
/// gradients of scores through shared memory.
template <int head_size>
struct GroupBackwardTile {
  static constexpr int threads = 3 * group_threads;
  static constexpr int helper_registers = 56, group_registers = 224;
  static constexpr bool shares = head_size > 128;  // groups share keys
  static constexpr int keys = group_backward_keys(head_size);
  static constexpr int queries = head_size <= 64 ? 128 : 64;
  static constexpr int score_queries = shares ? queries / 2 : queries;  // queries of a group
  /// Whether a group computes the gradient of 64 of the queries and all elements; otherwise of all
  /// queries and one side of the elements.
  static constexpr bool splits_queries = queries > 64;
  static constexpr int side = shares ? 128 : 64;

  using Keys = GroupRows<keys, head_size>;
  using Queries = GroupRows<queries, head_size>;
  using Scores = GroupRows<keys, queries>;

  static constexpr int box_rows = 64;
  static constexpr int query_stages = 2;
  static constexpr int grad_stages = head_size > 192 ? 1 : 2;
  /// The gradients of queries are passed to the adding warp in `sum_rounds` rounds, through
  /// `sum_slots` slots of shared memory.
  static constexpr int sum_rounds = head_size > 192 ? 2 : 1;
  static constexpr int sum_slots = head_size > 64 && head_size <= 128 ? 2 : 1;
  static constexpr int sum_tiles = side / 8 / sum_rounds;  // maximum tiles per group and round
  static constexpr std::uint32_t sum_tile_bytes = 4 * 64 * 8;
  static constexpr std::uint32_t sum_bytes = 4 * queries * head_size / sum_rounds;

  static constexpr std::uint32_t keys_at = 0;
  static constexpr std::uint32_t values_at = keys_at + Keys::bytes;
  static constexpr std::uint32_t queries_at = values_at + Keys::bytes;
  static constexpr std::uint32_t grads_at = queries_at + query_stages * Queries::bytes;
  static constexpr std::uint32_t score_grads_at = grads_at + grad_stages * Queries::bytes;
  static constexpr std::uint32_t scores_at = score_grads_at + 2 * Scores::bytes;
  static constexpr std::uint32_t sums_at = scores_at + (shares ? 2 * Scores::bytes : 0);
  static constexpr std::uint32_t statistics_at = sums_at + sum_slots * sum_bytes;
  static constexpr std::uint32_t delta_after = 4 * queries;  // offset of delta from logsumexp
  static constexpr std::uint32_t statistics_bytes = 2 * delta_after;

  // Offsets of the phase barriers in shared memory.
  static constexpr std::uint32_t keys_full = statistics_at + query_stages * statistics_bytes;
  static constexpr std::uint32_t values_full = keys_full + 8;
  static constexpr std::uint32_t queries_full = values_full + 8;
  static constexpr std::uint32_t queries_empty = queries_full + 8 * query_stages;
  static constexpr std::uint32_t grads_full = queries_empty + 8 * query_stages;
  static constexpr std::uint32_t grads_empty = grads_full + 8 * grad_stages;
  static constexpr std::uint32_t sums_full = grads_empty + 8 * grad_stages;
  static constexpr std::uint32_t sums_empty = sums_full + 8 * sum_slots;
  static constexpr std::uint32_t shared_bytes = sums_empty + 8 * sum_slots;
  static_assert(shared_bytes + 1024 + 64 <= 227 * 1024);

  /// Index in memory of a 64×8 tile of the sums of queries; `n` is the tile's index in its group.
  TRIREME_DEVICE_FUNCTION static int sum_tile(int group, int n) {
    return (n / sum_tiles * 2 + group) * sum_tiles + n % sum_tiles;
  }
};

template <class T>
struct GroupBackwardArguments : FlashBackwardArguments<T> {
  TensorMap qkv_map;   // [K, H + 2 Hkv, S, B], boxes of 64 rows of 64 elements
  TensorMap grad_map;  // [K, H, S, B], boxes as in qkv_map
};

/// Address of barrier number `stage` of the ring of barriers at offset `at`.
template <class Block>
TRIREME_DEVICE_FUNCTION std::uint32_t phases(Block& block, std::uint32_t at, int stage = 0) {
  return block.shared() + at + 8 * static_cast<std::uint32_t>(stage);
}

/// Position of a lane, computed at each use from one register.
template <class Tile>
struct GroupBackwardLanes {
  int thread;  // thread within the multiplying groups

  /// A copy that is opaque to the compiler: no register keeps values computed from the original.
  template <class Block>
  TRIREME_DEVICE_FUNCTION GroupBackwardLanes again(Block& block) const {
    return {unknown(block, thread)};
  }
  TRIREME_DEVICE_FUNCTION int group() const { return thread / group_threads; }
  TRIREME_DEVICE_FUNCTION int warp() const { return thread % group_threads / warp_lanes; }
  TRIREME_DEVICE_FUNCTION int lane() const { return thread % warp_lanes; }

  /// First elements of the group's parts: key() and query() of the scores, sum_row() and
  /// sum_column() of the queries' gradient, and column() of the gradients of keys and values.
  TRIREME_DEVICE_FUNCTION int key() const { return Tile::shares ? 0 : 64 * group(); }
  TRIREME_DEVICE_FUNCTION int query() const {
    return Tile::shares ? Tile::score_queries * group() : 0;
  }
  TRIREME_DEVICE_FUNCTION int sum_row() const { return Tile::splits_queries ? 64 * group() : 0; }
  TRIREME_DEVICE_FUNCTION int sum_column() const {
    return Tile::splits_queries ? 0 : Tile::side * group();
  }
  TRIREME_DEVICE_FUNCTION int column() const { return Tile::shares ? Tile::side * group() : 0; }
};

}  // namespace trireme::kernels
