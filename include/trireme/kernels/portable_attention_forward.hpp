#pragma once

#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/attention_blocks.hpp>
#include <trireme/kernels/attention_range.hpp>
#include <trireme/kernels/math.hpp>

#include <cstdint>
#include <limits>

/// The portable attention, forward, by blocks of queries, with online softmax over blocks of keys.
namespace trireme::kernels {

/// Attention of one block of queries of one head. Lanes are queries: queries, scores and results
/// are stored transposed; keys and values are not.
template <class T>
struct AttentionForward {
  using A = Accumulate<T>;
  static constexpr int block = attention_block;
  static constexpr int width =
      exec_on_host ? Tile<A>::lanes : 1;  // queries per thread in the softmax

  View2<T> o;
  View3<A> logsumexp;
  View2<const T> qkv;
  AttentionRange shape;
  AttentionMasks masks;
  HeadSizes<A> head;
  std::int64_t query_blocks;
  View2<const T> key_value = {};  // [rows, 2 Hkv·K], or empty: keys and values are in qkv
  A* sums = nullptr;              // [T, H·K], receives the results in place of `o`; or null
  bool merges = false;            ///< merges the results with previous results for other keys
  bool native = false;            ///< products by the processor's bf16 instructions

  AttentionForward(View2<T> o_, View3<A> logsumexp_, View2<const T> qkv_, const AttentionRange& s,
                   const AttentionMasks& m)
      : o(o_),
        logsumexp(logsumexp_),
        qkv(qkv_),
        shape(s),
        masks(m),
        head(s.head_size),
        query_blocks(padded(s.queries.count, block) / block) {}

  /// Arrays in the scratch memory of a team, in the order of their addresses.
  struct Scratch {
    A* queries;  // [K, block], scaled unless native
    A* keys;     // [block, lanes of K]
    A* values;   // [block, lanes of K]
    A* scores;   // [block of keys, block of queries], later probabilities
    A* result;   // [rows of K, block]
    A* largest;  // [block]
    A* sum;      // [block]
    A* rescale;  // [block]
    A* packed;   // operands of native products
  };
  KOKKOS_FUNCTION std::int64_t scratch_elements() const {
    return block * (head.size + 2 * head.lanes + block + head.rows + 3) +
           (native ? native_elements(head.size) : 0);
  }
  KOKKOS_FUNCTION Scratch scratch(const AttentionMember& team) const {
    Scratch s{};
    s.queries = aligned_scratch<A>(team, scratch_elements());
    s.keys = s.queries + head.size * block;
    s.values = s.keys + block * head.lanes;
    s.scores = s.values + block * head.lanes;
    s.result = s.scores + block * block;
    s.largest = s.result + head.rows * block;
    s.sum = s.largest + block;
    s.rescale = s.sum + block;
    s.packed = s.rescale + block;
    return s;
  }

  /// Not inlined on hosts: inside the launch, GCC 12 generates slower code for the products.
  TRIREME_APART_ON_HOSTS void operator()(const AttentionMember& team) const {
    // The last queries come first: with a causal mask, they see the most keys. On hosts, the blocks
    // of a head run in sequence, so that its keys and values stay in the cache.
    const std::int64_t planes = shape.batch * shape.heads;
    const std::int64_t plane =
        exec_on_host ? team.league_rank() / query_blocks : team.league_rank() % planes;
    const std::int64_t turn =
        exec_on_host ? team.league_rank() % query_blocks : team.league_rank() / planes;
    const std::int64_t q0 = (query_blocks - 1 - turn) * block;
    const std::int64_t b = plane / shape.heads;
    const std::int64_t h = plane % shape.heads;
    const Scratch s = scratch(team);
    const auto stride = static_cast<std::int64_t>(qkv.stride(0));
    const std::int64_t kv_head = shape.key_value_head(h);
    const bool apart = key_value.data() != nullptr;
    const auto key_stride = apart ? static_cast<std::int64_t>(key_value.stride(0)) : stride;
    const T* keys = apart ? key_value.data() + kv_head * head.size
                          : qkv.data() + (shape.heads + kv_head) * head.size;
    keys += shape.key_row(b, 0) * key_stride;
    const T* values = keys + shape.key_value_heads * head.size;

    copy_transposed(team, s.queries, qkv.data() + shape.query_row(b, q0) * stride + h * head.size,
                    stride, shape.queries.count - q0, head.size,
                    native ? A(1) : static_cast<A>(shape.scale));
    start(team, s);
    const std::int64_t end =
        shape.causal && q0 + block < shape.keys.count ? q0 + block : shape.keys.count;
    for (std::int64_t k0 = shape.first_key(b, q0) / block * block; k0 < end; k0 += block) {
      const std::int64_t valid = shape.keys.count - k0;
      copy_block(team, s.keys, head.lanes, keys + k0 * key_stride, key_stride, valid, head.size,
                 block);
      copy_block(team, s.values, head.lanes, values + k0 * key_stride, key_stride, valid, head.size,
                 block);
      team.team_barrier();
      const auto seen = [&](std::int64_t i) { return visible(b, i, q0, k0); };
      attention_product<Write::store, T>(
          team, native ? s.packed : nullptr, Lanes<A>{s.scores, block}, block, block, head.size,
          Broadcast<A>{s.keys, head.lanes, 1}, Lanes<const A>{s.queries, block},
          [&](std::int64_t j, std::int64_t i) {
            const Depth visible_keys = seen(i);
            const bool any = j < visible_keys.end && j + Tile<A>::rows > visible_keys.begin;
            return Depth{0, any ? head.size : 0};
          });
      team.team_barrier();
      softmax(team, s, b, q0, k0);
      team.team_barrier();
      if (masks.active) {
        drop(team, s, masks(b, h), q0, k0);
        team.team_barrier();
      }
      attention_product<Write::add, T>(
          team, native ? s.packed : nullptr, Lanes<A>{s.result, block}, head.rows, block, block,
          Broadcast<A>{s.values, 1, head.lanes}, Lanes<const A>{s.scores, block},
          [&](std::int64_t, std::int64_t i) { return seen(i); });
      team.team_barrier();
    }
    if (merges || sums != nullptr)
      merge(team, s, b, h, q0);
    else
      finish(team, s, b, h, q0);
  }

