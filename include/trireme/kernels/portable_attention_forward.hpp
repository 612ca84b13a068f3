#pragma once

#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/attention_blocks.hpp>
#include <trireme/kernels/attention_range.hpp>
#include <trireme/kernels/math.hpp>

#include <cstdint>
#include <limits>

/// The portable attention, forward, by blocks of queries, with online softmax over blocks of keys.
namespace trireme::kernels {

/// Attention of some neighbouring blocks of queries of one head, which share the copies of keys and
/// values. Lanes are queries: queries, scores and results
/// are stored transposed; keys and values are not.
template <class T>
struct AttentionForward {
  using A = Accumulate<T>;
  static constexpr int block = attention_block;
  static constexpr int width =
      exec_on_host ? Tile<A>::lanes : 1;  // queries per thread in the softmax
  static constexpr int blocks_per_team = exec_on_host ? 4 : 1;
  // A call of lowest() is not allowed in a function for devices.
  static constexpr A lowest = std::numeric_limits<A>::lowest();

  View2<T> o;
  View3<A> logsumexp;
  View2<const T> q;          // [T, ≥ H·K], columns of queries first
  View2<const T> key_value;  // [rows, 2 Hkv·K]
  AttentionRange shape;
  AttentionMasks masks;
  HeadSizes<A> head;
  std::int64_t query_teams;   // per head of a sample
  View2<const T> table = {};  // [buckets, H] biases, or empty
  A* sums = nullptr;          // [T, H·K], receives the results in place of `o`; or null
  bool merges = false;        ///< merges the results with previous results for other keys
  bool native = false;        ///< products by the processor's bf16 instructions

  AttentionForward(View2<T> o_, View3<A> logsumexp_, View2<const T> q_, View2<const T> key_value_,
                   const AttentionRange& s, const AttentionMasks& m)
      : o(o_),
        logsumexp(logsumexp_),
        q(q_),
        key_value(key_value_),
        shape(s),
        masks(m),
        head(s.head_size),
        query_teams(padded(s.queries.count, block * blocks_per_team) / (block * blocks_per_team)) {}

  /// Arrays in the scratch memory of a team. Each block of queries has its own `queries`, `result`,
  /// `largest` and `sum`; the other arrays are shared.
  struct Scratch {
    A* queries;            // [K, block], scaled unless native
    A* result;             // [rows of K, block]
    A* largest;            // [block]
    A* sum;                // [block]
    Bf16* packed_queries;  // operands of native products; null without them
    A* keys;               // [block, lanes of K]
    A* values;             // [block, lanes of K]
    A* scores;             // [block of keys, block of queries], later probabilities
    A* biases;             // [block_offsets], the last offset first
    Bf16* packed_keys;
    Bf16* packed_values;
    Bf16* work;  // packed probabilities
  };
  KOKKOS_FUNCTION std::int64_t block_elements() const {
    return block * (head.size + head.rows + 2) + (native ? native_elements(block, head.size) : 0);
  }
  KOKKOS_FUNCTION std::int64_t scratch_elements() const {
    return blocks_per_team * block_elements() + block * (2 * head.lanes + block) + bias_elements() +
           (native ? native_elements(block, head.size) + native_elements(head.rows, block) +
                         native_elements(block, block)
                   : 0);
  }
  KOKKOS_FUNCTION int bias_elements() const { return shape.has_biases() ? 2 * block : 0; }
  /// The arrays of block `number` of the team's blocks of queries. `first`: see aligned_scratch().
  KOKKOS_FUNCTION Scratch scratch(A* first, int number) const {
    Scratch s{};
    s.queries = first + number * block_elements();
    s.result = s.queries + head.size * block;
    s.largest = s.result + head.rows * block;
    s.sum = s.largest + block;
    s.keys = first + blocks_per_team * block_elements();
    s.values = s.keys + block * head.lanes;
    s.scores = s.values + block * head.lanes;
    s.biases = s.scores + block * block;
    if (!native) return s;
    s.packed_queries = reinterpret_cast<Bf16*>(s.sum + block);
    s.packed_keys = reinterpret_cast<Bf16*>(s.biases + bias_elements());
    s.packed_values = s.packed_keys + 2 * native_elements(block, head.size);
    s.work = s.packed_values + 2 * native_elements(head.rows, block);
    return s;
  }

