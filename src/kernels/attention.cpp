// attention_forward by the first enabled back end that supports the call, of which the portable
// back end supports every call, and attention_decode.
#include <trireme/kernels/attention.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/attention_cudnn.hpp>
#include <trireme/kernels/flash_attention.hpp>
#include <trireme/kernels/group_kernels.hpp>
#include <trireme/kernels/math.hpp>
#include <trireme/kernels/portable_attention_forward.hpp>
#include <trireme/tensor/expect.hpp>

#include <cmath>

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
  check(shape.window == 0 || (shape.window > 0 && (shape.causal || shape.has_key_ranges())),
        "attention with a window of ", shape.window, " tokens",
        shape.causal ? "" : " without a causal mask",
        "; expected 1 or more tokens and a causal mask or ranges of keys, or 0 for no window");
  check(shape.cap >= 0, "attention with a soft cap of ", shape.cap, ", expected 0 or more");
  check(!shape.has_documents() || shape.causal,
        "attention to documents without a causal mask; expected a causal mask");
  if (shape.has_documents()) expect_shape(shape.positions, "positions", {shape.tokens()});
  check(shape.key_sequence >= 0, "attention to ", shape.key_sequence,
        " keys per sample, expected 0 or more");
  check(!shape.has_key_ranges() || !shape.causal,
        "attention to ranges of keys with a causal mask; expected no causal mask");
  if (shape.has_key_ranges()) {
    if (shape.key_begin.data() != nullptr)
      expect_shape(shape.key_begin, "key_begin", {shape.tokens()});
    expect_shape(shape.key_end, "key_end", {shape.tokens()});
  }
  check(!shape.has_biases() || shape.cap == 0, "attention with biases and a soft cap of ",
        shape.cap, ", expected no soft cap");
  if (result.window >= shape.sequence) result.window = 0;
  if (result.scale == 0.0) result.scale = 1.0 / std::sqrt(static_cast<double>(shape.head_size));
  return result;
}

AttentionMasks::AttentionMasks(const AttentionDropout& of, const AttentionShape& shape)
    : dropout(of),
      sequence(shape.sequence),
      keys(shape.keys_per_sample()),
      threshold(static_cast<std::uint32_t>(of.rate * 4294967296.0)),
      active(of.rate > 0.0) {
  check(of.rate >= 0.0 && of.rate < 1.0, "attention dropout ", of.rate, ", expected 0 <= rate < 1");
  if (dropout.all_heads == 0) dropout.all_heads = shape.heads;
}

void expect_own_keys(const AttentionShape& s) {
  check(s.keys_per_sample() == s.sequence, "attention of ", s.sequence, " tokens to ",
        s.keys_per_sample(), " keys in the same array, expected equal numbers");
}

void expect_other_keys(const AttentionShape& s) {
  check(!s.causal && !s.has_biases(), "attention to keys of other tokens with ",
        s.causal ? "a causal mask" : "biases", ", expected neither a causal mask nor biases");
}

namespace {

template <class T>
void portable_forward(const Handle& handle, View2<T> o, View3<Accumulate<T>> logsumexp,
                      View2<const T> q, View2<const T> key_value, View2<const T> table,
                      const AttentionShape& shape, const AttentionDropout& dropout) {
  AttentionForward<T> forward(o, logsumexp, q, key_value, shape, AttentionMasks(dropout, shape));
  forward.table = table;
  forward.native = handle.choice().attention(dtype_of<T>).forward == AttentionBackend::native;
  attention_forward_by_blocks<T>(handle, forward);
}

}  // namespace

template <class T>
void attention_forward(const Handle& handle, View2<T> o, View3<Accumulate<T>> logsumexp,
                       View2<const T> qkv, const AttentionShape& shape,
                       const AttentionDropout& dropout, View2<const T> table) {
  const AttentionShape s = resolved(shape);
  expect_own_keys(s);
  expect_shape(o, "o", {s.tokens(), s.heads * s.head_size});
  expect_shape(logsumexp, "logsumexp", {s.batch, s.heads, s.sequence});
  expect_shape(qkv, "qkv", {s.tokens(), s.qkv_columns()});
  if (s.has_biases()) expect_shape(table, "table", {s.buckets.count, s.heads});
  if (s.tokens() * s.heads == 0) return;
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
  portable_forward<T>(handle, o, logsumexp, qkv, columns_from(qkv, s.heads * s.head_size), table, s,
                      dropout);
}

