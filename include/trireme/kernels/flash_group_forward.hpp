#pragma once

#include <trireme/kernels/flash_problem.hpp>
#include <trireme/kernels/flash_softmax.hpp>
#include <trireme/kernels/warpgroup_tiles.hpp>

#include <cstdint>

/// Forward attention by warpgroup products (Shah et al. 2024, arXiv 2407.08608, algorithm 2). One
/// warpgroup, the producer, copies tiles into shared memory; the others, the consumers, multiply.
namespace trireme::kernels {

/// Sizes of the tiles. Each consumer has 64 queries, whose output and scores stay in registers. For
/// head sizes up to 64 without dropout, a third consumer keeps the tensor cores busy, because
/// exponentials take as long as products.
template <int head_size, bool with_dropout = false>
struct GroupForwardTile {
  static constexpr int consumers = head_size <= 64 && !with_dropout ? 3 : 2;
  static constexpr int threads = (1 + consumers) * group_threads;
  static constexpr int group_queries = 64;
  static constexpr int queries = consumers * group_queries;
  static constexpr int keys = head_size <= 128 ? 128 : head_size <= 192 ? 96 : 80;
  static constexpr int stages = 2;
  /// Registers per thread; a multiprocessor has 65,536 registers.
  static constexpr int producer_registers = consumers == 2 ? 24 : 32;
  static constexpr int consumer_registers = consumers == 2 ? 240 : 160;

  using Queries = GroupRows<queries, head_size>;
  using Keys = GroupRows<keys, head_size>;
  static constexpr std::uint32_t keys_at = Queries::bytes;
  static constexpr std::uint32_t values_at = keys_at + stages * Keys::bytes;
  static constexpr std::uint32_t phases_at = values_at + stages * Keys::bytes;
  static constexpr std::uint32_t number_at = phases_at + 8 * (2 + 4 * stages);
  static constexpr std::uint32_t shared_bytes = number_at + 8;
};

template <class T>
struct GroupForwardArguments {
  FlashShape shape;
  FlashDropout dropout;
  T* o;  // [T, H·K], with o_stride from row to row
  std::int64_t o_stride;
  float* logsumexp;         // [B, H, S]
  int query_blocks;         // query blocks per sequence
  int blocks;               // blocks of threads
  unsigned* counters;       // two counters, zero before and after the kernel
  TensorMap queries, keys;  // [K, H + 2 Hkv, S, B], boxes of Tile::queries or Tile::keys rows
};

/// Each block of threads computes several blocks of queries in sequence, of any heads. It takes the
/// number of its next block of queries from a counter; the order affects no result. While the
/// consumers finish one block of queries, the producer copies the operands of the next block.
template <class T, int head_size, bool with_dropout>
struct GroupForward {
  using Tile = GroupForwardTile<head_size, with_dropout>;
  using Arguments = GroupForwardArguments<T>;
  using Queries = typename Tile::Queries;
  using Keys = typename Tile::Keys;
  static constexpr int key_tiles = Tile::keys / 8;
  static constexpr int head_tiles = head_size / 8;
  using Softmax = FlashSoftmax<1, key_tiles>;

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void run(Block& block, const Arguments& a) {
    if (block.thread() == 0) {
      const Shared shared(block);
      block.init_phases(shared.queries_full(), 1);
      block.init_phases(shared.queries_empty(), consumer_warps);
      for (int i = 0; i < 2 * Tile::stages; ++i) {
        block.init_phases(shared.full(0, i), 1);
        block.init_phases(shared.empty(0, i), consumer_warps);
      }
      block.publish_phases();
    }
    block.barrier();
    if (block.group() == 0)
      produce(block, a);
    else
      consume(block, a);
  }

 private:
  static constexpr int consumer_warps = Tile::consumers * group_threads / warp_lanes;

  /// Addresses in shared memory. `what`: 0 for keys, 1 for values.
  struct Shared {
    std::uint32_t first;

