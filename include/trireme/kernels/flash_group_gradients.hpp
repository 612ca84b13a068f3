#pragma once

#include <trireme/kernels/flash_group_backward_tile.hpp>
#include <trireme/kernels/warp_tiles.hpp>

#include <cstdint>

/// Work of GroupBackward's two multiplying warpgroups. A step has five products, in this order of
/// issue (S: scores, P: probabilities, D: the gradient of S):
///
///     dV += Pᵀ·dO   dQ = D·K   dK += Dᵀ·Q   and, of the next step,   Sᵀ = K·Qᵀ   dPᵀ = V·dOᵀ
///
/// P of the next step is computed while the product for its dP runs, and dQ is stored while the
/// product for dK runs. No branch decides whether a product is issued while another runs: otherwise
/// the assembler serialises the products.
namespace trireme::kernels {

/// `columns`: number of columns of the group's gradients of keys and values.
template <class T, int head_size, bool with_dropout, int columns>
class GroupGradients {
 public:
  using Tile = GroupBackwardTile<head_size>;
  using Arguments = GroupBackwardArguments<T>;
  using Place = FlashBackwardPlace<Tile, Arguments>;

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void run(Block& block, const Arguments& a, const Place& place) {
    const Lanes first{block.thread() - group_threads};
    Lanes lanes = first;
    float keys[columns / 8][4], values[columns / 8][4], scores[score_tiles][4],
        grads[score_tiles][4];
    clear(keys);
    clear(values);
    block.begin_products(keys, values);  // zeros are written before products run
    block.await_phase(phases(block, Tile::keys_full), 0);
    multiply_scores(block, lanes, 0, scores);
    block.await_phase(phases(block, Tile::values_full), 0);
    multiply_grads(block, lanes, 0, grads);
    block.template wait_products<1>(scores);
    Step step = place.first_step(a);
    for (int count = 0;; ++count) {
      lanes = first.again(block);
      probabilities(block, a, place, lanes, step, count, scores);
      finish(block, scores);
      block.template wait_products<0>(grads);
      std::uint32_t p[score_tiles / 2][4];
      lanes = first.again(block);
      score_gradients(block, a, lanes, count, scores, grads, p);
      if constexpr (!Tile::shares) {
        block.begin_products(values, p);
        multiply_rows(block, values, p, grad_rows(block, count));
        block.commit_products();
      }
      block.publish_to_products();
      block.meet(1, 2 * group_threads);  // both groups have stored D, and P if they share keys
      if constexpr (Tile::shares) {
        block.begin_products(values);
        multiply_rows(block, lanes, values, Tile::scores_at, count & 1, grad_rows(block, count));
        block.commit_products();
      }
      float sums[sum_columns / 8][4];
      lanes = first.again(block);
      multiply_keys(block, lanes, count & 1, sums);
      block.template wait_products<1>(values, p);
      release(block, lanes, Tile::grads_empty, grad_ring(count).stage);
      block.begin_products(keys);
      multiply_rows(block, lanes, keys, Tile::score_grads_at, count & 1, query_rows(block, count));
      step = place.next(a, step);
      // The last step multiplies its own queries again, to avoid a branch.
      const int following = count + (place.is_step(step) ? 1 : 0);
      if constexpr (Tile::shares)
        block.commit_products();
      else
        multiply_scores(block, lanes, following, scores);  // in the same batch as dK
      block.template wait_products<1>(sums);
      lanes = first.again(block);
      store_sums(block, lanes, count, sums);
      if constexpr (Tile::shares) multiply_scores(block, lanes, following, scores);
      block.template wait_products<0>(keys, scores);
      release(block, lanes, Tile::queries_empty, query_ring(count).stage);
      if (following == count) break;
      multiply_grads(block, lanes, following, grads);
    }
    write(block, a, place, lanes, keys, values);
  }

 private:
  using Step = FlashBackwardStep;
  using Lanes = GroupBackwardLanes<Tile>;
  static constexpr int score_tiles = Tile::score_queries / 8;
  static constexpr int head_steps = head_size / 16;
  static constexpr int drop_words = (score_tiles + 7) / 8;
  /// Columns of the group's part of the queries' gradient; columns beyond the head size are zero.
  static constexpr int sum_columns = Tile::shares ? columns : Tile::side;
  using ScoreSums = float[score_tiles][4];
  using Packed = std::uint32_t[score_tiles / 2][4];

