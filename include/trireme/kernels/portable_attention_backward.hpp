#pragma once

#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/attention_blocks.hpp>
#include <trireme/kernels/attention_range.hpp>
#include <trireme/kernels/math.hpp>

#include <cstdint>

/// The gradient of the portable attention, by blocks of queries and keys. Scores and probabilities
/// are recomputed from queries, keys and logsumexp.
namespace trireme::kernels {

/// Gradients that a team computes.
enum class Gradients : std::uint8_t { all, of_keys, of_queries };

/// Lanes are keys; for the gradient of queries, lanes are the head's elements. A team visits pairs
/// of blocks of queries and keys in a fixed order, and no other team adds to its gradients. There
/// are two divisions of the work:
///
/// - heads() teams, Gradients::all: each team has one head of keys and values of one sample, with
///   all its query heads. Five products for each pair. Some neighbouring blocks of keys share the
///   copies of queries.
/// - key_teams() teams, Gradients::of_keys, and query_teams() teams, Gradients::of_queries: each
///   team has one block of keys, or one block of queries of one head. Seven products in total for
///   each pair. Each sum has the same terms in the same order as with heads().
template <class T>
struct AttentionBackward {
  using A = Accumulate<T>;
  static constexpr int block = attention_block;
  static constexpr int blocks_together = exec_on_host ? 4 : 1;  // of keys, with heads()

  View2<T> dq;          // [T, ≥ H·K], columns of queries first
  View2<T> dkey_value;  // [rows, 2 Hkv·K]
  View2<const T> grad;
  View2<const T> q;          // as dq
  View2<const T> key_value;  // as dkey_value
  View3<const A> logsumexp;
  View1<const A> delta;  // [B·H·S], attention_delta()
  AttentionRange shape;
  AttentionMasks masks;
  HeadSizes<A> head;
  A* wide_queries;               // [T, H·K] sums of the queries' gradients, for two-byte T
  View2<A> key_value_sums = {};  // as dkey_value, receives these gradients in its place; or empty
  bool adds_queries = false;     ///< adds to the queries' gradients of earlier launches
  bool native = false;           ///< products by the processor's bf16 instructions
  View2<const T> table = {};     // [buckets, H] biases, or empty
  A* dtable = nullptr;  // [B, blocks of queries, buckets, H], to which gradients are added; or null

  /// Arrays in the scratch memory of a team. Each block of keys has its own arrays before
  /// `queries`; the other arrays are shared.
  struct Scratch {
    A* keys_transposed;    // [K, block], scaled unless native
    A* values_transposed;  // [K, block]
    A* keys;               // [block, lanes of K]
    A* dkeys;              // [rows of K, block]
    A* dvalues;            // [rows of K, block]
    // Operands of native products; null without them.
    Bf16* packed_keys;         // right, [K, block]
    Bf16* packed_values;       // right, [K, block]
    Bf16* packed_keys_by_row;  // right, [block, lanes of K]
    A* queries;                // [block, lanes of K]
    A* grads;                  // [block, lanes of K]
    A* dqueries;               // [block, lanes of K], gradients from one block of keys
    A* sums;                   // [block, lanes of K], gradients of the queries so far
    A* p;                      // [block of queries, block of keys], scores, later probabilities
    A* ds;                     // [block of queries, block of keys], gradients of the scores
    A* biases;                 // [block_offsets]
    A* dbiases;                // [block_offsets]
    Bf16* packed_queries;      // left, [block, K]
    Bf16* packed_grads;        // left, [block, K]
    Bf16* packed_queries_by_column;  // left, [rows of K, block]
    Bf16* packed_grads_by_column;    // left, [rows of K, block]
    Bf16* work;                      // packed probabilities or gradients of scores
  };
  KOKKOS_FUNCTION std::int64_t key_elements() const {
    return block * (2 * head.size + head.lanes + 2 * head.rows) +
           (native ? 2 * native_elements(block, head.size) + native_elements(head.lanes, block)
                   : 0);
  }
  KOKKOS_FUNCTION std::int64_t scratch_elements() const {
    return blocks_together * key_elements() + block * (4 * head.lanes + 2 * block) +
           bias_elements() +
           (native ? 2 * native_elements(block, head.size) + 2 * native_elements(head.rows, block) +
                         native_elements(block, block)
                   : 0);
  }
  KOKKOS_FUNCTION int bias_elements() const { return shape.has_biases() ? 4 * block : 0; }
  /// The arrays of block `number` of the team's blocks of keys. `first`: see aligned_scratch().
  KOKKOS_FUNCTION Scratch scratch(A* first, int number) const {
    Scratch s{};
    s.keys_transposed = first + number * key_elements();
    s.values_transposed = s.keys_transposed + head.size * block;
    s.keys = s.values_transposed + head.size * block;
    s.dkeys = s.keys + head.lanes * block;
    s.dvalues = s.dkeys + head.rows * block;
    s.queries = first + blocks_together * key_elements();
    s.grads = s.queries + head.lanes * block;
    s.dqueries = s.grads + head.lanes * block;
    s.sums = s.dqueries + head.lanes * block;
    s.p = s.sums + head.lanes * block;
    s.ds = s.p + block * block;
    s.biases = s.ds + block * block;
    s.dbiases = s.biases + 2 * block;
    if (!native) return s;
    const std::int64_t by_row = 2 * native_elements(block, head.size);
    const std::int64_t by_column = 2 * native_elements(head.rows, block);
    s.packed_keys = reinterpret_cast<Bf16*>(s.dvalues + head.rows * block);
    s.packed_values = s.packed_keys + by_row;
    s.packed_keys_by_row = s.packed_values + by_row;
    s.packed_queries = reinterpret_cast<Bf16*>(s.biases + bias_elements());
    s.packed_grads = s.packed_queries + by_row;
    s.packed_queries_by_column = s.packed_grads + by_row;
    s.packed_grads_by_column = s.packed_queries_by_column + by_column;
    s.work = s.packed_grads_by_column + by_column;
    return s;
  }