    template <class Block>
    TRIREME_DEVICE_FUNCTION explicit Shared(Block& block) : first(block.shared()) {}
    TRIREME_DEVICE_FUNCTION Queries queries() const { return {first}; }
    TRIREME_DEVICE_FUNCTION Keys tile(int what, int stage) const {
      return {first + Tile::keys_at +
              static_cast<std::uint32_t>(what * Tile::stages + stage) * Keys::bytes};
    }
    TRIREME_DEVICE_FUNCTION std::uint32_t queries_full() const { return first + Tile::phases_at; }
    TRIREME_DEVICE_FUNCTION std::uint32_t queries_empty() const { return queries_full() + 8; }
    /// Address of the number of the block of queries. The number arrives with the queries.
    TRIREME_DEVICE_FUNCTION std::uint32_t number() const { return first + Tile::number_at; }
    TRIREME_DEVICE_FUNCTION std::uint32_t full(int what, int stage) const {
      return queries_full() + 16 + 16 * static_cast<std::uint32_t>(what * Tile::stages + stage);
    }
    TRIREME_DEVICE_FUNCTION std::uint32_t empty(int what, int stage) const {
      return full(what, stage) + 8;
    }
  };

  /// A block of queries of one head, and its keys.
  struct Place {
    int b, h, q0, key_begin, key_blocks;

    TRIREME_DEVICE_FUNCTION Place(const Arguments& a, int number) {
      const FlashShape& s = a.shape;
      // The last queries come first: with a causal mask, they see the most keys.
      const FlashTurn turn(number, s.batch * s.heads, a.query_blocks, s.section);
      b = turn.plane / s.heads;
      h = turn.plane - b * s.heads;
      q0 = (a.query_blocks - 1 - turn.turn) * Tile::queries;
      key_begin = s.first_key(q0) / Tile::keys * Tile::keys;
      key_blocks = (s.end_key(q0 + Tile::queries - 1) - key_begin + Tile::keys - 1) / Tile::keys;
    }
  };

  TRIREME_DEVICE_FUNCTION static int all_places(const Arguments& a) {
    return a.shape.batch * a.shape.heads * a.query_blocks;
  }

