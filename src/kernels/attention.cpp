// Attention by blocks on Kokkos teams (the portable back end), forward: the softmax of a block of
// queries is computed online over blocks of keys. attention_forward chooses among the back ends.
#include <trireme/base/check.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/attention_blocks.hpp>
#include <trireme/kernels/attention_cudnn.hpp>
#include <trireme/kernels/flash_attention.hpp>
#include <trireme/kernels/group_kernels.hpp>
#include <trireme/kernels/math.hpp>
#include <trireme/tensor/expect.hpp>

#include <cmath>
#include <limits>

namespace trireme::kernels {

AttentionShape resolved(const AttentionShape& shape) {
  check(shape.batch >= 0 && shape.sequence >= 0, "attention over ", shape.batch, " samples of ",
        shape.sequence, " tokens, expected 0 or more");
  check(shape.head_size >= 1, "attention with head size ", shape.head_size, ", expected 1 or more");
  const std::int64_t groups = shape.key_value_heads;
  AttentionShape result = shape;
  check(shape.heads >= 0 && groups >= 0, "attention with ", shape.heads, " heads over ", groups,
        " key and value heads, expected 0 or more");
  if (shape.group == 0) {
    check(groups == 0 ? shape.heads == 0 : shape.heads % groups == 0, "attention with ",
          shape.heads, " heads over ", groups,
          " key and value heads, expected a divisor of the heads");
    result.group = shape.heads == 0 ? 1 : shape.heads / groups;
  }
  const std::int64_t group = result.group;
  check(group >= 1 && shape.heads_before >= 0 && shape.heads_before < group &&
            (shape.heads == 0 || (shape.heads_before + shape.heads + group - 1) / group == groups),
        "attention with ", shape.heads, " heads in groups of ", group, ", the first without ",
        shape.heads_before, ", over ", groups,
        " key and value heads, expected the number that these heads use");
  check(shape.window == 0 || (shape.window > 0 && shape.causal), "attention with a window of ",
        shape.window, " tokens", shape.causal ? "" : " without a causal mask",
        "; expected 1 or more tokens and a causal mask, or 0 for no window");
  if (result.window >= shape.sequence) result.window = 0;
  if (result.scale == 0.0) result.scale = 1.0 / std::sqrt(static_cast<double>(shape.head_size));
  return result;
}

AttentionMasks::AttentionMasks(const AttentionDropout& of, const AttentionShape& shape)
    : dropout(of),
      sequence(shape.sequence),
      threshold(static_cast<std::uint32_t>(of.rate * 4294967296.0)),
      active(of.rate > 0.0) {
  check(of.rate >= 0.0 && of.rate < 1.0, "attention dropout ", of.rate, ", expected 0 <= rate < 1");
  if (dropout.all_heads == 0) dropout.all_heads = shape.heads;
}

namespace {

/// One block of queries of one head. Lanes are queries: everything is stored transposed, so that
/// maxima and sums of the softmax are lanewise. Queries, packed once, are the only operand that
/// needs contiguous lanes.
template <class T>
struct AttentionForward {
  using A = Accumulate<T>;
  static constexpr int block = attention_block;
  static constexpr int width =
      exec_on_host ? Tile<A>::lanes : 1;  // queries per thread in the softmax

  View2<T> o;
  View3<A> logsumexp;
  View2<const T> qkv;
  AttentionShape shape;
  AttentionMasks masks;
  HeadSizes<A> head;
  std::int64_t query_blocks;

  AttentionForward(View2<T> o_, View3<A> logsumexp_, View2<const T> qkv_, const AttentionShape& s,
                   const AttentionMasks& m)
      : o(o_),
        logsumexp(logsumexp_),
        qkv(qkv_),
        shape(s),
        masks(m),
        head(s.head_size),
        query_blocks(padded(s.sequence, block) / block) {}

  /// Scratch of a team, in the order in which it is cut.
  struct Scratch {
    A* queries;  // [K, block], scaled
    A* keys;     // [block, lanes of K]
    A* values;   // [block, lanes of K]
    A* scores;   // [block of keys, block of queries], then probabilities
    A* result;   // [rows of K, block]
    A* largest;  // [block]
    A* sum;      // [block]
    A* rescale;  // [block]
  };
  std::int64_t scratch_elements() const {
    return block * (head.size + 2 * head.lanes + block + head.rows + 3);
  }
  KOKKOS_FUNCTION Scratch scratch(const AttentionMember& team) const {
    Scratch s{};
    s.queries =
        aligned_scratch<A>(team, block * (head.size + 2 * head.lanes + block + head.rows + 3));
    s.keys = s.queries + head.size * block;
    s.values = s.keys + block * head.lanes;
    s.scores = s.values + block * head.lanes;
    s.result = s.scores + block * block;
    s.largest = s.result + head.rows * block;
    s.sum = s.largest + block;
    s.rescale = s.sum + block;
    return s;
  }