  std::int64_t blocks() const { return padded(shape.keys.count, block) / block; }
  KOKKOS_FUNCTION std::int64_t query_blocks() const {
    return padded(shape.queries.count, block) / block;
  }
  std::int64_t heads() const { return shape.batch * shape.key_value_heads; }
  std::int64_t key_teams() const { return heads() * blocks(); }
  std::int64_t query_teams() const { return shape.batch * shape.heads * query_blocks(); }

  /// Computes Gradients::all for head plane mod Hkv of keys and values of sample plane / Hkv.
  KOKKOS_FUNCTION void all(const AttentionMember& team, std::int64_t plane) const {
    A* const memory = aligned_scratch<A>(team, scratch_elements());
    for (std::int64_t k0 = 0; k0 < shape.keys.count; k0 += blocks_together * block)
      blocks_of_keys<Gradients::all>(team, memory, plane, k0, blocks_together);
    if constexpr (is_narrow<T>) {
      if (in_parts()) return;
      const QueryHeads of(shape, plane % shape.key_value_heads);
      for (std::int64_t h = of.first; h < of.end; ++h)
        narrow_queries(team, shape.query_row(plane / shape.key_value_heads, 0), shape.queries.count,
                       h);
    }
  }

  /// Computes Gradients::of_keys for the team's block of keys.
  KOKKOS_FUNCTION void keys(const AttentionMember& team) const {
    const std::int64_t planes = shape.batch * shape.key_value_heads;
    blocks_of_keys<Gradients::of_keys>(team, aligned_scratch<A>(team, scratch_elements()),
                                       team.league_rank() % planes,
                                       team.league_rank() / planes * block, 1);
  }

  /// Computes Gradients::of_queries for the team's block of queries. The last queries come first:
  /// with a causal mask, they see the most keys.
  KOKKOS_FUNCTION void queries(const AttentionMember& team) const {
    const std::int64_t planes = shape.batch * shape.heads;
    const std::int64_t turn = team.league_rank() / planes;
    const std::int64_t b = team.league_rank() % planes / shape.heads;
    const std::int64_t h = team.league_rank() % shape.heads;
    const std::int64_t q0 = (query_blocks() - 1 - turn) * block;
    const Scratch s = scratch(aligned_scratch<A>(team, scratch_elements()), 0);
    const std::int64_t end = shape.end_key(b, q0 + block - 1);
    const std::int64_t begin = shape.first_key(b, q0) / block * block;
    load_queries(team, s, b, h, q0);
    if (begin < end) load_sums(team, s, b, h, q0, begin);
    for (std::int64_t k0 = begin; k0 < end; k0 += block) {
      load_keys(team, s, b, shape.key_value_head(h), k0);
      team.team_barrier();
      add_pair<Gradients::of_queries>(team, s, b, h, q0, k0, {});
      team.team_barrier();
    }
    if (begin < end) store_sums(team, s, b, h, q0);
    const std::int64_t rest = shape.queries.count - q0;
    if constexpr (is_narrow<T>)
      if (!in_parts()) narrow_queries(team, shape.query_row(b, q0), rest < block ? rest : block, h);
  }