  // ---- producer

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void produce(Block& block, const Arguments& a) {
    block.template lower_registers<Tile::producer_registers>();
    if (block.thread() != 0) return;
    const Shared shared(block);
    RingPlace rings[2];
    std::uint32_t parity = 1;  // parity of the phase in which the queries' tile became empty
    for (int number = block.index();; parity ^= 1) {
      block.await_phase(shared.queries_empty(), parity);
      block.store_alone(shared.number(), static_cast<std::uint32_t>(number));
      if (number >= all_places(a)) break;
      const Place place(a, number);
      block.arrive(shared.queries_full(), Queries::bytes);
      copy(block, a.queries, shared.queries(), place.h, place.q0, place.b, shared.queries_full());
      const int head = a.shape.heads + a.shape.key_value_head(place.h);
#pragma unroll 1
      for (int i = 0; i <= place.key_blocks; ++i) {  // keys are needed one step before values
        if (i < place.key_blocks)
          copy_keys(block, a, shared, 0, rings[0], head, place.key_begin + i * Tile::keys, place.b);
        if (i > 0)
          copy_keys(block, a, shared, 1, rings[1], head + a.shape.key_value_heads,
                    place.key_begin + (i - 1) * Tile::keys, place.b);
      }
      number = a.blocks + static_cast<int>(block.take(a.counters));
    }
    block.arrive(shared.queries_full());
    // When the last block of threads increments this counter, all have taken their last number.
    if (block.take(a.counters + 1) + 1 < static_cast<unsigned>(a.blocks)) return;
    block.release(a.counters, 0);
    block.release(a.counters + 1, 0);
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void copy_keys(Block& block, const Arguments& a,
                                                const Shared& shared, int what, RingPlace& ring,
                                                int head, int k0, int b) {
    const std::uint32_t full = shared.full(what, ring.stage);
    block.await_phase(shared.empty(what, ring.stage), ring.parity ^ 1);
    block.arrive(full, Keys::bytes);
    copy(block, a.keys, shared.tile(what, ring.stage), head, k0, b, full);
    ring.template next<Tile::stages>();
  }

  template <class Block, class Rows>
  TRIREME_DEVICE_FUNCTION static void copy(Block& block, const TensorMap& map, Rows to, int head,
                                           int row, int b, std::uint32_t phases) {
#pragma unroll
    for (int i = 0; i < Rows::chunks; ++i)
      block.copy_box(to.chunk(i), map, 64 * i, head, row, b, phases);
  }

  // ---- consumers

  struct State {
    float o[1][head_tiles][4];
    float scores[1][key_tiles][4];
    std::uint32_t p[key_tiles / 2][4];  // packed probabilities
    Softmax softmax;
    RingPlace keys, values;
  };

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void consume(Block& block, const Arguments& a) {
    block.template raise_registers<Tile::consumer_registers>();
    const int group = block.group() - 1;
    const Shared shared(block);
    if (group == Tile::consumers - 1) block.signal(turn_of(0), 2 * group_threads);
    State s;
    std::uint32_t parity = 0;  // parity of the phase in which the queries arrived
    for (;; parity ^= 1) {
      block.await_phase(shared.queries_full(), parity);
      const bool reads = block.thread() % warp_lanes == 0;
      const std::uint32_t number = block.broadcast(reads ? block.load(shared.number()) : 0U);
      if (static_cast<int>(number) >= all_places(a)) break;
      const Place place(a, static_cast<int>(number));
      attend(block, a, shared, s, group, place);
      finish(block, a, s, group, place);
    }
    if (group == 0) block.meet(turn_of(0), 2 * group_threads);
  }

  /// Number of the barrier of a group's turn. Groups issue their products in turns: one group
  /// computes exponentials while another multiplies.
  TRIREME_DEVICE_FUNCTION static int turn_of(int group) {
    return 1 + group % Tile::consumers;
  }

  TRIREME_DEVICE_FUNCTION static int first_query(int thread, int group, const Place& place) {
    return place.q0 + group * Tile::group_queries + thread % group_threads / warp_lanes * 16;
  }

  /// Range [first, end) of the blocks of keys that a group's queries see; at least one block.
  struct Seen {
    int first, end;
    TRIREME_DEVICE_FUNCTION Seen(const FlashShape& s, int group, const Place& place) {
      const int query = place.q0 + group * Tile::group_queries;
      const int last = s.end_key(query + Tile::group_queries - 1) - place.key_begin;
      first = (s.first_key(query) - place.key_begin) / Tile::keys;
      if (query >= s.sequence || first >= place.key_blocks) first = place.key_blocks - 1;
      end = (last + Tile::keys - 1) / Tile::keys;
      end = end > first ? end : first + 1;
    }
  };

  /// For each block i of keys, issues the product for its scores together with the product of the
  /// probabilities and values of block i − 1, which runs during the exponentials of block i.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void attend(Block& block, const Arguments& a, const Shared& shared,
                                             State& s, int group, const Place& place) {
    const Seen seen(a.shape, group, place);
#pragma unroll 1
    for (int i = 0; i < seen.first; ++i) pass(block, shared, s, group);
    s.softmax.clear();
    bool rescales = false;
    typename Softmax::Factors factors = {};
    begin_keys(block, shared, s, group);
    block.begin_products(s.scores);
    multiply_keys(block, shared, s, group);
    end_turn(block, group);
    block.template wait_products<0>(s.scores);
    leave_keys(block, shared, s, seen.first + 1 == seen.end);
    add_keys(block, a, s, group, place, seen.first, rescales, factors);
    pack(block, s);
    for (int i = seen.first + 1; i < seen.end; ++i) {
      begin_keys(block, shared, s, group);
      block.begin_products(s.scores, s.o, s.p);
      multiply_keys(block, shared, s, group);
      await_values(block, shared, s);
      multiply_values(block, shared, s, i > seen.first + 1);
      end_turn(block, group);
      block.template wait_products<1>(s.scores);
      leave_keys(block, shared, s, i + 1 == seen.end);
      rescales = false;
      add_keys(block, a, s, group, place, i, rescales, factors);
      block.settle(s.softmax.sum[0][0] + s.softmax.sum[0][1]);
      block.template wait_products<0>(s.o, s.p);
      leave_values(block, shared, s);
      if (rescales) Softmax::multiply(s.o, factors);
      pack(block, s);
    }
    await_values(block, shared, s);
    block.begin_products(s.o, s.p);
    multiply_values(block, shared, s, seen.first + 1 < seen.end);
    block.template wait_products<0>(s.o, s.p);
    leave_values(block, shared, s);
#pragma unroll 1
    for (int i = seen.end; i < place.key_blocks; ++i) pass(block, shared, s, group);
  }