  /// Not inlined: inside the launch, GCC 12 makes slower code of the products.
  TRIREME_APART_ON_HOSTS void operator()(const AttentionMember& team) const {
    // Long rows first: with a causal mask the last queries have the most keys. On hosts one head
    // after another, so that its keys and values stay in the cache.
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
    const T* sample = qkv.data() + b * shape.sequence * stride;
    const std::int64_t kv_head = shape.key_value_head(h);
    const T* keys = sample + (shape.heads + kv_head) * head.size;
    const T* values = keys + shape.key_value_heads * head.size;

    copy_transposed(team, s.queries, sample + q0 * stride + h * head.size, stride,
                    shape.sequence - q0, head.size, static_cast<A>(shape.scale));
    start(team, s);
    const std::int64_t end =
        shape.causal && q0 + block < shape.sequence ? q0 + block : shape.sequence;
    for (std::int64_t k0 = shape.first_key(q0) / block * block; k0 < end; k0 += block) {
      const std::int64_t valid = shape.sequence - k0;
      copy_block(team, s.keys, head.lanes, keys + k0 * stride, stride, valid, head.size, block);
      copy_block(team, s.values, head.lanes, values + k0 * stride, stride, valid, head.size, block);
      team.team_barrier();
      const auto seen = [&](std::int64_t i) { return visible(i, q0, k0); };
      block_product<Write::store>(
          team, Lanes<A>{s.scores, block}, block, block, Broadcast<A>{s.keys, head.lanes, 1},
          Lanes<const A>{s.queries, block}, [&](std::int64_t j, std::int64_t i) {
            const Depth visible_keys = seen(i);
            const bool any = j < visible_keys.end && j + Tile<A>::rows > visible_keys.begin;
            return Depth{0, any ? head.size : 0};
          });
      team.team_barrier();
      softmax(team, s, q0, k0);
      team.team_barrier();
      if (masks.active) {
        drop(team, s, masks(b, h), q0, k0);
        team.team_barrier();
      }
      block_product<Write::add>(
          team, Lanes<A>{s.result, block}, head.rows, block, Broadcast<A>{s.values, 1, head.lanes},
          Lanes<const A>{s.scores, block}, [&](std::int64_t, std::int64_t i) { return seen(i); });
      team.team_barrier();
    }
    finish(team, s, b, h, q0);
  }

 private:
  /// Keys of the block at k0 that any query of query i's register tile sees; other scores are never
  /// computed.
  KOKKOS_FUNCTION Depth visible(std::int64_t i, std::int64_t q0, std::int64_t k0) const {
    constexpr std::int64_t lanes = Tile<A>::lanes;
    const std::int64_t first = shape.first_key(q0 + i / lanes * lanes) - k0;
    return {first > 0 ? first : 0, shape.causal && k0 == q0 ? padded(i + 1, lanes) : block};
  }