  KOKKOS_FUNCTION void operator()(const AttentionMember& team) const {
    // The last queries come first: with a causal mask, they see the most keys. On hosts, the teams
    // of a head run in sequence, so that its keys and values stay in the cache.
    const std::int64_t planes = shape.batch * shape.heads;
    const std::int64_t plane =
        exec_on_host ? team.league_rank() / query_teams : team.league_rank() % planes;
    const std::int64_t turn =
        exec_on_host ? team.league_rank() % query_teams : team.league_rank() / planes;
    const std::int64_t first = (query_teams - 1 - turn) * block * blocks_per_team;
    const std::int64_t b = plane / shape.heads;
    const std::int64_t h = plane % shape.heads;
    A* const memory = aligned_scratch<A>(team, scratch_elements());
    const auto stride = static_cast<std::int64_t>(q.stride(0));
    const auto key_stride = static_cast<std::int64_t>(key_value.stride(0));
    const T* keys =
        key_value.data() + shape.key_value_head(h) * head.size + shape.key_row(b, 0) * key_stride;
    const T* values = keys + shape.key_value_heads * head.size;

    const int count = blocks_from(first);
    for (int n = 0; n < count; ++n) {
      const Scratch s = scratch(memory, n);
      const std::int64_t q0 = first + n * block;
      copy_transposed(team, s.queries, q.data() + shape.query_row(b, q0) * stride + h * head.size,
                      stride, shape.queries.count - q0, head.size,
                      native ? A(1) : static_cast<A>(shape.scale));
      pack_right<T>(s.packed_queries, block, head.size, Lanes<const A>{s.queries, block});
      start(team, s);
    }
    const std::int64_t end = shape.end_key(b, first + count * block - 1);
    for (std::int64_t k0 = shape.first_key(b, first) / block * block; k0 < end; k0 += block) {
      const Scratch shared = scratch(memory, 0);
      const std::int64_t valid = shape.keys.count - k0;
      copy_block(team, shared.keys, head.lanes, keys + k0 * key_stride, key_stride, valid,
                 head.size, block);
      copy_block(team, shared.values, head.lanes, values + k0 * key_stride, key_stride, valid,
                 head.size, block);
      pack_left<T>(shared.packed_keys, block, head.size, Broadcast<A>{shared.keys, head.lanes, 1});
      pack_left<T>(shared.packed_values, head.rows, block,
                   Broadcast<A>{shared.values, 1, head.lanes});
      team.team_barrier();
      RowsAhead<T> keys_ahead = rows_after(keys + k0 * key_stride, key_stride, end - k0, head.size);
      RowsAhead<T> values_ahead =
          rows_after(values + k0 * key_stride, key_stride, end - k0, head.size);
      for (int n = 0; n < count; ++n) {
        const std::int64_t q0 = first + n * block;
        if (k0 >= shape.end_key(b, q0 + block - 1) || k0 + block <= shape.first_key(b, q0))
          continue;
        add_pair(team, scratch(memory, n), b, h, q0, k0, keys_ahead, values_ahead);
        keys_ahead = values_ahead = {};
      }
    }
    team.team_barrier();  // with ranges of keys, there may be no pair of blocks
    for (int n = 0; n < count; ++n) {
      if (merges || sums != nullptr)
        merge(team, scratch(memory, n), b, h, first + n * block);
      else
        finish(team, scratch(memory, n), b, h, first + n * block);
    }
  }

 private:
  /// Number of the team's blocks of queries, which begin at query `first`.
  KOKKOS_FUNCTION int blocks_from(std::int64_t first) const {
    const std::int64_t rest = padded(shape.queries.count - first, block) / block;
    return static_cast<int>(rest < blocks_per_team ? rest : blocks_per_team);
  }