 private:
  /// Whether other launches add to the gradients: see attention_part_backward.
  KOKKOS_FUNCTION bool in_parts() const { return key_value_sums.data() != nullptr; }

  /// The query heads [first, end) that use a head of keys and values.
  struct QueryHeads {
    std::int64_t first, end;
    KOKKOS_FUNCTION QueryHeads(const AttentionShape& s, std::int64_t kv_head) {
      const std::int64_t before = kv_head * s.group - s.heads_before;
      first = before > 0 ? before : 0;
      end = before + s.group < s.heads ? before + s.group : s.heads;
    }
  };

  KOKKOS_FUNCTION void load_keys(const AttentionMember& team, const Scratch& s, std::int64_t b,
                                 std::int64_t kv_head, std::int64_t k0) const {
    const auto stride = static_cast<std::int64_t>(key_value.stride(0));
    const T* keys = &key_value(shape.key_row(b, k0), kv_head * head.size);
    const T* values = keys + shape.key_value_heads * head.size;
    const std::int64_t valid = shape.keys.count - k0;
    copy_transposed(team, s.keys_transposed, keys, stride, valid, head.size,
                    native ? A(1) : static_cast<A>(shape.scale));
    copy_transposed(team, s.values_transposed, values, stride, valid, head.size, A(1));
    copy_block(team, s.keys, head.lanes, keys, stride, valid, head.size, block);
    pack_right<T>(s.packed_keys, block, head.size, Lanes<const A>{s.keys_transposed, block});
    pack_right<T>(s.packed_values, block, head.size, Lanes<const A>{s.values_transposed, block});
    pack_right<T>(s.packed_keys_by_row, head.lanes, block, Lanes<const A>{s.keys, head.lanes});
  }

  /// Computes the `wanted` gradients from at most `most` blocks of keys, from key `first` on, with
  /// all queries that see the blocks.
  template <Gradients wanted>
  KOKKOS_FUNCTION void blocks_of_keys(const AttentionMember& team, A* memory, std::int64_t plane,
                                      std::int64_t first, int most) const {
    const std::int64_t b = plane / shape.key_value_heads;
    const std::int64_t kv_head = plane % shape.key_value_heads;
    const std::int64_t rest = padded(shape.keys.count - first, block) / block;
    const auto count = static_cast<int>(rest < most ? rest : most);
    for (int n = 0; n < count; ++n) {
      load_keys(team, scratch(memory, n), b, kv_head, first + n * block);
      clear(team, scratch(memory, n));
    }
    const QueryHeads of(shape, kv_head);
    const std::int64_t end_query = shape.end_query(b, first + count * block - 1);
    const std::int64_t first_query = shape.first_query(b, first) / block * block;
    for (std::int64_t h = of.first; h < of.end; ++h)
      for (std::int64_t q0 = first_query; q0 < end_query; q0 += block)
        add_pairs<wanted>(team, memory, b, h, q0, first, count);
    team.team_barrier();
    for (int n = 0; n < count; ++n)
      write_keys(team, scratch(memory, n), b, kv_head, first + n * block);
    team.team_barrier();
  }

  /// Writes the gradients of a block of keys and values.
  KOKKOS_FUNCTION void write_keys(const AttentionMember& team, const Scratch& s, std::int64_t b,
                                  std::int64_t kv_head, std::int64_t k0) const {
    const std::int64_t token = shape.key_row(b, k0);
    if (in_parts()) {
      A* const sums = &key_value_sums(token, kv_head * head.size);
      add_transposed(team, s.dkeys, sums, shape.keys.count - k0);
      add_transposed(team, s.dvalues, sums + shape.key_value_heads * head.size,
                     shape.keys.count - k0);
      return;
    }
    T* const gradients = &dkey_value(token, kv_head * head.size);
    write_transposed(team, s.dkeys, gradients, shape.keys.count - k0);
    write_transposed(team, s.dvalues, gradients + shape.key_value_heads * head.size,
                     shape.keys.count - k0);
  }

