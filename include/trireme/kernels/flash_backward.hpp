#pragma once

#include <trireme/kernels/flash_backward_tile.hpp>
#include <trireme/kernels/flash_query_sums.hpp>
#include <trireme/kernels/warp_tiles.hpp>

#include <cstdint>

namespace trireme::kernels {

/// Gradients for one block of keys of one head of keys and values, from all queries that see the
/// block (Dao 2023, arXiv 2307.08691, algorithm 2). Scores are computed transposed, with keys as
/// rows, because the products for the gradients of keys and values need this form. Blocks of keys
/// add to the sums of the queries' gradients in the order of keys; the last block rounds the sums.
/// A block of threads takes a ticket, which determines its keys, when it starts, so that it never
/// waits for a block that has not started. The grid has B·Hkv·key_blocks blocks.
template <class T, int head_size, bool with_dropout, bool with_documents = false>
class FlashBackward {
 public:
  using Tile = FlashBackwardTile<head_size>;
  using Arguments = FlashBackwardArguments<T>;

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void run(Block& block, const Arguments& a) {
    const Place place(a, static_cast<int>(block.take_ticket(a.ticket)));
    copy_keys(block, a, place);
    Step step = place.first_step(a);
    copy_step(block, a, place, step, 0);
    block.commit();
    Gradients sums;
    clear(sums.keys);
    clear(sums.values);
    const Lanes lanes(block.thread());
    int unreleased = -1;
    for (int buffer = 0; place.is_step(step); buffer ^= 1) {
      const Step now = step;
      step = place.next(a, step);
      block.template wait<0>();
      block.barrier();  // rows have arrived; no thread still computes the previous step
      release(block, a, place, unreleased);
      if (place.is_step(step)) copy_step(block, a, place, step, buffer ^ 1);
      block.commit();
      add_step(block, a, place, lanes, sums, now, buffer);
      unreleased = place.is_last(a, now) ? -1 : place.turn(a, now);
    }
    block.barrier();
    release(block, a, place, unreleased);
    write(block, a, place, sums);
  }

 private:
  using Rows = typename Tile::Rows;
  using Scores = typename Tile::Scores;
  using Copy = RowCopy<head_size, Tile::threads>;
  using Place = FlashBackwardPlace<Tile, Arguments, with_documents>;
  using Step = FlashBackwardStep;
  using Lanes = FlashBackwardLanes<head_size>;
  using QuerySums = FlashQuerySums<T, head_size>;
  static constexpr int row_tiles = Tile::row_tiles;
  static constexpr int query_tiles = Tile::side_queries / 8;
  static constexpr int head_tiles = Tile::side_elements / 8;
  static constexpr int steps = Tile::queries / 16;  // steps of the products over queries
  using ScoreSums = float[row_tiles][query_tiles][4];
  using Packed = std::uint32_t[row_tiles][query_tiles / 2][4];

  struct Gradients {
    float keys[row_tiles][head_tiles][4];
    float values[row_tiles][head_tiles][4];
  };