  /// Skips a block of keys that only other groups see.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void pass(Block& block, const Shared& shared, State& s,
                                           int group) {
    begin_keys(block, shared, s, group);
    end_turn(block, group);
    leave_keys(block, shared, s, false);
    await_values(block, shared, s);
    leave_values(block, shared, s);
  }

  /// Waits for the keys and for the group's turn.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void begin_keys(Block& block, const Shared& shared, const State& s,
                                                 int group) {
    block.await_phase(shared.full(0, s.keys.stage), s.keys.parity);
    block.meet(turn_of(group), 2 * group_threads);
  }
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void end_turn(Block& block, int group) {
    block.signal(turn_of(group + 1), 2 * group_threads);
  }
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void await_values(Block& block, const Shared& shared,
                                                   const State& s) {
    block.await_phase(shared.full(1, s.values.stage), s.values.parity);
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void multiply_keys(Block& block, const Shared& shared, State& s,
                                                    int group) {
    const Queries queries = shared.queries();
    const Keys keys = shared.tile(0, s.keys.stage);
#pragma unroll
    for (int k = 0; k < head_size / 16; ++k)
      block.template multiply<T, Tile::keys, Major::depth, Major::depth>(
          s.scores[0], queries.depth_major(group * Tile::group_queries, k), keys.depth_major(0, k),
          k > 0);
    block.commit_products();
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void multiply_values(Block& block, const Shared& shared, State& s,
                                                      bool add) {
    const Keys values = shared.tile(1, s.values.stage);
#pragma unroll
    for (int k = 0; k < Tile::keys / 16; ++k)
      block.template multiply_left<T, head_size, Major::edge>(
          s.o[0], s.p[k], values.edge_major(0, k), add || k > 0);
    block.commit_products();
  }

  /// Releases the tile of keys for this warp, and after the last tile also the queries.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void leave_keys(Block& block, const Shared& shared, State& s,
                                                 bool last) {
    if (block.thread() % warp_lanes == 0) {
      block.arrive(shared.empty(0, s.keys.stage));
      if (last) block.arrive(shared.queries_empty());
    }
    s.keys.template next<Tile::stages>();
  }
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void leave_values(Block& block, const Shared& shared, State& s) {
    if (block.thread() % warp_lanes == 0) block.arrive(shared.empty(1, s.values.stage));
    s.values.template next<Tile::stages>();
  }

  /// Softmax of block i of keys. Sets `rescales` and `factors` if the output must be rescaled. The
  /// caller rescales it when the product that adds to it has ended.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void add_keys(Block& block, const Arguments& a, State& s,
                                               int group, const Place& place, int i, bool& rescales,
                                               typename Softmax::Factors& factors) {
    const int query = first_query(block.thread(), group, place);
    const int k0 = place.key_begin + i * Tile::keys;
    Softmax::hide(block, s.scores, a.shape, query, k0);
    s.softmax.add_keys(block, s.scores, a.shape.scale, [&](const auto& changed) {
      rescales = true;
#pragma unroll
      for (int half = 0; half < 2; ++half) factors[0][half] = changed[0][half];
    });
    if constexpr (with_dropout)
      Softmax::drop(block, s.scores, a.shape, a.dropout, place.b, place.h, query, k0);
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void pack(Block& block, State& s) {
    pack_left<T, key_tiles>(block, s.p, s.scores[0]);
  }

  template <class Block>
  TRIREME_DEVICE_FUNCTION static void finish(Block& block, const Arguments& a, const State& s,
                                             int group, const Place& place) {
    const int query = first_query(block.thread(), group, place) + block.thread() % warp_lanes / 4;
    const bool valid[2] = {query < a.shape.sequence, query + 8 < a.shape.sequence};
    const std::int64_t plane = std::int64_t{place.b} * a.shape.heads + place.h;
    float factor[2];
    s.softmax.finish(block, 0, factor, valid, a.shape.scale, with_dropout ? a.dropout.kept : 1.0F,
                     query, a.logsumexp + plane * a.shape.sequence);
    T* row =
        a.o + (std::int64_t{place.b} * a.shape.sequence + query) * a.o_stride + place.h * head_size;
    write_sums<T, head_tiles>(block, row, a.o_stride, valid, factor, s.o[0]);
  }
};

}  // namespace trireme::kernels
