#pragma once

#include <trireme/kernels/flash_group_gradients.hpp>

#include <cstdint>

namespace trireme::kernels {

/// FlashBackward with warpgroup products, as in FlashAttention-3 (Shah et al. 2024, arXiv
/// 2407.08608). The first group does not multiply. Its warp 0 copies rows. Its warp 1 adds the
/// block's parts of the queries' gradients to the sums, in the order of keys. Its warps 2 and 3
/// round complete sums. The grid has B·Hkv·key_blocks blocks, which take tickets.
template <class T, int head_size, bool with_dropout>
class GroupBackward {
 public:
  using Tile = GroupBackwardTile<head_size>;
  using Arguments = GroupBackwardArguments<T>;

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void run(Block& block, const Arguments& a) {
    if (block.thread() == 0) init(block);
    const auto ticket = static_cast<int>(block.take_ticket(a.ticket));
    block.barrier();
    const int group = block.group();
    if (group == 0) {
      block.template lower_registers<Tile::helper_registers>();
      help(block, a, ticket);
      return;
    }
    block.template raise_registers<Tile::group_registers>();
    const Place place = place_of(block, a, ticket);
    if constexpr (!Tile::shares) {
      GroupGradients<T, head_size, with_dropout, head_size>::run(block, a, place);
    } else if constexpr (head_size == 2 * Tile::side) {
      GroupGradients<T, head_size, with_dropout, Tile::side>::run(block, a, place);
    } else {
      if (group == 1)
        GroupGradients<T, head_size, with_dropout, Tile::side>::run(block, a, place);
      else
        GroupGradients<T, head_size, with_dropout, head_size - Tile::side>::run(block, a, place);
    }
  }

 private:
  using Place = FlashBackwardPlace<Tile, Arguments>;
  using Step = FlashBackwardStep;
  static constexpr int users = 2 * group_threads / warp_lanes;  // warps that multiply
  static constexpr int rounding_warps = 2;

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void init(Block& block) {
    block.init_phases(phases(block, Tile::keys_full), 1);
    block.init_phases(phases(block, Tile::values_full), 1);
    for (int i = 0; i < Tile::query_stages; ++i) {
      block.init_phases(phases(block, Tile::queries_full, i), 2);  // for rows and statistics
      block.init_phases(phases(block, Tile::queries_empty, i), users);
    }
    for (int i = 0; i < Tile::grad_stages; ++i) {
      block.init_phases(phases(block, Tile::grads_full, i), 1);
      block.init_phases(phases(block, Tile::grads_empty, i), users);
    }
    for (int i = 0; i < Tile::sum_slots; ++i) {
      block.init_phases(phases(block, Tile::sums_full, i), users);
      block.init_phases(phases(block, Tile::sums_empty, i), 1);
    }
    block.publish_phases();
  }