  TRIREME_DEVICE_FUNCTION static void clear(float (&sums)[row_tiles][head_tiles][4]) {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int n = 0; n < head_tiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][n][i] = 0.0F;
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void copy_keys(Block& block, const Arguments& a,
                                                const Place& place) {
    const FlashShape& s = a.shape;
    const Copy copy(block.thread(), s.qkv_stride);
    const int valid = s.sequence - place.first_key();
    const T* keys = a.qkv + (place.first_token(a) + place.first_key()) * s.qkv_stride +
                    (s.heads + place.kv) * head_size;
    const T* values = keys + s.key_value_heads * head_size;
    copy.template copy<Tile::keys>(block, Rows{block.shared() + Tile::keys_at}, keys, valid);
    copy.template copy<Tile::keys>(block, Rows{block.shared() + Tile::values_at}, values, valid);
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void copy_step(Block& block, const Arguments& a,
                                                const Place& place, const Step& step, int buffer) {
    const std::uint32_t to = block.shared() + step_at(buffer);
    const int q0 = place.first_query(step);
    const int valid = a.shape.sequence - q0;
    const std::int64_t token = place.first_token(a) + q0;
    const int column = step.h * head_size;
    const int i = unknown(block, block.thread());
    const Copy queries(i, a.shape.qkv_stride);
    queries.template copy<Tile::queries>(block, Rows{to},
                                         a.qkv + token * a.shape.qkv_stride + column, valid);
    const Copy grads(i, a.grad_stride);
    grads.template copy<Tile::queries>(block, Rows{to + Tile::grads_after},
                                       a.grad + token * a.grad_stride + column, valid);
    if (i >= Tile::queries) return;
    const std::int64_t element =
        (std::int64_t{place.b} * a.shape.heads + step.h) * a.shape.sequence + q0 + i;
    const std::uint32_t word = to + 4 * static_cast<std::uint32_t>(i);
    block.template copy_async<4>(word + Tile::logsumexp_after, a.logsumexp + element, i < valid);
    block.template copy_async<4>(word + Tile::delta_after, a.delta + element, i < valid);
  }

  TRIREME_DEVICE_FUNCTION static std::uint32_t step_at(int buffer) {
    return Tile::step_at + static_cast<std::uint32_t>(buffer) * Tile::step_bytes;
  }

  /// Adds the contributions of a block of queries to the gradients of keys and values, and the
  /// contributions of the block of keys to the gradients of these queries.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void add_step(Block& block, const Arguments& a, const Place& place,
                                               const Lanes& lanes, Gradients& sums,
                                               const Step& step, int buffer) {
    const std::uint32_t at = step_at(buffer);
    Packed p = {}, ds = {};
    if (sees(a, place, lanes, step)) {
      ScoreSums scores = {}, grads = {};
      multiply_rows(block, scores, lanes, Tile::keys_at, at);
      await(block, a, place, step);
      multiply_rows(block, grads, lanes, Tile::values_at, at + Tile::grads_after);
      softmax_gradient(block, a, place, lanes, step, at, scores, grads);
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        pack_left<T, query_tiles>(block, p[m], scores[m]);
        pack_left<T, query_tiles>(block, ds[m], grads[m]);
      }
    } else {
      await(block, a, place, step);
    }
    if constexpr (Tile::sides > 1) store_scores(block, lanes, Tile::scores_at, p);
    store_scores(block, lanes, Tile::gradients_at, ds);
    const bool first = place.is_first(a, step);
    block.barrier();  // all scores are stored; sums of the previous keys are visible
    typename QuerySums::Sums queries;
    float* const to = a.sums + std::int64_t{place.turn(a, step)} * (Tile::queries * head_size);
    QuerySums::read(block, lanes, queries, to, first);
    if (sees(a, place, lanes, step)) {
      multiply_columns(block, lanes, sums.values, p, Tile::scores_at, at + Tile::grads_after);
      multiply_columns(block, lanes, sums.keys, ds, Tile::gradients_at, at);
    }
    QuerySums::add(block, lanes, queries);
    if (place.is_last(a, step))
      QuerySums::round(block, a, place, lanes, step, queries);
    else
      QuerySums::write(block, lanes, queries, to);
  }

  /// Whether any of the step's queries may see one of the warp's keys. Computed at each use, so
  /// that no register holds the result.
  TRIREME_DEVICE_FUNCTION static bool sees(const Arguments& a, const Place& place,
                                           const Lanes& lanes, const Step& step) {
    const int key = place.first_key() + lanes.key(), query = place.first_query(step);
    if constexpr (with_documents)
      if (key + Tile::warp_keys <= a.shape.document_start(place.b, query)) return false;
    return key - a.shape.ahead < query + Tile::queries &&
           key + Tile::warp_keys + a.shape.back > query;
  }