  /// Position of item number `count` in a ring of `stages` buffers.
  template <int stages>
  TRIREME_DEVICE_FUNCTION static RingPlace ring(int count) {
    static_assert(stages == 1 || stages == 2);
    return stages == 1 ? RingPlace{0, static_cast<std::uint32_t>(count & 1)}
                       : RingPlace{count & 1, static_cast<std::uint32_t>(count >> 1 & 1)};
  }
  TRIREME_DEVICE_FUNCTION static RingPlace query_ring(int count) {
    return ring<Tile::query_stages>(count);
  }
  TRIREME_DEVICE_FUNCTION static RingPlace grad_ring(int count) {
    return ring<Tile::grad_stages>(count);
  }

  TRIREME_DEVICE_FUNCTION static void clear(float (&sums)[columns / 8][4]) {
#pragma unroll
    for (int n = 0; n < columns / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = 0.0F;
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static typename Tile::Queries query_rows(Block& block, int count) {
    return {block.shared() + Tile::queries_at +
            static_cast<std::uint32_t>(query_ring(count).stage) * Tile::Queries::bytes};
  }
  template <class Block>
  TRIREME_DEVICE_FUNCTION static typename Tile::Queries grad_rows(Block& block, int count) {
    return {block.shared() + Tile::grads_at +
            static_cast<std::uint32_t>(grad_ring(count).stage) * Tile::Queries::bytes};
  }
  template <class Block>
  TRIREME_DEVICE_FUNCTION static typename Tile::Scores score_rows(Block& block, std::uint32_t at,
                                                                  int buffer) {
    return {block.shared() + at + static_cast<std::uint32_t>(buffer) * Tile::Scores::bytes};
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void release(Block& block, const Lanes& lanes, std::uint32_t ring,
                                              int stage) {
    if (lanes.lane() == 0) block.arrive(phases(block, ring, stage));
  }

  /// Issues a batch: scores = keys · queriesᵀ. Waits for the queries first.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void multiply_scores(Block& block, const Lanes& lanes, int count,
                                                      ScoreSums& scores) {
    block.await_phase(phases(block, Tile::queries_full, query_ring(count).stage),
                      query_ring(count).parity);
    multiply_heads(block, lanes, scores, Tile::keys_at, query_rows(block, count));
  }
  /// Issues a batch: grads = values · (gradients of o)ᵀ. Waits for the gradients first.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void multiply_grads(Block& block, const Lanes& lanes, int count,
                                                     ScoreSums& grads) {
    block.await_phase(phases(block, Tile::grads_full, grad_ring(count).stage),
                      grad_ring(count).parity);
    multiply_heads(block, lanes, grads, Tile::values_at, grad_rows(block, count));
  }
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void multiply_heads(Block& block, const Lanes& lanes,
                                                     ScoreSums& sums, std::uint32_t keys_at,
                                                     const typename Tile::Queries& queries) {
    // Opaque to the compiler, so that no register keeps the address.
    const typename Tile::Keys keys{block.unknown(block.shared() + keys_at)};
    block.begin_products(sums);
#pragma unroll
    for (int k = 0; k < head_steps; ++k)
      block.template multiply<T, Tile::score_queries, Major::depth, Major::depth>(
          sums, keys.depth_major(lanes.key(), k), queries.depth_major(lanes.query(), k), k > 0);
    block.commit_products();
  }

  /// sums += scores · (rows of queries or of gradients of o), with the scores in registers.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void multiply_rows(Block& block, float (&sums)[columns / 8][4],
                                                    const Packed& scores,
                                                    const typename Tile::Queries& rows) {
#pragma unroll
    for (int k = 0; k < score_tiles / 2; ++k)
      block.template multiply_left<T, columns, Major::edge>(sums, scores[k], rows.edge_major(0, k),
                                                            true);
  }
  /// sums += scores · (rows of queries or of gradients of o) for the group's side of the elements,
  /// with the scores of all queries in shared memory.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void multiply_rows(Block& block, const Lanes& lanes,
                                                    float (&sums)[columns / 8][4],
                                                    std::uint32_t scores_at, int buffer,
                                                    const typename Tile::Queries& rows) {
    const auto scores = score_rows(block, scores_at, buffer);
#pragma unroll
    for (int k = 0; k < Tile::queries / 16; ++k)
      block.template multiply<T, columns, Major::depth, Major::edge>(
          sums, scores.depth_major(lanes.key(), k), rows.edge_major(lanes.column(), k), true);
  }