  /// Computes the `wanted` gradients from a block of queries of head h, which begins at q0, and the
  /// `count` blocks of keys from key `first` on. Skips blocks of keys that no query sees.
  template <Gradients wanted>
  KOKKOS_FUNCTION void add_pairs(const AttentionMember& team, A* memory, std::int64_t b,
                                 std::int64_t h, std::int64_t q0, std::int64_t first,
                                 int count) const {
    constexpr bool sums_queries = wanted != Gradients::of_keys;
    const Scratch shared = scratch(memory, 0);
    bool loaded = false;
    QueriesAhead ahead = queries_after(b, h, q0);
    for (int n = 0; n < count; ++n) {
      const std::int64_t k0 = first + n * block;
      if (q0 + block <= shape.first_query(b, k0) || q0 >= shape.end_query(b, k0 + block - 1))
        continue;
      if (!loaded) {
        load_queries(team, shared, b, h, q0);
        if constexpr (sums_queries) load_sums(team, shared, b, h, q0, k0);
        team.team_barrier();
      }
      loaded = true;
      add_pair<wanted>(team, scratch(memory, n), b, h, q0, k0, ahead);
      ahead = {};
      team.team_barrier();
    }
    if (sums_queries && loaded) {
      store_sums(team, shared, b, h, q0);
      team.team_barrier();
    }
  }

  /// The next block of queries, their output's gradients, and their own gradients.
  struct QueriesAhead {
    RowsAhead<T> queries, grads;
    RowsAhead<A> sums;
  };
  KOKKOS_FUNCTION QueriesAhead queries_after(std::int64_t b, std::int64_t h,
                                             std::int64_t q0) const {
    const std::int64_t token = shape.query_row(b, q0);
    const std::int64_t valid = shape.queries.count - q0;
    const QuerySums sums = query_sums(b, h, q0);
    return {rows_after<T>(&q(token, h * head.size), static_cast<std::int64_t>(q.stride(0)), valid,
                          head.size),
            rows_after<T>(&grad(token, h * head.size), static_cast<std::int64_t>(grad.stride(0)),
                          valid, head.size),
            rows_after<A>(sums.first, sums.stride, valid, head.size)};
  }

  KOKKOS_FUNCTION void load_queries(const AttentionMember& team, const Scratch& s, std::int64_t b,
                                    std::int64_t h, std::int64_t q0) const {
    const std::int64_t token = shape.query_row(b, q0);
    const std::int64_t valid = shape.queries.count - q0;
    copy_block(team, s.queries, head.lanes, &q(token, h * head.size),
               static_cast<std::int64_t>(q.stride(0)), valid, head.size, block);
    copy_block(team, s.grads, head.lanes, &grad(token, h * head.size),
               static_cast<std::int64_t>(grad.stride(0)), valid, head.size, block);
    pack_left<T>(s.packed_queries, block, head.size, Broadcast<A>{s.queries, head.lanes, 1});
    pack_left<T>(s.packed_grads, block, head.size, Broadcast<A>{s.grads, head.lanes, 1});
    pack_left<T>(s.packed_queries_by_column, head.rows, block,
                 Broadcast<A>{s.queries, 1, head.lanes});
    pack_left<T>(s.packed_grads_by_column, head.rows, block, Broadcast<A>{s.grads, 1, head.lanes});
  }