  /// Adds the block of keys at k0 to the results of the block of queries at q0. Not inlined on
  /// hosts: within a larger function, GCC 12 generates slower code for the products.
  TRIREME_APART_ON_HOSTS void add_pair(const AttentionMember& team, const Scratch& s,
                                       std::int64_t b, std::int64_t h, std::int64_t q0,
                                       std::int64_t k0, const RowsAhead<T>& keys_ahead,
                                       const RowsAhead<T>& values_ahead) const {
    const auto seen = [&](std::int64_t i) { return visible(b, i, q0, k0); };
    if (shape.has_biases()) load_biases(team, s, h, k0 - q0 - block + 1);
    attention_product<Write::store, T>(
        team, {s.work, s.packed_keys, s.packed_queries}, Lanes<A>{s.scores, block}, block, block,
        head.size, Broadcast<A>{s.keys, head.lanes, 1}, Lanes<const A>{s.queries, block},
        [&](std::int64_t j, std::int64_t i) {
          const Depth visible_keys = seen(i);
          const bool any = j < visible_keys.end && j + Tile<A>::rows > visible_keys.begin;
          return Depth{0, any ? head.size : 0};
        },
        keys_ahead);
    team.team_barrier();
    softmax(team, s, b, q0, k0);
    team.team_barrier();
    if (masks.active) {
      drop(team, s, masks(b, h), q0, k0);
      team.team_barrier();
    }
    attention_product<Write::add, T>(
        team, {s.work, s.packed_values, nullptr}, Lanes<A>{s.result, block}, head.rows, block,
        block, Broadcast<A>{s.values, 1, head.lanes}, Lanes<const A>{s.scores, block},
        [&](std::int64_t, std::int64_t i) { return seen(i); }, values_ahead);
    team.team_barrier();
  }

  /// Biases of the offsets `first`, first + 1, …
  TRIREME_APART_ON_HOSTS void load_biases(const AttentionMember& team, const Scratch& s,
                                          std::int64_t h, std::int64_t first) const {
    for_buckets(team, shape.buckets, first, block_offsets, [&](int bucket, int begin, int end) {
      const A bias = static_cast<A>(table(bucket, h));
      for (int x = begin; x < end; ++x) s.biases[block_offsets - 1 - x] = bias;
    });
  }

  /// Range of the keys in the block at k0 that queries of the register tile of query i may see.
  /// Scores outside the range are not used.
  KOKKOS_FUNCTION Depth visible(std::int64_t b, std::int64_t i, std::int64_t q0,
                                std::int64_t k0) const {
    constexpr std::int64_t lanes = Tile<A>::lanes;
    const std::int64_t first = shape.first_key(b, q0 + i / lanes * lanes) - k0;
    std::int64_t end = shape.causal && k0 == q0 ? padded(i + 1, lanes) : block;
    if (shape.has_key_ranges()) {
      const std::int64_t last = shape.end_key(b, q0 + i / lanes * lanes + lanes - 1) - k0;
      end = last < 0 ? 0 : last < block ? last : block;
    }
    return {first > 0 ? first : 0, end};
  }