template <class T>
void attention_forward(const Handle& handle, View2<T> o, View3<Accumulate<T>> logsumexp,
                       View2<const T> q, View2<const T> key_value, const AttentionShape& shape,
                       const AttentionDropout& dropout) {
  const AttentionShape s = resolved(shape);
  expect_other_keys(s);
  expect_shape(o, "o", {s.tokens(), s.heads * s.head_size});
  expect_shape(logsumexp, "logsumexp", {s.batch, s.heads, s.sequence});
  expect_shape(q, "q", {s.tokens(), s.heads * s.head_size});
  expect_shape(key_value, "key_value",
               {s.batch * s.keys_per_sample(), 2 * s.key_value_heads * s.head_size});
  if (s.tokens() * s.heads == 0) return;
  portable_forward<T>(handle, o, logsumexp, q, key_value, {}, s, dropout);
}

template <class T>
void attention_forward_by_blocks(const Exec& exec, const AttentionForward<T>& forward) {
  const AttentionRange& s = forward.shape;
  const auto teams = static_cast<int>(s.batch * s.heads * forward.query_teams);
  const auto bytes = aligned_scratch_bytes<Accumulate<T>>(forward.scratch_elements());
  auto policy = AttentionPolicy(exec, teams, team_threads(exec))
                    .set_scratch_size(1, Kokkos::PerTeam(static_cast<int>(bytes)));
  Kokkos::parallel_for("kernels/attention_forward", policy, forward);
}

namespace {

/// One team computes one head of one row, by blocks of keys with online softmax.
template <class T>
struct AttentionDecode {
  using A = Accumulate<T>;
  static constexpr int block = attention_block;
  static constexpr int width = exec_on_host ? 64 : 1;  // elements of a head per iteration

  View2<T> o;
  View2<const T> q;
  View3<const T> key_cache;
  View3<const T> value_cache;
  CacheRows rows;
  AttentionShape shape;
  View1<const T> sinks;
  View2<const T> table;

  KOKKOS_FUNCTION std::int64_t scratch_elements() const { return block + shape.head_size; }

  KOKKOS_FUNCTION void operator()(const AttentionMember& team) const {
    const std::int64_t r = team.league_rank() / shape.heads;
    const std::int64_t h = team.league_rank() % shape.heads;
    const std::int64_t b = rows.texts(r);
    const std::int64_t own = b < 0 ? 0 : rows.positions(r) + 1;  // one past the row's position
    const std::int64_t positions = b < 0 || rows.ends.data() == nullptr ? own : rows.ends(r);
    const std::int64_t column = shape.key_value_head(h) * shape.head_size;
    const auto size = static_cast<int>(shape.head_size);
    A* probabilities = aligned_scratch<A>(team, scratch_elements());
    A* result = probabilities + block;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, size), [&](int d) { result[d] = A(0); });