  /// sums += (rows of keys or values) · (rows of queries or of gradients of o)ᵀ.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void multiply_rows(Block& block, ScoreSums& sums,
                                                    const Lanes& lanes, std::uint32_t rows_at,
                                                    std::uint32_t columns_at) {
    const auto rows = lanes.template places<flash_columns(head_size)>(
        block, Fragment::tall, rows_at + Rows::bytes(lanes.key()));
    const auto columns = lanes.template places<flash_columns(head_size)>(
        block, Fragment::wide, columns_at + Rows::bytes(lanes.query()));
    warp_product<T, row_tiles, query_tiles, head_size / 16>(
        block, sums,
        [&](int k, int m, std::uint32_t(&r)[4]) { block.load_matrices(r, rows.at(16 * m, 2 * k)); },
        [&](int k, int n, std::uint32_t(&r)[4]) {
          block.load_matrices(r, columns.at(8 * n, 2 * k));
        });
  }

  /// scores become p = exp(scale · score − logsumexp), and grads, which hold dp, become ds = p (dp
  /// − delta). With dropout, ds = p (f dp − delta), where f is 0 for dropped probabilities,
  /// otherwise `kept`; then dropped p become 0, and write() multiplies the sums of p by `kept`.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void softmax_gradient(Block& block, const Arguments& a,
                                                       const Place& place, const Lanes& lanes,
                                                       const Step& step, std::uint32_t at,
                                                       ScoreSums& scores, ScoreSums& grads) {
    constexpr float log2e = 1.44269504F;
    const float c = a.shape.scale * log2e;
    const int lane = unknown(block, lanes.lane);
    const int g = lane / 4, t = lane % 4;
    const int first_key = place.first_key() + lanes.key(), key = first_key + g;
    const int first_query = place.first_query(step) + lanes.query(), query = first_query + 2 * t;
    const bool masked = place.first_key() + Tile::keys > a.shape.sequence ||
                        first_key + Tile::warp_keys - a.shape.ahead > first_query + 1 ||
                        first_key + a.shape.back < first_query + Tile::side_queries - 1;
    if (masked) hide(a.shape, key, query, scores);
    if constexpr (with_documents)
      if (first_key < a.shape.document_start(place.b, first_query + Tile::side_queries - 1))
        hide_documents(a.shape, place.b, key, query, scores);
    const std::uint32_t statistics = block.shared() + at + Tile::logsumexp_after +
                                     4 * static_cast<std::uint32_t>(lanes.query() + 2 * t);
#pragma unroll
    for (int n = 0; n < query_tiles; ++n) {
      float logsumexp[2], delta[2];
      block.load_pair(logsumexp, statistics + 32 * static_cast<std::uint32_t>(n));
      block.load_pair(delta, statistics + (Tile::delta_after - Tile::logsumexp_after) +
                                 32 * static_cast<std::uint32_t>(n));
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        bool dropped[4] = {};
        if constexpr (with_dropout)
          a.dropout.drops_of_keys(block, dropped,
                                  first_element(a, place, step) +
                                      offset(a, place, step, lanes.query() + 8 * n) +
                                      static_cast<std::uint64_t>(key - g + 16 * m),
                                  a.shape.sequence);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float p = block.exp2(scores[m][n][i] * c - logsumexp[i % 2] * log2e);
          float dp = grads[m][n][i];
          if constexpr (with_dropout) dp = dropped[i] ? 0.0F : dp * a.dropout.kept;
          grads[m][n][i] = p * (dp - delta[i % 2]);
          scores[m][n][i] = dropped[i] ? 0.0F : p;
        }
      }
    }
  }

  /// Sets scores to −∞, and so p to 0, for keys beyond the sequence and for keys that the causal
  /// mask or the window hides from a query. `key` and `query` are the lane's first key and query.
  TRIREME_DEVICE_FUNCTION static void hide(const FlashShape& s, int key, int query,
                                           ScoreSums& scores) {
    const auto farthest = static_cast<unsigned>(s.back + s.ahead);
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int n = 0; n < query_tiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int j = key + 16 * m + i / 2 * 8;
          const int distance = query + 8 * n + i % 2 - j + s.ahead;
          const bool hidden = j >= s.sequence || static_cast<unsigned>(distance) > farthest;
          scores[m][n][i] = hidden ? -__builtin_inff() : scores[m][n][i];
        }
  }

  /// Sets scores to −∞ for keys of earlier documents.
  TRIREME_DEVICE_FUNCTION static void hide_documents(const FlashShape& s, int b, int key, int query,
                                                     ScoreSums& scores) {
#pragma unroll
    for (int n = 0; n < query_tiles; ++n)
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const int start = s.document_start(b, query + 8 * n + side);
#pragma unroll
        for (int m = 0; m < row_tiles; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            if (key + 16 * m + 8 * half < start) scores[m][n][2 * half + side] = -__builtin_inff();
      }
  }

  TRIREME_DEVICE_FUNCTION static std::uint64_t first_element(const Arguments& a, const Place& place,
                                                             const Step& step) {
    return a.dropout.first_element(a.shape, place.b, step.h);
  }
  TRIREME_DEVICE_FUNCTION static std::uint64_t offset(const Arguments& a, const Place& place,
                                                      const Step& step, int query) {
    return static_cast<std::uint64_t>(place.first_query(step) + query) *
           static_cast<std::uint64_t>(a.shape.sequence);
  }

  /// Stores probabilities, or gradients of scores, for the other warps as [key, query].
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void store_scores(Block& block, const Lanes& lanes,
                                                   std::uint32_t at, const Packed& scores) {
    const int lane = unknown(block, lanes.lane);
    const int row = lanes.key() + lane / 4;
    const int piece = lanes.query() / 8;
    const std::uint32_t column = 4 * static_cast<std::uint32_t>(lane % 4);
    const Scores to{block.shared() + at};
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int n = 0; n < query_tiles; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          block.store(to.at(row + 16 * m + 8 * half, piece + n) + column,
                      scores[m][n / 2][n % 2 * 2 + half]);
  }

  /// sums += scores · (rows of queries or of gradients of o), for the elements of this warp's side.
  /// With one side, the scores are in the warp's own registers, otherwise in shared memory.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void multiply_columns(Block& block, const Lanes& lanes,
                                                       float (&sums)[row_tiles][head_tiles][4],
                                                       const Packed& own, std::uint32_t scores_at,
                                                       std::uint32_t rows_at) {
    const auto rows =
        lanes.template places<flash_columns(head_size)>(block, Fragment::tall, rows_at);
    const auto scores = lanes.template places<Tile::queries>(block, Fragment::tall, scores_at);
    const int piece = lanes.element() / 8;
    warp_product<T, row_tiles, head_tiles, steps>(
        block, sums,
        [&](int k, int m, std::uint32_t(&r)[4]) {
          if constexpr (Tile::sides > 1) {
            block.load_matrices(r, scores.at(lanes.key() + 16 * m, 2 * k));
          } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) r[i] = own[m][k][i];
          }
        },
        [&](int k, int n, std::uint32_t(&r)[4]) {
          block.load_matrices_transposed(r, rows.at(16 * k, piece + n));
        });
  }

  /// One thread of the last warp waits until the previous blocks of keys have added to the sums;
  /// other threads see the sums after the next barrier.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void await(Block& block, const Arguments& a, const Place& place,
                                            const Step& step) {
    if (block.thread() == Tile::threads - warp_lanes && !place.is_first(a, step))
      block.await(a.turns + place.turn(a, step), static_cast<unsigned>(place.key_block));
  }

  /// Passes the sums of the block of queries with number `turn` (Place::turn()) to the next block
  /// of keys, unless `turn` is negative. Must follow a barrier after the writes of the sums.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void release(Block& block, const Arguments& a, const Place& place,
                                              int turn) {
    if (turn >= 0 && block.thread() == 0)
      block.release(a.turns + turn, static_cast<unsigned>(place.key_block + 1));
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void write(Block& block, const Arguments& a, const Place& place,
                                            const Gradients& sums) {
    const Lanes lanes(block.thread());
    const float scale[2] = {a.shape.scale, a.shape.scale};
    const float kept[2] = {a.dropout.kept, a.dropout.kept};
    int tiles = head_tiles;  // the last side may have fewer tiles
    if constexpr (Tile::sides * Tile::side_elements > head_size)
      tiles = (head_size - lanes.element()) / 8;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
      const int key = place.first_key() + lanes.key() + 16 * m + lanes.lane / 4;
      const bool valid[2] = {key < a.shape.sequence, key + 8 < a.shape.sequence};
      T* row = a.dqkv + (place.first_token(a) + key) * a.dqkv_stride +
               (a.shape.heads + place.kv) * head_size + lanes.element();
      write_sums<T, head_tiles>(block, row, a.dqkv_stride, valid, scale, sums.keys[m], tiles);
      write_sums<T, head_tiles>(block, row + a.shape.key_value_heads * head_size, a.dqkv_stride,
                                valid, kept, sums.values[m], tiles);
    }
  }
};

}  // namespace trireme::kernels