  /// The rows in which the gradients of a block of queries are summed over the blocks of keys.
  struct QuerySums {
    A* first;
    std::int64_t stride;
    int count;
  };
  KOKKOS_FUNCTION QuerySums query_sums(std::int64_t b, std::int64_t h, std::int64_t q0) const {
    const std::int64_t token = shape.query_row(b, q0);
    const std::int64_t valid = shape.queries.count - q0;
    const auto count = static_cast<int>(valid < block ? valid : block);
    if constexpr (is_narrow<T>) {
      const std::int64_t columns = shape.heads * head.size;
      return {wide_queries + token * columns + h * head.size, columns, count};
    } else {
      return {&dq(token, h * head.size), static_cast<std::int64_t>(dq.stride(0)), count};
    }
  }
  /// `k0`: the first block of keys whose gradients are added. If it is the first that query q0
  /// sees, the sums begin at 0.
  KOKKOS_FUNCTION void load_sums(const AttentionMember& team, const Scratch& s, std::int64_t b,
                                 std::int64_t h, std::int64_t q0, std::int64_t k0) const {
    const QuerySums sums = query_sums(b, h, q0);
    const bool begins = !adds_queries && k0 <= shape.first_key(b, q0);
    copy_block(team, s.sums, head.lanes, sums.first, sums.stride, begins ? 0 : sums.count,
               head.size, block);
  }
  KOKKOS_FUNCTION void store_sums(const AttentionMember& team, const Scratch& s, std::int64_t b,
                                  std::int64_t h, std::int64_t q0) const {
    const QuerySums sums = query_sums(b, h, q0);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, sums.count), [&](int i) {
      A* __restrict to = sums.first + i * sums.stride;
      const A* __restrict from = s.sums + i * head.lanes;
#pragma omp simd
      for (std::int64_t d = 0; d < head.size; ++d) to[d] = from[d];
    });
  }

  /// Computes the `wanted` gradients from one pair of blocks: the queries from q0 on of head h, and
  /// the keys from k0 on, whose copies are in scratch memory. Not inlined on hosts: within a larger
  /// function, GCC 12 generates slower code for the products.
  template <Gradients wanted>
  TRIREME_APART_ON_HOSTS void add_pair(const AttentionMember& team, const Scratch& s,
                                       std::int64_t b, std::int64_t h, std::int64_t q0,
                                       std::int64_t k0, const QueriesAhead& ahead) const {
    // A register tile of scores begins at query i and key j. It is hidden if its last query comes
    // before j, or if its last key comes before the first key that query i sees.
    const bool diagonal = shape.causal && k0 == q0;
    const auto first_key = [&](std::int64_t i) {
      const std::int64_t first = shape.first_key(b, q0 + i) - k0;
      return first > 0 ? first : 0;
    };
    const auto scores = [&](std::int64_t i, std::int64_t j) {
      const bool hidden =
          (diagonal && i + Tile<A>::rows <= j) || j + Tile<A>::lanes <= first_key(i);
      return Depth{0, hidden ? 0 : head.size};
    };
    if (shape.has_biases()) load_biases(team, s, h, k0 - q0 - block + 1);
    const auto over_queries = [&](std::int64_t, std::int64_t j) {
      const std::int64_t end = k0 + j + Tile<A>::lanes - 1 + shape.window - shape.shift() - q0;
      return Depth{diagonal ? j : 0, shape.window > 0 && end < block ? end : block};
    };
    const auto over_keys = [&](std::int64_t i, std::int64_t) {
      const std::int64_t first = first_key(i);
      return Depth{first < block ? first : block - 1, diagonal ? i + Tile<A>::rows : block};
    };
    attention_product<Write::store, T>(
        team, {s.work, s.packed_queries, s.packed_keys}, Lanes<A>{s.p, block}, block, block,
        head.size, Broadcast<A>{s.queries, head.lanes, 1}, Lanes<const A>{s.keys_transposed, block},
        scores, ahead.queries);
    attention_product<Write::store, T>(
        team, {s.work, s.packed_grads, s.packed_values}, Lanes<A>{s.ds, block}, block, block,
        head.size, Broadcast<A>{s.grads, head.lanes, 1}, Lanes<const A>{s.values_transposed, block},
        scores, ahead.grads);
    team.team_barrier();
    softmax_gradient(team, s, b, h, q0, k0);
    team.team_barrier();
    if constexpr (wanted != Gradients::of_queries) {
      attention_product<Write::add, T>(
          team, {s.work, s.packed_grads_by_column, nullptr}, Lanes<A>{s.dvalues, block}, head.rows,
          block, block, Broadcast<A>{s.grads, 1, head.lanes}, Lanes<const A>{s.p, block},
          over_queries, wanted == Gradients::all ? ahead.sums : RowsAhead<A>{});
      attention_product<Write::add, T>(team, {s.work, s.packed_queries_by_column, nullptr},
                                       Lanes<A>{s.dkeys, block}, head.rows, block, block,
                                       Broadcast<A>{s.queries, 1, head.lanes},
                                       Lanes<const A>{s.ds, block}, over_queries);
    }
    if constexpr (wanted == Gradients::of_keys) return;
    if (dtable != nullptr) add_bias_gradients(team, s, b, h, q0, k0);
    attention_product<Write::store, T>(team, {s.work, nullptr, s.packed_keys_by_row},
                                       Lanes<A>{s.dqueries, head.lanes}, block, head.lanes, block,
                                       Broadcast<A>{s.ds, block, 1},
                                       Lanes<const A>{s.keys, head.lanes}, over_keys);
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, block), [&](int i) {
      A* __restrict sums = s.sums + i * head.lanes;
      const A* __restrict added = s.dqueries + i * head.lanes;
#pragma omp simd
      for (std::int64_t d = 0; d < head.lanes; ++d) sums[d] += added[d];
    });
  }

  /// With P = exp(score − logsumexp): scores become f P, and ds, which holds dp, becomes scale P (f
  /// dp − delta). f is 0 for dropped probabilities, otherwise `kept`, and 1 without dropout. A soft
  /// cap multiplies ds by its derivative.
  KOKKOS_FUNCTION void softmax_gradient(const AttentionMember& team, const Scratch& s,
                                        std::int64_t b, std::int64_t h, std::int64_t q0,
                                        std::int64_t k0) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, block), [&](int i) {
      A* __restrict p = s.p + i * block;
      A* __restrict ds = s.ds + i * block;
      const std::int64_t query = q0 + i;
      const std::int64_t first = shape.first_key(b, query) - k0;
      const std::int64_t last = shape.end_key(b, query) - k0;
      std::int64_t end = last < block ? last : block;
      if (query >= shape.queries.count || end <= first || end < 0) end = 0;
      const auto seen = static_cast<int>(end);
      const auto begin = static_cast<int>(first > 0 && seen > 0 ? first : 0);
      const auto count = static_cast<unsigned>(seen - begin);
      const auto sees = [=](int j) { return static_cast<unsigned>(j - begin) < count; };
      const std::int64_t place = shape.queries.first + query;
      const A lse = seen > 0 ? logsumexp(b, h, place) : A(0);
      const A mean = seen > 0 ? delta((b * shape.heads + h) * shape.queries.rows + place) : A(0);
      const A scale = static_cast<A>(shape.scale);
      if (native) {
#pragma omp simd
        for (int j = 0; j < block; ++j) p[j] *= scale;
      }
      if (shape.has_biases()) add_biases(p, s.biases + block - 1 - i);
      if (shape.cap > 0) cap_scores(p, block, shape.cap);
      A slopes[block];  // derivatives of the soft cap
      if (shape.cap > 0) slopes_of_cap(slopes, p);
      if (!masks.active) {
#pragma omp simd
        for (int j = 0; j < block; ++j) {
          const A probability = exp_of_difference(sees(j) ? p[j] - lse : -infinity<A>);
          p[j] = probability;
          ds[j] = sees(j) ? scale * probability * (ds[j] - mean) : A(0);  // a hidden ds is unset
        }
        if (shape.cap > 0) multiply_seen(ds, slopes, begin, seen);
        return;
      }
      A factors[block];
      masks(b, h).factors(factors, shape.queries.position + query, shape.keys.position + k0);
#pragma omp simd
      for (int j = 0; j < block; ++j) {
        const A probability = exp_of_difference(sees(j) ? p[j] - lse : -infinity<A>);
        p[j] = probability * factors[j];
        ds[j] = sees(j) ? scale * probability * (ds[j] * factors[j] - mean) : A(0);
      }
      if (shape.cap > 0) multiply_seen(ds, slopes, begin, seen);
    });
  }

  /// Biases of the offsets `first`, first + 1, …
  TRIREME_APART_ON_HOSTS void load_biases(const AttentionMember& team, const Scratch& s,
                                          std::int64_t h, std::int64_t first) const {
    for_buckets(team, shape.buckets, first, block_offsets, [&](int bucket, int begin, int end) {
      const A bias = static_cast<A>(table(bucket, h));
      for (int x = begin; x < end; ++x) s.biases[x] = bias;
    });
  }

  KOKKOS_FUNCTION static void add_biases(A* __restrict scores, const A* __restrict biases) {
#pragma omp simd
    for (int j = 0; j < block; ++j) scores[j] += biases[j];
  }

  /// Sums ds / scale along the diagonals of a pair of blocks, then over the offsets of each bucket.
  TRIREME_APART_ON_HOSTS void add_bias_gradients(const AttentionMember& team, const Scratch& s,
                                                 std::int64_t b, std::int64_t h, std::int64_t q0,
                                                 std::int64_t k0) const {
    constexpr int width = exec_on_host ? block_offsets : 1;  // diagonals per thread
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, block_offsets / width), [&](int panel) {
      const int first = panel * width - block + 1;  // key of the first diagonal and query 0
      A* __restrict sums = s.dbiases + panel * width;
      for (int d = 0; d < width; ++d) sums[d] = A(0);
      for (int i = 0; i < block; ++i) {
        const A* __restrict ds = s.ds + i * block;
        const int key = first + i, end = key + width < block ? key + width : block;
#pragma omp simd
        for (int j = key > 0 ? key : 0; j < end; ++j) sums[j - key] += ds[j];
      }
    });
    team.team_barrier();
    const std::int64_t row = b * query_blocks() + q0 / block;
    A* const sums = dtable + row * shape.buckets.count * shape.heads + h;
    const A factor = static_cast<A>(1 / shape.scale);
    for_buckets(team, shape.buckets, k0 - q0 - block + 1, block_offsets,
                [&](int bucket, int begin, int end) {
                  A sum = 0;
                  for (int x = begin; x < end; ++x) sum += s.dbiases[x];
                  sums[bucket * shape.heads] += factor * sum;
                });
  }

  /// 1 − (s / cap)² of capped scores s.
  KOKKOS_FUNCTION void slopes_of_cap(A* __restrict slopes, const A* __restrict scores) const {
    const A inverse = static_cast<A>(1 / shape.cap);
#pragma omp simd
    for (int j = 0; j < block; ++j) {
      const A share = scores[j] * inverse;
      slopes[j] = (A(1) - share) * (A(1) + share);
    }
  }

  /// ds *= slopes for the scores [begin, end), which are not hidden; other slopes are unset.
  KOKKOS_FUNCTION static void multiply_seen(A* __restrict ds, const A* __restrict slopes, int begin,
                                            int end) {
#pragma omp simd
    for (int j = begin; j < end; ++j) ds[j] *= slopes[j];
  }

  KOKKOS_FUNCTION void clear(const AttentionMember& team, const Scratch& s) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, static_cast<int>(head.rows)), [&](int d) {
      for (int j = 0; j < block; ++j) s.dkeys[d * block + j] = s.dvalues[d * block + j] = A(0);
    });
  }

  /// Rounds the sums of the queries of head h into dq, for `count` tokens from row `first` on.
  KOKKOS_FUNCTION void narrow_queries(const AttentionMember& team, std::int64_t first,
                                      std::int64_t count, std::int64_t h) const {
    const std::int64_t columns = shape.heads * head.size;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, static_cast<int>(count)), [&](int i) {
      const A* __restrict from = wide_queries + (first + i) * columns + h * head.size;
      T* __restrict to = &dq(first + i, h * head.size);
#pragma omp simd
      for (std::int64_t d = 0; d < head.size; ++d) to[d] = static_cast<T>(from[d]);
    });
  }

  /// to[r, d] += from[d, r] for the rows r < valid of the block.
  KOKKOS_FUNCTION void add_transposed(const AttentionMember& team, const A* from, A* to,
                                      std::int64_t valid) const {
    const auto stride = static_cast<std::int64_t>(key_value_sums.stride(0));
    const auto count = static_cast<int>(valid < block ? valid : block);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](int r) {
      for (std::int64_t d = 0; d < head.size; ++d) to[r * stride + d] += from[d * block + r];
    });
  }

  KOKKOS_FUNCTION void write_transposed(const AttentionMember& team, const A* from, T* to,
                                        std::int64_t valid) const {
    transpose<A>(team, to, static_cast<std::int64_t>(dkey_value.stride(0)), from, block, head.size,
                 valid < block ? valid : block, [](std::int64_t) { return A(1); });
  }
};

/// Launch the backward kernel with heads() teams, or two kernels with key_teams() and query_teams()
/// teams. Both give the same bits. Asynchronous on exec; instantiated for float, double, Bf16 and
/// Fp16.
template <class T>
void attention_backward_by_heads(const Exec& exec, const AttentionBackward<T>& backward);
template <class T>
void attention_backward_by_blocks(const Exec& exec, const AttentionBackward<T>& backward);

}  // namespace trireme::kernels