 private:
  /// Range of the keys in the block at k0 that queries of the register tile of query i may see.
  /// Scores outside the range are not used.
  KOKKOS_FUNCTION Depth visible(std::int64_t b, std::int64_t i, std::int64_t q0,
                                std::int64_t k0) const {
    constexpr std::int64_t lanes = Tile<A>::lanes;
    const std::int64_t first = shape.first_key(b, q0 + i / lanes * lanes) - k0;
    return {first > 0 ? first : 0, shape.causal && k0 == q0 ? padded(i + 1, lanes) : block};
  }

  /// Clears sums and results. With a window or documents, a query may see no key of its first
  /// blocks; its maximum then starts finite, so that exp(score − maximum) is not NaN.
  KOKKOS_FUNCTION void start(const AttentionMember& team, const Scratch& s) const {
    constexpr A lowest = std::numeric_limits<A>::lowest();
    const A none = shape.window > 0 || shape.has_documents() ? lowest : -infinity<A>;
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
                        k0 < shape.first_key(b, q0 + block - 1);
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
      if (masked) mask(scores, q0 + first, k0, begin, keys);
      if (masked && shape.has_documents()) mask_documents(scores, b, q0 + first, k0, begin, keys);
      for (int j = begin; j < keys; ++j) {
#pragma omp simd
        for (int i = 0; i < width; ++i) {
          const A score = scores[j * block + i];
          largest[i] = score > largest[i] ? score : largest[i];
        }
      }
#pragma omp simd
      for (int i = 0; i < width; ++i) {
        rescale[i] = fast_exp(s.largest[first + i] - largest[i]);
        s.largest[first + i] = largest[i];
        sum[i] = s.sum[first + i] * rescale[i];
      }
      for (int j = begin; j < keys; ++j) {
#pragma omp simd
        for (int i = 0; i < width; ++i) {
          const A p = fast_exp(scores[j * block + i] - largest[i]);
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

  /// Sets scores to −∞ for keys of earlier documents.
  KOKKOS_FUNCTION void mask_documents(A* __restrict scores, std::int64_t b, std::int64_t query,
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

  /// Writes the results in the type of the sums, to `sums` or `o`. If `merges`, merges them with
  /// the previous results. Queries that see none of the keys are left unchanged.
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
      logsumexp(b, h, shape.queries.first + q0 + i) = s.largest[i] + static_cast<A>(log(s.sum[i]));
    });
    transpose<A>(team, &o(shape.query_row(b, q0), h * head.size),
                 static_cast<std::int64_t>(o.stride(0)), s.result, block, head.size, count,
                 [&](std::int64_t i) { return A(1) / s.sum[i]; });
  }
};

/// Launches a team for each block of queries of each head of each sample. Asynchronous on exec;
/// instantiated for float, double, Bf16 and Fp16.
template <class T>
void attention_forward_by_blocks(const Exec& exec, const AttentionForward<T>& forward);

}  // namespace trireme::kernels