  /// Each kind of warp computes the place: a common place would stay in registers of all warps.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static Place place_of(Block& block, const Arguments& a, int ticket) {
    return Place(a, unknown(block, ticket));
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void help(Block& block, const Arguments& a, int ticket) {
    const int warp = block.thread() / warp_lanes, lane = block.thread() % warp_lanes;
    if (warp == 0)
      copy(block, a, place_of(block, a, ticket), lane);
    else if (warp == 1)
      add(block, a, place_of(block, a, ticket), lane);
    else
      round(block, a, place_of(block, a, ticket));
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void copy(Block& block, const Arguments& a, const Place& place,
                                           int lane) {
    const FlashShape& s = a.shape;
    const int key_head = s.heads + place.kv;
    const typename Tile::Keys keys{block.shared() + Tile::keys_at};
    const typename Tile::Keys values{block.shared() + Tile::values_at};
    if (lane == 0) {
      block.prefetch(a.qkv_map);
      block.prefetch(a.grad_map);
      copy_rows(block, keys, a.qkv_map, key_head, place.first_key(), place.b,
                phases(block, Tile::keys_full));
    }
    bool first = true;
    RingPlace queries, grads;
    for (Step step = place.first_step(a); place.is_step(step); step = place.next(a, step)) {
      const int q0 = place.first_query(step);
      block.await_phase(phases(block, Tile::queries_empty, queries.stage), queries.parity ^ 1);
      const std::uint32_t queries_full = phases(block, Tile::queries_full, queries.stage);
      if (lane == 0)
        copy_rows(block, ring_rows(block, Tile::queries_at, queries.stage), a.qkv_map, step.h, q0,
                  place.b, queries_full);
      copy_statistics(block, a, place, step, lane, queries.stage);
      block.warp_barrier();
      if (lane == 0) block.arrive(queries_full);
      if (first && lane == 0)
        copy_rows(block, values, a.qkv_map, key_head + s.key_value_heads, place.first_key(),
                  place.b, phases(block, Tile::values_full));
      first = false;
      block.await_phase(phases(block, Tile::grads_empty, grads.stage), grads.parity ^ 1);
      if (lane == 0)
        copy_rows(block, ring_rows(block, Tile::grads_at, grads.stage), a.grad_map, step.h, q0,
                  place.b, phases(block, Tile::grads_full, grads.stage));
      queries.template next<Tile::query_stages>();
      grads.template next<Tile::grad_stages>();
    }
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static typename Tile::Queries ring_rows(Block& block, std::uint32_t at,
                                                                  int stage) {
    return {block.shared() + at + static_cast<std::uint32_t>(stage) * Tile::Queries::bytes};
  }

  template <int rows, class Block>
  TRIREME_DEVICE_FUNCTION static void copy_rows(Block& block, const GroupRows<rows, head_size>& to,
                                                const TensorMap& map, int head, int row, int b,
                                                std::uint32_t full) {
    block.arrive(full, to.bytes);
#pragma unroll
    for (int chunk = 0; chunk < to.chunks; ++chunk)
#pragma unroll
      for (int r = 0; r < rows; r += Tile::box_rows)
        block.copy_box(to.chunk(chunk) + static_cast<std::uint32_t>(r) * to.row_bytes, map,
                       64 * chunk, head, row + r, b, full);
  }

  /// Stores logsumexp of the step's queries in base 2, and delta; zeros beyond the sequence.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void copy_statistics(Block& block, const Arguments& a,
                                                      const Place& place, const Step& step,
                                                      int lane, int stage) {
    constexpr float log2e = 1.44269504F;
    const int q0 = place.first_query(step);
    const std::int64_t element =
        (std::int64_t{place.b} * a.shape.heads + step.h) * a.shape.sequence + q0;
    const std::uint32_t to = block.shared() + Tile::statistics_at +
                             static_cast<std::uint32_t>(stage) * Tile::statistics_bytes;
#pragma unroll
    for (int i = lane; i < Tile::queries; i += warp_lanes) {
      const bool valid = q0 + i < a.shape.sequence;
      const float logsumexp = valid ? a.logsumexp[element + i] * log2e : 0.0F;
      const float delta = valid ? a.delta[element + i] : 0.0F;
      const std::uint32_t word = to + 4 * static_cast<std::uint32_t>(i);
      block.store(word, __builtin_bit_cast(std::uint32_t, logsumexp));
      block.store(word + Tile::delta_after, __builtin_bit_cast(std::uint32_t, delta));
    }
  }

  /// Address of the sums of a step's queries. The sums of each head have a multiple of 64 rows.
  TRIREME_DEVICE_FUNCTION static float* sums_of(const Arguments& a, const Place& place,
                                                const Step& step) {
    const std::int64_t plane = std::int64_t{place.b} * a.shape.heads + step.h;
    return a.sums +
           (plane * ((a.shape.sequence + 63) / 64 * 64) + place.first_query(step)) * head_size;
  }
  /// Number of a step's rows in the workspace, 64 or 128, including rows beyond the sequence.
  TRIREME_DEVICE_FUNCTION static int sum_rows(const Arguments& a, const Place& place,
                                              const Step& step) {
    return Tile::splits_queries && place.first_query(step) + 64 >= a.shape.sequence ? 64
                                                                                    : Tile::queries;
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void add(Block& block, const Arguments& a, const Place& place,
                                          int lane) {
    if (lane != 0) return;
    RingPlace slot;
    for (Step step = place.first_step(a); place.is_step(step); step = place.next(a, step)) {
      const bool first = place.is_first(a, step);
      const int turn = place.turn(a, step);
      const std::uint32_t bytes =
          Tile::sum_bytes / Tile::queries * static_cast<std::uint32_t>(sum_rows(a, place, step));
      if (!first) block.await(a.turns + turn, static_cast<unsigned>(place.key_block));
#pragma unroll
      for (int round = 0; round < Tile::sum_rounds; ++round) {
        block.await_phase(phases(block, Tile::sums_full, slot.stage), slot.parity);
        block.send_sums(sums_of(a, place, step) + round * static_cast<int>(Tile::sum_bytes / 4),
                        block.shared() + Tile::sums_at +
                            static_cast<std::uint32_t>(slot.stage) * Tile::sum_bytes,
                        bytes, !first);
        block.await_read();
        block.arrive(phases(block, Tile::sums_empty, slot.stage));
        slot.template next<Tile::sum_slots>();
      }
      block.await_sent();
      block.release(a.turns + turn, static_cast<unsigned>(place.key_block + 1));
    }
  }

  /// Rounds the sums of queries that see no later keys, after this block has added its parts.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void round(Block& block, const Arguments& a, Place place) {
    for (Step step = place.first_step(a); place.is_step(step); step = place.next(a, step)) {
      // Opaque to the compiler, so that no register keeps values computed from key_block.
      place.key_block = unknown(block, place.key_block);
      if (!place.is_last(a, step)) continue;
      const int turn = place.turn(a, step);
      if (block.thread() % warp_lanes == 0)
        block.await(a.turns + turn, static_cast<unsigned>(place.key_block + 1));
      block.warp_barrier();
      const int rows = sum_rows(a, place, step);
#pragma unroll 1
      for (int row = unknown(block, block.thread()) / warp_lanes % rounding_warps * 16; row < rows;
           row += 16 * rounding_warps)
        round_rows(block, a, place, step, unknown(block, row));
    }
  }

  /// Rounds the 16 rows from `row` on: the rows of one warp's fragments.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void round_rows(Block& block, const Arguments& a,
                                                 const Place& place, const Step& step, int row) {
    constexpr int side_tiles = Tile::side / 8;
    const int lane = unknown(block, block.thread()) % warp_lanes;
    const float scale[2] = {a.shape.scale, a.shape.scale};
    const int query = place.first_query(step) + row + lane / 4;
    const bool valid[2] = {query < a.shape.sequence, query + 8 < a.shape.sequence};
    T* to = a.dqkv + (place.first_token(a) + query) * a.dqkv_stride + step.h * head_size;
    const float* from = sums_of(a, place, step) + (row % 64 / 16 * warp_lanes + lane) * 4;
#pragma unroll 1
    for (int n = 0; n < head_size / 8; n += 4) {
      const int tile = Tile::splits_queries ? Tile::sum_tile(row / 64, n)
                                            : Tile::sum_tile(n / side_tiles, n % side_tiles);
      float x[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) block.read4(x[i], from + (tile + i) * 512);
      write_sums<T, 4>(block, to + 8 * n, a.dqkv_stride, valid, scale, x);
    }
  }
};

}  // namespace trireme::kernels