  /// Clears sums and results. With a window, documents or ranges, a query may see no key of its
  /// first blocks; its maximum then starts finite, so that exp(score − maximum) is not NaN.
  KOKKOS_FUNCTION void start(const AttentionMember& team, const Scratch& s) const {
    const A none = shape.window > 0 || shape.has_starts() ? lowest : -infinity<A>;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, block), [&](int i) {
      s.largest[i] = none;
      s.sum[i] = A(0);
    });
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, static_cast<int>(head.rows)), [&](int d) {
      for (int i = 0; i < block; ++i) s.result[d * block + i] = A(0);
    });
  }

  /// One step of the online softmax: scores become exp(score − largest score so far), and the
  /// previous sums and results are rescaled.
  KOKKOS_FUNCTION void softmax(const AttentionMember& team, const Scratch& s, std::int64_t b,
                               std::int64_t q0, std::int64_t k0) const {
    const bool masked = k0 + block > shape.keys.count || (shape.causal && k0 + block > q0) ||
                        k0 < shape.first_key(b, q0 + block - 1) ||
                        (shape.has_key_ranges() && k0 + block > shape.end_key(b, q0));
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, block / width), [&](int panel) {
      const int first = panel * width;
      const Depth seen = visible(b, first, q0, k0);
      const auto begin = static_cast<int>(seen.begin);
      const auto keys = static_cast<int>(seen.end);
      A* __restrict scores = s.scores + first;
      A largest[width];
      A sum[width];
      A rescale[width];
#pragma omp simd
      for (int i = 0; i < width; ++i) largest[i] = s.largest[first + i];
      if (native) complete_native(scores, begin, keys);
      if (shape.cap > 0)
        for (int j = begin; j < keys; ++j) cap_scores(scores + j * block, width, shape.cap);
      if (shape.has_biases()) add_biases(scores, s.biases + first, begin, keys);
      if (masked) mask(scores, q0 + first, k0, begin, keys);
      if (masked && shape.has_starts()) mask_starts(scores, b, q0 + first, k0, begin, keys);
      if (masked && shape.has_key_ranges()) mask_ends(scores, b, q0 + first, k0, begin, keys);
      for (int j = begin; j < keys; ++j) {
#pragma omp simd
        for (int i = 0; i < width; ++i) {
          const A score = scores[j * block + i];
          largest[i] = score > largest[i] ? score : largest[i];
        }
      }
#pragma omp simd
      for (int i = 0; i < width; ++i) {
        rescale[i] = exp_of_difference(s.largest[first + i] - largest[i]);
        s.largest[first + i] = largest[i];
        sum[i] = s.sum[first + i] * rescale[i];
      }
      for (int j = begin; j < keys; ++j) {
#pragma omp simd
        for (int i = 0; i < width; ++i) {
          const A p = exp_of_difference(scores[j * block + i] - largest[i]);
          scores[j * block + i] = p;
          sum[i] += p;
        }
      }
#pragma omp simd
      for (int i = 0; i < width; ++i) s.sum[first + i] = sum[i];
      for (std::int64_t d = 0; d < head.rows; ++d) {
        A* __restrict row = s.result + d * block + first;
#pragma omp simd
        for (int i = 0; i < width; ++i) row[i] *= rescale[i];
      }
    });
  }

  /// Scales the scores of native products, whose operands are not scaled. Sets scores outside
  /// [begin, keys) to 0, because native products sum over all keys of a block.
  KOKKOS_FUNCTION void complete_native(A* __restrict scores, int begin, int keys) const {
    const A scale = static_cast<A>(shape.scale);
    for (int j = 0; j < block; ++j) {
      const A factor = j >= begin && j < keys ? scale : A(0);
#pragma omp simd
      for (int i = 0; i < width; ++i) scores[j * block + i] *= factor;
    }
  }

  /// Adds biases[block − 1 + i − j] to the score of query i and key j.
  KOKKOS_FUNCTION static void add_biases(A* __restrict scores, const A* __restrict biases,
                                         int begin, int keys) {
    for (int j = begin; j < keys; ++j) {
#pragma omp simd
      for (int i = 0; i < width; ++i) scores[j * block + i] += biases[block - 1 + i - j];
    }
  }

  /// Sets scores to −∞ for keys beyond the sequence, after the query (causal) or before its window.
  KOKKOS_FUNCTION void mask(A* __restrict scores, std::int64_t query, std::int64_t k0, int begin,
                            int keys) const {
    const auto end =
        static_cast<int>(shape.keys.count - k0 < block ? shape.keys.count - k0 : block);
    const auto diagonal = shape.causal ? static_cast<int>(query - k0) : block;
    // Keys up to edge + i are before the window of query + i.
    const auto edge = shape.window > 0 ? static_cast<int>(query + shape.shift() - shape.window - k0)
                                       : -block - width;
    for (int j = begin; j < keys; ++j) {
#pragma omp simd
      for (int i = 0; i < width; ++i)
        scores[j * block + i] =
            j < end && j <= diagonal + i && j > edge + i ? scores[j * block + i] : -infinity<A>;
    }
  }

  /// Sets scores to −∞ for keys before the document or range.
  KOKKOS_FUNCTION void mask_starts(A* __restrict scores, std::int64_t b, std::int64_t query,
                                   std::int64_t k0, int begin, int keys) const {
    int first[width];
    for (int i = 0; i < width; ++i) {
      const std::int64_t key = shape.first_key(b, query + i) - k0;
      first[i] = static_cast<int>(key < 0 ? 0 : key < block ? key : block);
    }
    for (int j = begin; j < keys; ++j) {
#pragma omp simd
      for (int i = 0; i < width; ++i)
        scores[j * block + i] = j >= first[i] ? scores[j * block + i] : -infinity<A>;
    }
  }

  /// Sets scores to −∞ for keys after the range.
  KOKKOS_FUNCTION void mask_ends(A* __restrict scores, std::int64_t b, std::int64_t query,
                                 std::int64_t k0, int begin, int keys) const {
    int end[width];
    for (int i = 0; i < width; ++i) {
      const std::int64_t key = shape.end_key(b, query + i) - k0;
      end[i] = static_cast<int>(key < 0 ? 0 : key < block ? key : block);
    }
    for (int j = begin; j < keys; ++j) {
#pragma omp simd
      for (int i = 0; i < width; ++i)
        scores[j * block + i] = j < end[i] ? scores[j * block + i] : -infinity<A>;
    }
  }

  KOKKOS_FUNCTION void drop(const AttentionMember& team, const Scratch& s,
                            const AttentionMask& mask_of, std::int64_t q0, std::int64_t k0) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, block), [&](int i) {
      A factors[block];
      mask_of.factors(factors, shape.queries.position + q0 + i, shape.keys.position + k0);
      for (int j = 0; j < block; ++j) s.scores[j * block + i] *= factors[j];
    });
  }

  KOKKOS_FUNCTION int queries_from(std::int64_t q0) const {
    return static_cast<int>(shape.queries.count - q0 < block ? shape.queries.count - q0 : block);
  }

  /// Writes the results in the type of the sums, to `sums` or `o`, and logsumexp. If `merges`,
  /// merges them with the previous results. Does not change the results of queries that see none
  /// of the keys.
  KOKKOS_FUNCTION void merge(const AttentionMember& team, const Scratch& s, std::int64_t b,
                             std::int64_t h, std::int64_t q0) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, queries_from(q0)), [&](int i) {
      if (s.sum[i] == A(0)) return;  // the query sees none of these keys
      const std::int64_t token = shape.query_row(b, q0 + i);
      A* __restrict row = nullptr;
      if constexpr (is_narrow<T>)
        row = sums + (token * shape.heads + h) * head.size;
      else
        row = &o(token, h * head.size);
      A& known = logsumexp(b, h, shape.queries.first + q0 + i);
      const A mine = s.largest[i] + static_cast<A>(log(s.sum[i]));
      if (!merges) {
        known = mine;
        for (std::int64_t d = 0; d < head.size; ++d) row[d] = s.result[d * block + i] / s.sum[i];
        return;
      }
      const A most = known > mine ? known : mine;
      const A both = most + static_cast<A>(log(exp(known - most) + exp(mine - most)));
      const A former = static_cast<A>(exp(known - both));
      const A added = static_cast<A>(exp(mine - both)) / s.sum[i];
      for (std::int64_t d = 0; d < head.size; ++d)
        row[d] = former * row[d] + added * s.result[d * block + i];
      known = both;
    });
  }

  KOKKOS_FUNCTION void finish(const AttentionMember& team, const Scratch& s, std::int64_t b,
                              std::int64_t h, std::int64_t q0) const {
    const int count = queries_from(q0);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](int i) {
      const A sum = s.sum[i];  // 0: the query sees no key
      logsumexp(b, h, shape.queries.first + q0 + i) =
          sum == A(0) ? lowest : s.largest[i] + static_cast<A>(log(sum));
    });
    transpose<A>(team, &o(shape.query_row(b, q0), h * head.size),
                 static_cast<std::int64_t>(o.stride(0)), s.result, block, head.size, count,
                 [&](std::int64_t i) { return s.sum[i] == A(0) ? A(0) : A(1) / s.sum[i]; });
  }
};

/// Launches a team for each block of queries of each head of each sample. Asynchronous on exec;
/// instantiated for float, double, Bf16 and Fp16.
template <class T>
void attention_forward_by_blocks(const Exec& exec, const AttentionForward<T>& forward);

}  // namespace trireme::kernels