  /// Issues a batch: the group's part of the queries' gradient, from all keys of the block.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void multiply_keys(Block& block, const Lanes& lanes, int buffer,
                                                    float (&sums)[sum_columns / 8][4]) {
    const auto scores = score_rows(block, Tile::score_grads_at, buffer);
    const typename Tile::Keys keys{block.unknown(block.shared() + Tile::keys_at)};
    block.begin_products(sums);
#pragma unroll
    for (int k = 0; k < Tile::keys / 16; ++k)
      block.template multiply<T, sum_columns, Major::edge, Major::edge>(
          sums, scores.edge_major(lanes.sum_row(), k), keys.edge_major(lanes.sum_column(), k),
          k > 0);
    block.commit_products();
  }

  /// scores become p = exp(scale · score − logsumexp); dropped probabilities become −p.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void probabilities(Block& block, const Arguments& a,
                                                    const Place& place, const Lanes& lanes,
                                                    const Step& step, int count,
                                                    ScoreSums& scores) {
    const float c = a.shape.scale * log2e;
    const int lane = lanes.lane();
    const int g = lane / 4, t = lane % 4;
    const int group_key = place.first_key() + lanes.key(), key = group_key + 16 * lanes.warp() + g;
    const int first_query = place.first_query(step) + lanes.query();
    const bool masked = place.first_key() + Tile::keys > a.shape.sequence ||
                        group_key + 64 - a.shape.ahead > first_query + 1 ||
                        group_key + a.shape.back < first_query + Tile::score_queries - 1;
    if (masked) hide(a.shape, key, first_query + 2 * t, scores);
    std::uint32_t drops[drop_words] = {};
    if constexpr (with_dropout)
      find_drops(block, a,
                 a.dropout.first_element(a.shape, place.b, step.h) +
                     static_cast<std::uint64_t>(first_query) *
                         static_cast<std::uint64_t>(a.shape.sequence) +
                     static_cast<std::uint64_t>(key - g),
                 drops);
    const std::uint32_t at = statistics(block, lanes, count, t);
#pragma unroll
    for (int n = 0; n < score_tiles; ++n) {
      float logsumexp[2];
      block.load_pair(logsumexp, at + 32 * static_cast<std::uint32_t>(n));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float p = block.exp2(scores[n][i] * c - logsumexp[i % 2]);
        const bool dropped = with_dropout && (drops[4 * n / 32] >> (4 * n % 32 + i) & 1U) != 0;
        scores[n][i] = dropped ? -p : p;
      }
    }
  }

  /// Bit 4 n + i of `drops`: whether dropout drops the lane's probability i in tile n. `element`:
  /// index of the probability of the warp's first query and key. The loop is not unrolled, to save
  /// registers.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void find_drops(Block& block, const Arguments& a,
                                                 std::uint64_t element,
                                                 std::uint32_t (&drops)[drop_words]) {
#pragma unroll
    for (int word = 0; word < drop_words; ++word) {
      drops[word] = 0;
#pragma unroll 1
      for (int n = 0; n < 8 && 8 * word + n < score_tiles; ++n) {
        bool dropped[4];
        a.dropout.drops_of_keys(block, dropped, element, a.shape.sequence);
        element += 8 * static_cast<std::uint64_t>(a.shape.sequence);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          drops[word] |= static_cast<std::uint32_t>(dropped[i]) << (4 * n + i);
      }
    }
  }

  /// Sets scores to −∞, and so p to 0, for keys beyond the sequence and for keys that a query does
  /// not see. `key` and `query` are the lane's first key and query.
  TRIREME_DEVICE_FUNCTION static void hide(const FlashShape& s, int key, int query,
                                           ScoreSums& scores) {
    const auto farthest = static_cast<unsigned>(s.back + s.ahead);
#pragma unroll
    for (int n = 0; n < score_tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int j = key + i / 2 * 8;
        const int distance = query + 8 * n + i % 2 - j + s.ahead;
        const bool hidden = j >= s.sequence || static_cast<unsigned>(distance) > farthest;
        scores[n][i] = hidden ? -__builtin_inff() : scores[n][i];
      }
  }

  TRIREME_DEVICE_FUNCTION static bool is_dropped(float p) {
    return with_dropout && __builtin_bit_cast(std::int32_t, p) < 0;
  }

  /// Ensures that p is computed before the next wait: see settle() in warpgroup_tiles.hpp.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void finish(Block& block, const ScoreSums& p) {
    std::uint32_t all = 0;