  /// The maximum begins finite, so that differences to it are defined: with a window, a query may
  /// see no key of its first blocks.
  KOKKOS_FUNCTION void start(const AttentionMember& team, const Scratch& s) const {
    constexpr A lowest = std::numeric_limits<A>::lowest();
    const A none = shape.window > 0 ? lowest : -infinity<A>;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, block), [&](int i) {
      s.largest[i] = none;
      s.sum[i] = A(0);
    });
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, static_cast<int>(head.rows)), [&](int d) {
      for (int i = 0; i < block; ++i) s.result[d * block + i] = A(0);
    });
  }

  /// One step of the online softmax: scores become exp(score − largest so far); sums and results so
  /// far are rescaled.
  KOKKOS_FUNCTION void softmax(const AttentionMember& team, const Scratch& s, std::int64_t q0,
                               std::int64_t k0) const {
    const bool masked = k0 + block > shape.sequence || (shape.causal && k0 + block > q0) ||
                        k0 < shape.first_key(q0 + block - 1);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, block / width), [&](int panel) {
      const int first = panel * width;
      const Depth seen = visible(first, q0, k0);
      const auto begin = static_cast<int>(seen.begin);
      const auto keys = static_cast<int>(seen.end);
      A* __restrict scores = s.scores + first;
      A largest[width];
      A sum[width];
      A rescale[width];
#pragma omp simd
      for (int i = 0; i < width; ++i) largest[i] = s.largest[first + i];
      if (masked) mask(scores, q0 + first, k0, begin, keys);
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

  /// Hides keys beyond the sequence and, if causal, those after each query and before its window.
  KOKKOS_FUNCTION void mask(A* __restrict scores, std::int64_t query, std::int64_t k0, int begin,
                            int keys) const {
    const auto end = static_cast<int>(shape.sequence - k0 < block ? shape.sequence - k0 : block);
    const auto diagonal = shape.causal ? static_cast<int>(query - k0) : block;
    // Keys up to edge + i are before the window of query + i.
    const auto edge =
        shape.window > 0 ? static_cast<int>(query - shape.window - k0) : -block - width;
    for (int j = begin; j < keys; ++j) {
#pragma omp simd
      for (int i = 0; i < width; ++i)
        scores[j * block + i] =
            j < end && j <= diagonal + i && j > edge + i ? scores[j * block + i] : -infinity<A>;
    }
  }

  KOKKOS_FUNCTION void drop(const AttentionMember& team, const Scratch& s,
                            const AttentionMask& mask_of, std::int64_t q0, std::int64_t k0) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, block), [&](int i) {
      A factors[block];
      mask_of.factors(factors, q0 + i, k0);
      for (int j = 0; j < block; ++j) s.scores[j * block + i] *= factors[j];
    });
  }

  KOKKOS_FUNCTION void finish(const AttentionMember& team, const Scratch& s, std::int64_t b,
                              std::int64_t h, std::int64_t q0) const {
    const auto count = static_cast<int>(shape.sequence - q0 < block ? shape.sequence - q0 : block);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](int i) {
      logsumexp(b, h, q0 + i) = s.largest[i] + static_cast<A>(log(s.sum[i]));
    });
    transpose<A>(team, &o(b * shape.sequence + q0, h * head.size),
                 static_cast<std::int64_t>(o.stride(0)), s.result, block, head.size, count,
                 [&](std::int64_t i) { return A(1) / s.sum[i]; });
  }
};

}  // namespace

template <class T>
void attention_forward(const Handle& handle, View2<T> o, View3<Accumulate<T>> logsumexp,
                       View2<const T> qkv, const AttentionShape& shape,
                       const AttentionDropout& dropout) {
  const AttentionShape s = resolved(shape);
  expect_shape(o, "o", {s.tokens(), s.heads * s.head_size});
  expect_shape(logsumexp, "logsumexp", {s.batch, s.heads, s.sequence});
  expect_shape(qkv, "qkv", {s.tokens(), s.qkv_columns()});
  if (s.tokens() * s.heads == 0) return;
  const AttentionMasks masks(dropout, s);
  if constexpr (is_narrow<T>) {
    const AttentionBackend backend = handle.choice().attention(dtype_of<T>).forward;
    if (backend == AttentionBackend::cudnn &&
        attention_forward_cudnn<T>(handle, o, logsumexp, qkv, s, dropout))
      return;
    if (backend != AttentionBackend::portable && group_kernels_available() &&
        group_forward_takes(s, {o.data(), qkv.data()}, {row_stride(o), row_stride(qkv)}))
      return group_attention_forward<T>(handle, handle.stream(), o, logsumexp, qkv, s, dropout);
    if (backend != AttentionBackend::portable && flash_available() &&
        flash_takes(s, {o.data(), qkv.data()}, {row_stride(o), row_stride(qkv)}))
      return flash_attention_forward<T>(handle, o, logsumexp, qkv, s, dropout);
  }
  const Exec& exec = handle;
  const AttentionForward<T> forward(o, logsumexp, qkv, s, masks);
  const auto teams = static_cast<int>(s.batch * s.heads * forward.query_blocks);
  const auto bytes = aligned_scratch_bytes<Accumulate<T>>(forward.scratch_elements());
  auto policy = AttentionPolicy(exec, teams, team_threads(exec))
                    .set_scratch_size(1, Kokkos::PerTeam(static_cast<int>(bytes)));
  Kokkos::parallel_for("kernels/attention_forward", policy, forward);
}

#define TRIREME_INSTANTIATE(T)                                                      \
  template void attention_forward<T>(const Handle&, View2<T>, View3<Accumulate<T>>, \
                                     View2<const T>, const AttentionShape&,         \
                                     const AttentionDropout&)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
