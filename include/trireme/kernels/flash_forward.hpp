#pragma once

#include <trireme/kernels/flash_problem.hpp>
#include <trireme/kernels/flash_softmax.hpp>
#include <trireme/kernels/warp_tiles.hpp>

#include <cstdint>

/// Attention on tensor cores, forward: one block of threads per block of queries, online softmax.
namespace trireme::kernels {

/// Sizes of a block of threads. A warp has 32 queries, so that each operand loaded from keys or
/// values is used in two products; for head sizes above 160 it has 16. The sums of the output and
/// the scores of a block of keys stay in registers.
template <int head_size>
struct FlashForwardTile {
  static constexpr int row_tiles = head_size <= 160 ? 2 : 1;
  static constexpr int warp_queries = 16 * row_tiles;
  static constexpr int queries = 128;
  static constexpr int warps = queries / warp_queries;
  static constexpr int threads = warps * warp_lanes;
  static constexpr int keys = head_size <= 64    ? 48
                              : head_size <= 128 ? 64
                              : head_size <= 160 ? 32
                              : head_size <= 192 ? 64
                                                 : 48;
  static constexpr int blocks_per_processor = head_size <= 64 ? 3 : head_size <= 160 ? 2 : 1;

  using Rows = SharedRows<flash_columns(head_size)>;
  static constexpr std::uint32_t queries_at = 0;
  static constexpr std::uint32_t keys_at = Rows::bytes(queries);  // two buffers
  static constexpr std::uint32_t values_at = keys_at + 2 * Rows::bytes(keys);
  static constexpr std::uint32_t shared_bytes = values_at + 2 * Rows::bytes(keys);
};

template <class T>
struct FlashForwardArguments {
  FlashShape shape;
  FlashDropout dropout;
  T* o;  // [T, H·K], with o_stride from row to row
  std::int64_t o_stride;
  float* logsumexp;  // [B, H, S]
  const T* qkv;      // [T, (H + 2 Hkv)·K]
  int query_blocks;  // query blocks per sequence
};

/// Attention of one block of queries of one head (Dao 2023, arXiv 2307.08691, algorithm 1). Each
/// warp has its own queries. All warps share blocks of keys and values: one block is multiplied
/// while the next block is copied. The grid has B·H·query_blocks blocks.
template <class T, int head_size, bool with_dropout, bool with_documents = false>
struct FlashForward {
  using Tile = FlashForwardTile<head_size>;
  using Rows = typename Tile::Rows;
  using Copy = RowCopy<head_size, Tile::threads>;
  using Arguments = FlashForwardArguments<T>;
  static constexpr int row_tiles = Tile::row_tiles;
  static constexpr int key_tiles = Tile::keys / 8;
  static constexpr int head_tiles = head_size / 8;

  using Softmax = FlashSoftmax<row_tiles, key_tiles>;

  struct State {
    float o[row_tiles][head_tiles][4];
    Softmax softmax;
  };

  /// Work of a block of threads: the queries from q0 on of head h of sample b, and their keys.
  struct Place {
    int b, h, q0, key_begin, key_end;
    const T *queries, *keys;

    TRIREME_DEVICE_FUNCTION Place(const Arguments& a, int index) {
      const FlashShape& s = a.shape;
      // The last queries come first: with a causal mask, they see the most keys.
      const FlashTurn turn(index, s.batch * s.heads, a.query_blocks, s.section);
      b = turn.plane / s.heads;
      h = turn.plane % s.heads;
      q0 = (a.query_blocks - 1 - turn.turn) * Tile::queries;
      key_begin = s.first_key<with_documents>(b, q0) / Tile::keys * Tile::keys;
      key_end = s.end_key(q0 + Tile::queries - 1);
      const T* sample = a.qkv + std::int64_t{b} * s.sequence * s.qkv_stride;
      queries = sample + q0 * s.qkv_stride + h * head_size;
      keys = sample + key_begin * s.qkv_stride + (s.heads + s.key_value_head(h)) * head_size;
    }
  };

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void run(Block& block, const Arguments& a) {
    const Place place(a, block.index());
    const Copy copy(block.thread(), a.shape.qkv_stride);
    copy.template copy<Tile::queries>(block, Rows{block.shared() + Tile::queries_at}, place.queries,
                                      a.shape.sequence - place.q0);
    copy_keys(block, a, place.keys, place.key_begin);

    State state;
    clear(state);
    const int first_query = place.q0 + first_row(block.thread());
    const T* keys = place.keys;
    for (int k0 = place.key_begin; k0 < place.key_end; k0 += Tile::keys) {
      block.template wait<0>();
      block.barrier();  // the keys have arrived; no thread still uses the previous keys
      keys += Tile::keys * a.shape.qkv_stride;
      if (k0 + Tile::keys < place.key_end) copy_keys(block, a, keys, k0 + Tile::keys);
      if (k0 - a.shape.ahead >= first_query + Tile::warp_queries ||
          k0 + Tile::keys + a.shape.back <= first_query)
        continue;  // the warp sees no key of this block
      if constexpr (with_documents)
        if (k0 + Tile::keys <= a.shape.document_start(place.b, first_query)) continue;
      float scores[row_tiles][key_tiles][4] = {};
      multiply_keys(block, scores, k0);
      Softmax::template hide<with_documents>(block, scores, a.shape, first_query, k0, place.b);
      state.softmax.add_keys(block, scores, a.shape.scale,
                             [&](const auto& factors) { Softmax::multiply(state.o, factors); });
      if constexpr (with_dropout) drop(block, scores, a, first_query, k0);
      add_values(block, state, scores, k0);
    }
    finish(block, state, a);
  }