#pragma unroll
    for (int n = 0; n < score_tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) all += __builtin_bit_cast(std::uint32_t, p[n][i]);
    block.settle(__builtin_bit_cast(float, all));
  }

  /// Computes ds = p (f dp − delta) from p in `scores` and dp in `grads`, where f is 0 for dropped
  /// probabilities, otherwise `kept` (1 without dropout). Stores ds for both groups. Packs p, and
  /// stores it too if the groups share keys.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void score_gradients(Block& block, const Arguments& a,
                                                      const Lanes& lanes, int count,
                                                      const ScoreSums& scores,
                                                      const ScoreSums& grads, Packed& packed) {
    const int lane = lanes.lane();
    const std::uint32_t at = statistics(block, lanes, count, lane % 4) + Tile::delta_after;
    const int row = lanes.key() + 16 * lanes.warp() + lane % 16;
    const int piece = lanes.query() / 8 + lane / 16;
    const auto to = score_rows(block, Tile::score_grads_at, count & 1);
    const auto shared = score_rows(block, Tile::scores_at, count & 1);
#pragma unroll
    for (int k = 0; k < score_tiles / 2; ++k) {
      std::uint32_t d[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int n = 2 * k + half;
        float delta[2], p[4], ds[4];
        block.load_pair(delta, at + 32 * static_cast<std::uint32_t>(n));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float dp = grads[n][i];
          p[i] = scores[n][i];
          if constexpr (with_dropout) {
            const bool dropped = __builtin_bit_cast(std::int32_t, p[i]) < 0;
            dp = dropped ? 0.0F : dp * a.dropout.kept;
            ds[i] = __builtin_fabsf(p[i]) * (dp - delta[i % 2]);
            p[i] = dropped ? 0.0F : p[i];
          } else {
            ds[i] = p[i] * (dp - delta[i % 2]);
          }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          packed[k][2 * half + i] = block.template pack<T>(p[2 * i], p[2 * i + 1]);
          d[2 * half + i] = block.template pack<T>(ds[2 * i], ds[2 * i + 1]);
        }
      }
      block.store_matrices(to.at(row, piece + 2 * k), d);
      if constexpr (Tile::shares) block.store_matrices(shared.at(row, piece + 2 * k), packed[k]);
    }
  }

  /// Address of logsumexp of the lane's first query.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static std::uint32_t statistics(Block& block, const Lanes& lanes,
                                                          int count, int t) {
    return block.shared() + Tile::statistics_at +
           static_cast<std::uint32_t>(query_ring(count).stage) * Tile::statistics_bytes +
           4 * static_cast<std::uint32_t>(lanes.query() + 2 * t);
  }

  /// Passes the group's part of the gradient of queries to the warp that adds it.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void store_sums(Block& block, const Lanes& lanes, int count,
                                                 const float (&sums)[sum_columns / 8][4]) {
    int tiles = sum_columns / 8;
    if constexpr (2 * Tile::side > head_size && !Tile::splits_queries && !Tile::shares)
      tiles = lanes.group() == 0 ? tiles : head_size / 8 - tiles;
#pragma unroll
    for (int round = 0; round < Tile::sum_rounds; ++round) {
      const RingPlace slot = ring<Tile::sum_slots>(count * Tile::sum_rounds + round);
      block.await_phase(phases(block, Tile::sums_empty, slot.stage), slot.parity ^ 1);
      const std::uint32_t to =
          block.shared() + Tile::sums_at +
          static_cast<std::uint32_t>(slot.stage) * Tile::sum_bytes +
          static_cast<std::uint32_t>(lanes.group() * Tile::sum_tiles) * Tile::sum_tile_bytes +
          16 * static_cast<std::uint32_t>(lanes.warp() * warp_lanes + lanes.lane());
#pragma unroll
      for (int n = 0; n < Tile::sum_tiles; ++n) {
        const int from = round * Tile::sum_tiles + n;
        if (from < sum_columns / 8 && from < tiles)
          block.store_sums(to + static_cast<std::uint32_t>(n) * Tile::sum_tile_bytes, sums[from]);
      }
      block.publish_to_products();
      block.warp_barrier();
      if (lanes.lane() == 0) block.arrive(phases(block, Tile::sums_full, slot.stage));
    }
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void write(Block& block, const Arguments& a, const Place& place,
                                            const Lanes& lanes, const float (&keys)[columns / 8][4],
                                            const float (&values)[columns / 8][4]) {
    const float scale[2] = {a.shape.scale, a.shape.scale};
    const float kept[2] = {a.dropout.kept, a.dropout.kept};
    const int key = place.first_key() + lanes.key() + 16 * lanes.warp() + lanes.lane() / 4;
    const bool valid[2] = {key < a.shape.sequence, key + 8 < a.shape.sequence};
    T* row = a.dqkv + (place.first_token(a) + key) * a.dqkv_stride +
             (a.shape.heads + place.kv) * head_size + lanes.column();
    write_sums<T, columns / 8>(block, row, a.dqkv_stride, valid, scale, keys);
    write_sums<T, columns / 8>(block, row + a.shape.key_value_heads * head_size, a.dqkv_stride,
                               valid, kept, values);
  }

  static constexpr float log2e = 1.44269504F;
};

}  // namespace trireme::kernels