    const bool has_sink = sinks.data() != nullptr;
    A largest = has_sink ? static_cast<A>(sinks(h)) : -infinity<A>;
    A sum = has_sink ? A(1) : A(0);
    for (std::int64_t k0 = own > 0 ? shape.first_key(own - 1) : 0; k0 < positions; k0 += block) {
      const auto count = static_cast<int>(positions - k0 < block ? positions - k0 : block);
      scores(team, probabilities, &q(r, h * size), &key_cache(b, k0, column), count);
      if (shape.has_biases()) add_biases(team, probabilities, k0 - own + 1, h, count);
      team.team_barrier();
      A block_largest = largest;
      for (int j = 0; j < count; ++j)
        block_largest = probabilities[j] > block_largest ? probabilities[j] : block_largest;
      const A rescale = fast_exp(largest - block_largest);
      largest = block_largest;
      team.team_barrier();
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count),
                           [&](int j) { probabilities[j] = fast_exp(probabilities[j] - largest); });
      team.team_barrier();
      sum *= rescale;
      for (int j = 0; j < count; ++j) sum += probabilities[j];
      add_values(team, result, probabilities, &value_cache(b, k0, column), count, rescale);
      team.team_barrier();
    }
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, size), [&](int d) {
      o(r, h * size + d) = static_cast<T>(positions > 0 ? result[d] / sum : 0);
    });
  }

 private:
  KOKKOS_FUNCTION void scores(const AttentionMember& team, A* result, const T* query, const T* keys,
                              int count) const {
    const auto stride = static_cast<std::int64_t>(key_cache.stride(1));
    const A scale = static_cast<A>(shape.scale);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](int j) {
      const T* __restrict key = keys + j * stride;
      A sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t d = 0; d < shape.head_size; ++d)
        sum += static_cast<A>(query[d]) * static_cast<A>(key[d]);
      result[j] = scale * sum;
      if (shape.cap > 0) cap_scores(result + j, 1, shape.cap);
    });
  }

  /// Adds the biases of the offsets `first`, first + 1, …
  KOKKOS_FUNCTION void add_biases(const AttentionMember& team, A* scores, std::int64_t first,
                                  std::int64_t h, int count) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](int j) {
      scores[j] += static_cast<A>(table(shape.buckets.of(first + j), h));
    });
  }

  KOKKOS_FUNCTION void add_values(const AttentionMember& team, A* result, const A* probabilities,
                                  const T* values, int count, A rescale) const {
    const auto stride = static_cast<std::int64_t>(value_cache.stride(1));
    const auto panels = static_cast<int>(padded(shape.head_size, width) / width);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, panels), [&](int panel) {
      const std::int64_t first = std::int64_t{panel} * width;
      const std::int64_t left = shape.head_size - first;
      const auto columns = static_cast<int>(left < width ? left : width);
      A* __restrict row = result + first;
#pragma omp simd
      for (int d = 0; d < columns; ++d) row[d] *= rescale;
      for (int j = 0; j < count; ++j) {
        const T* __restrict value = values + j * stride + first;
        const A p = probabilities[j];
#pragma omp simd
        for (int d = 0; d < columns; ++d) row[d] += p * static_cast<A>(value[d]);
      }
    });
  }
};

}  // namespace

template <class T>
void attention_decode(const Exec& exec, View2<T> o, View2<const T> q, View3<const T> key_cache,
                      View3<const T> value_cache, const CacheRows& rows,
                      const AttentionShape& shape, View1<const T> sinks, View2<const T> table) {
  AttentionShape s = shape;
  s.batch = extent(key_cache, 0);
  s.sequence = extent(key_cache, 1);
  s.key_sequence = 0;
  s = resolved(s);
  const std::int64_t count = extent(o, 0);
  expect_shape(o, "o", {count, s.heads * s.head_size});
  expect_shape(q, "q", {count, s.heads * s.head_size});
  expect_shape(key_cache, "key_cache", {s.batch, s.sequence, s.key_value_heads * s.head_size});
  expect_shape(value_cache, "value_cache", {s.batch, s.sequence, s.key_value_heads * s.head_size});
  expect_shape(rows.texts, "texts", {count});
  expect_shape(rows.positions, "positions", {count});
  if (sinks.data() != nullptr) expect_shape(sinks, "sinks", {s.heads});
  if (s.has_biases()) expect_shape(table, "table", {s.buckets.count, s.heads});
  if (count * s.heads == 0) return;
  const AttentionDecode<T> decode{o, q, key_cache, value_cache, rows, s, sinks, table};
  const auto bytes = aligned_scratch_bytes<Accumulate<T>>(decode.scratch_elements());
  auto policy = AttentionPolicy(exec, static_cast<int>(count * s.heads), team_threads(exec))
                    .set_scratch_size(1, Kokkos::PerTeam(static_cast<int>(bytes)));
  Kokkos::parallel_for("kernels/attention_decode", policy, decode);
}

#define TRIREME_INSTANTIATE(T)                                                               \
  template void attention_forward_by_blocks<T>(const Exec&, const AttentionForward<T>&);     \
  template void attention_forward<T>(const Handle&, View2<T>, View3<Accumulate<T>>,          \
                                     View2<const T>, const AttentionShape&,                  \
                                     const AttentionDropout&, View2<const T>);               \
  template void attention_forward<T>(const Handle&, View2<T>, View3<Accumulate<T>>,          \
                                     View2<const T>, View2<const T>, const AttentionShape&,  \
                                     const AttentionDropout&);                               \
  template void attention_decode<T>(const Exec&, View2<T>, View2<const T>, View3<const T>,   \
                                    View3<const T>, const CacheRows&, const AttentionShape&, \
                                    View1<const T>, View2<const T>)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