 private:
  /// The warp's first query within the block.
  TRIREME_DEVICE_FUNCTION static int first_row(int thread) {
    return thread / warp_lanes * Tile::warp_queries;
  }

  /// Addresses of this lane's operands in the rows at offset `at` of shared memory.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static FragmentPlaces<flash_columns(head_size)> places(Block& block,
                                                                                 Fragment kind,
                                                                                 std::uint32_t at) {
    const int lane = unknown(block, block.thread()) % warp_lanes;
    return FragmentPlaces<flash_columns(head_size)>(Rows{block.shared() + at}, kind, lane);
  }

  /// Offset of the buffer of the block of keys at k0. Blocks alternate between two buffers.
  TRIREME_DEVICE_FUNCTION static std::uint32_t buffer_of(int k0) {
    return k0 / Tile::keys % 2 == 0 ? 0U : Rows::bytes(Tile::keys);
  }

  /// Copies the block of keys from k0 on, and its values. `from` points to the keys.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void copy_keys(Block& block, const Arguments& a, const T* from,
                                                int k0) {
    const Copy copy(unknown(block, block.thread()), a.shape.qkv_stride);
    const std::uint32_t to = block.shared() + buffer_of(k0);
    const int valid = a.shape.sequence - k0;
    const int values = a.shape.key_value_heads * head_size;
    copy.template copy<Tile::keys>(block, Rows{to + Tile::keys_at}, from, valid);
    copy.template copy<Tile::keys>(block, Rows{to + Tile::values_at}, from + values, valid);
    block.commit();
  }

  TRIREME_DEVICE_FUNCTION static void clear(State& s) {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int n = 0; n < head_tiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) s.o[m][n][i] = 0.0F;
    s.softmax.clear();
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void multiply_keys(Block& block,
                                                    float (&scores)[row_tiles][key_tiles][4],
                                                    int k0) {
    const auto queries =
        places(block, Fragment::tall, Tile::queries_at + Rows::bytes(first_row(block.thread())));
    const auto keys = places(block, Fragment::wide, Tile::keys_at + buffer_of(k0));
    warp_product<T, row_tiles, key_tiles, head_size / 16>(
        block, scores,
        [&](int k, int m, std::uint32_t(&r)[4]) {
          block.load_matrices(r, queries.at(16 * m, 2 * k));
        },
        [&](int k, int n, std::uint32_t(&r)[4]) { block.load_matrices(r, keys.at(8 * n, 2 * k)); });
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void drop(Block& block, float (&scores)[row_tiles][key_tiles][4],
                                           const Arguments& a, int first_query, int k0) {
    const Place place(a, block.index());
    Softmax::drop(block, scores, a.shape, a.dropout, place.b, place.h, first_query, k0);
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void add_values(Block& block, State& s,
                                                 const float (&p)[row_tiles][key_tiles][4],
                                                 int k0) {
    const auto values = places(block, Fragment::tall, Tile::values_at + buffer_of(k0));
    std::uint32_t packed[row_tiles][key_tiles / 2][4];
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) pack_left<T, key_tiles>(block, packed[m], p[m]);
    warp_product<T, row_tiles, head_tiles, key_tiles / 2>(
        block, s.o,
        [&](int k, int m, std::uint32_t(&r)[4]) {
#pragma unroll
          for (int i = 0; i < 4; ++i) r[i] = packed[m][k][i];
        },
        [&](int k, int n, std::uint32_t(&r)[4]) {
          block.load_matrices_transposed(r, values.at(16 * k, n));
        });
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void finish(Block& block, const State& s, const Arguments& a) {
    const int lane = block.thread() % warp_lanes;
    // The place is computed again, so that it occupies no registers during the loop over keys.
    const Place place(a, unknown(block, block.index()));
    const int first_query = place.q0 + first_row(block.thread());
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
      const int query = first_query + 16 * m + lane / 4;
      const bool valid[2] = {query < a.shape.sequence, query + 8 < a.shape.sequence};
      const std::int64_t plane = std::int64_t{place.b} * a.shape.heads + place.h;
      float factor[2];
      s.softmax.finish(block, m, factor, valid, a.shape.scale, with_dropout ? a.dropout.kept : 1.0F,
                       query, a.logsumexp + plane * a.shape.sequence);
      T* row = a.o + (std::int64_t{place.b} * a.shape.sequence + query) * a.o_stride +
               place.h * head_size;
      write_sums<T, head_tiles>(block, row, a.o_stride, valid, factor, s.o[m]);
    }
  }
};

}  // namespace trireme::kernels
