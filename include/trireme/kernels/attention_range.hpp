#pragma once

#include <trireme/kernels/attention.hpp>

#include <cstdint>

/// Attention of some queries to some keys, merged with the results for other keys: one step of ring
/// attention (Liu et al. 2023, arXiv 2310.01889). Attention uses the portable kernels. All
/// functions are asynchronous, and instantiated for float, double, Bf16 and Fp16.
namespace trireme::kernels {

/// Consecutive tokens of every sample.
struct AttentionTokens {
  std::int64_t count = 0;     ///< number of these tokens per sample
  std::int64_t first = 0;     ///< row of the first token, from its sample's first row
  std::int64_t rows = 0;      ///< number of rows from one sample to the next
  std::int64_t position = 0;  ///< position of the first token in its sample
};

/// Queries and keys of a launch. The base class describes whole samples. A query sees the keys
/// within its window, its document and its range. With `causal`, queries and keys are the same
/// tokens, and query i sees no keys after i. `positions` and the ranges have one element per row of
/// the queries' array.
struct AttentionRange : AttentionShape {
  AttentionTokens queries, keys;

  /// All queries and keys of whole samples.
  AttentionRange(const AttentionShape& shape)
      : AttentionShape(shape),
        queries{shape.sequence, 0, shape.sequence, 0},
        keys{shape.keys_per_sample(), 0, shape.keys_per_sample(), 0} {}
  AttentionRange(const AttentionShape& shape, const AttentionTokens& of_queries,
                 const AttentionTokens& of_keys, bool same)
      : AttentionShape(shape), queries(of_queries), keys(of_keys) {
    causal = causal && same;
  }

  TRIREME_FUNCTION std::int64_t query_row(std::int64_t b, std::int64_t i) const {
    return b * queries.rows + queries.first + i;
  }
  TRIREME_FUNCTION std::int64_t key_row(std::int64_t b, std::int64_t j) const {
    return b * keys.rows + keys.first + j;
  }
  /// Position of query 0 minus position of key 0.
  TRIREME_FUNCTION std::int64_t shift() const { return queries.position - keys.position; }
  /// Whether the first key of a query depends on its document or range.
  TRIREME_FUNCTION bool has_starts() const {
    return has_documents() || key_begin.data() != nullptr;
  }
  /// Index of the first key that query i of sample b may see. If i ≥ queries.count, the document or
  /// range is that of the last query.
  TRIREME_FUNCTION std::int64_t first_key(std::int64_t b, std::int64_t i) const {
    const std::int64_t first = first_in_window(i);
    if (!has_starts()) return first;
    const std::int64_t start = key_start(b, i < queries.count ? i : queries.count - 1);
    return start > first ? start : first;
  }
  /// One past the last key that query i of sample b may see. If i ≥ queries.count, the range is
  /// that of the last query.
  TRIREME_FUNCTION std::int64_t end_key(std::int64_t b, std::int64_t i) const {
    std::int64_t end = keys.count;
    if (causal)
      end = i + 1;
    else if (has_key_ranges())
      end = key_end(query_row(b, i < queries.count ? i : queries.count - 1));
    return end < keys.count ? end : keys.count;
  }
  /// The first query of sample b that may see key j or a later key.
  TRIREME_FUNCTION std::int64_t first_query(std::int64_t b, std::int64_t j) const {
    if (causal) return j;
    if (!has_key_ranges()) return 0;
    std::int64_t begin = 0, end = queries.count;
    while (begin < end) {
      const std::int64_t middle = begin + (end - begin) / 2;
      if (end_key(b, middle) > j)
        end = middle;
      else
        begin = middle + 1;
    }
    return end;
  }
  /// One past the last query of sample b whose window, document and range begin at or before key j;
  /// 0 or less if there is no such query.
  TRIREME_FUNCTION std::int64_t end_query(std::int64_t b, std::int64_t j) const {
    std::int64_t end =
        window > 0 && j + window - shift() < queries.count ? j + window - shift() : queries.count;
    if (!has_starts()) return end;
    std::int64_t begin = 0;  // queries before `begin` see key j; queries from `end` on do not
    while (begin < end) {
      const std::int64_t middle = begin + (end - begin) / 2;
      if (key_start(b, middle) <= j)
        begin = middle + 1;
      else
        end = middle;
    }
    return end;
  }
  /// First key of the document or range of query i; negative if a document begins before key 0.
  TRIREME_FUNCTION std::int64_t key_start(std::int64_t b, std::int64_t i) const {
    const std::int64_t row = query_row(b, i);
    return has_documents() ? i + shift() - positions(row) : key_begin(row);
  }
  /// Whether any query sees any key if documents are ignored.
  bool is_seen() const {
    return queries.count > 0 && keys.count > 0 && first_in_window(0) < keys.count;
  }

 private:
  TRIREME_FUNCTION std::int64_t first_in_window(std::int64_t i) const {
    return window > 0 && i + shift() >= window ? i + shift() - window + 1 : 0;
  }
};

/// Adds the keys of `part` to the attention of its queries. With `first`, stores the attention to
/// these keys alone, as attention_forward does; otherwise merges it with the previous results: with
/// l = logsumexp, and with the results o' and l' for these keys,
///   o = (e^l o + e^l' o') / (e^l + e^l');  logsumexp = log(e^l + e^l').
/// o [T, H·K]; for two-byte T, the results are in `sums` [T·H·K] in place of o. logsumexp [B, H,
/// rows of a sample]; qkv [T, (H + 2 Hkv)·K], of which only the queries are read; key_value [rows
/// of keys, 2 Hkv·K]. No effect if is_seen() is false.
template <class T>
void attention_part_forward(const Handle& handle, View2<T> o, View1<Accumulate<T>> sums,
                            View3<Accumulate<T>> logsumexp, View2<const T> qkv,
                            View2<const T> key_value, const AttentionRange& part, bool first,
                            const AttentionDropout& dropout);

/// delta[b,h,i] = Σ_d grad[t, h·K + d] o[t, h·K + d] with t = b·S + i and S = shape.sequence. delta
/// [B·H·S]; grad, o [T, H·K].
template <class T>
void attention_delta(const Exec& exec, View1<Accumulate<T>> delta, View2<const T> grad,
                     View2<const T> o, const AttentionShape& shape);

/// Computes the gradients from the pairs of queries and keys of `part`. Adds the queries' gradients
/// to the first columns of dqkv, or with `first` stores them there; for two-byte T, `sums` is used
/// in place of dqkv. Adds the gradients of keys and values to dkey_value [rows of keys, 2 Hkv·K].
/// logsumexp and delta belong to the attention to all keys. Other arrays are as in the forward
/// pass. No effect if is_seen() is false.
template <class T>
void attention_part_backward(const Handle& handle, View2<T> dqkv, View1<Accumulate<T>> sums,
                             View2<Accumulate<T>> dkey_value, View2<const T> grad,
                             View2<const T> qkv, View2<const T> key_value,
                             View3<const Accumulate<T>> logsumexp, View1<const Accumulate<T>> delta,
                             const AttentionRange& part, bool first,
                             const AttentionDropout& dropout);

/// to[r, d] = from[r, first + d]. to [R, N], from [R, M].
template <class T>
void copy_columns(const Exec& exec, View2<T> to, View2<const T> from, std::int64_t first);

/// to[r, first + d] = from[r, d], rounded. to [R, M], from [R, N].
template <class T>
void place_columns(const Exec& exec, View2<T> to, View2<const Accumulate<T>> from,
                   std::int64_t first);

}  // namespace trireme::kernels
