#pragma once

#include <trireme/kernels/attention.hpp>

#include <cstdint>

/// Attention of some queries to some keys, merged with the results for other keys: a block of
/// attention in a ring of ranks (Liu et al. 2023, arXiv 2310.01889). Portable kernels only,
/// asynchronous on exec, instantiated for float, double, Bf16 and Fp16.
namespace trireme::kernels {

/// Consecutive tokens of every sample.
struct AttentionTokens {
  std::int64_t count = 0;     ///< tokens of a sample
  std::int64_t first = 0;     ///< row of the first token among its sample's rows
  std::int64_t rows = 0;      ///< rows from one sample to the next
  std::int64_t position = 0;  ///< position of the first token in its sample
};

/// Queries and keys of a launch. The base describes whole samples: their S and their window. With
/// `causal`, queries and keys are the same tokens, and query i sees keys up to i; otherwise every
/// query sees all keys within its window and its document. `positions` has the queries' rows.
struct AttentionPart : AttentionShape {
  AttentionTokens queries, keys;

  /// All queries and keys of a shape.
  AttentionPart(const AttentionShape& shape)
      : AttentionShape(shape), queries{shape.sequence, 0, shape.sequence, 0}, keys(queries) {}
  AttentionPart(const AttentionShape& shape, const AttentionTokens& of_queries,
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
  /// Distance from key 0 to query 0.
  TRIREME_FUNCTION std::int64_t shift() const { return queries.position - keys.position; }
  /// First key that query i of sample b sees. For i after the last query, the last query's first
  /// key.
  TRIREME_FUNCTION std::int64_t first_key(std::int64_t b, std::int64_t i) const {
    const std::int64_t first = first_in_window(i);
    if (!has_documents()) return first;
    const std::int64_t start = document_start(b, i < queries.count ? i : queries.count - 1);
    return start > first ? start : first;
  }
  /// One past the last query of sample b that sees key j.
  TRIREME_FUNCTION std::int64_t end_query(std::int64_t b, std::int64_t j) const {
    std::int64_t end =
        window > 0 && j + window - shift() < queries.count ? j + window - shift() : queries.count;
    if (!has_documents()) return end;
    std::int64_t begin = 0;  // queries before begin see key j; queries from `end` on do not
    while (begin < end) {
      const std::int64_t middle = begin + (end - begin) / 2;
      if (document_start(b, middle) <= j)
        begin = middle + 1;
      else
        end = middle;
    }
    return end;
  }
  /// The key with which the document of query i begins; negative if it is before these keys.
  TRIREME_FUNCTION std::int64_t document_start(std::int64_t b, std::int64_t i) const {
    return i + shift() - positions(query_row(b, i));
  }
  /// Whether any query sees a key, if all tokens are of one document.
  bool is_seen() const {
    return queries.count > 0 && keys.count > 0 && first_in_window(0) < keys.count;
  }

 private:
  TRIREME_FUNCTION std::int64_t first_in_window(std::int64_t i) const {
    return window > 0 && i + shift() >= window ? i + shift() - window + 1 : 0;
  }
};

/// Adds the keys of `part` to the attention of its queries: with `first` as attention_forward,
/// otherwise o = (e^l o + e^l' o') / (e^l + e^l') and logsumexp = log(e^l + e^l') for the previous
/// o and l and these keys' o' and l'. o [T, H·K], for two-byte T in `sums`; logsumexp [B, H, rows
/// of a sample]; qkv [T, (H + 2 Hkv)·K], of which only queries are read; key_value [rows of keys, 2
/// Hkv·K]; sums [T, H·K], unused for other T. Dropout depends on positions in the sample.
template <class T>
void attention_part_forward(const Handle& handle, View2<T> o, View1<Accumulate<T>> sums,
                            View3<Accumulate<T>> logsumexp, View2<const T> qkv,
                            View2<const T> key_value, const AttentionPart& part, bool first,
                            const AttentionDropout& dropout);

/// delta[b,h,i] = Σ_d grad[t, h·K + d] o[t, h·K + d]; delta [B·H·S] for the S tokens of `shape`.
template <class T>
void attention_delta(const Exec& exec, View1<Accumulate<T>> delta, View2<const T> grad,
                     View2<const T> o, const AttentionShape& shape);

/// Adds to the gradients of the part's queries, or with `first` stores them, in the first columns
/// of dqkv, for two-byte T in `sums`; and adds to the gradients of its keys in dkey_value [rows of
/// keys, 2 Hkv·K]. logsumexp and delta cover all keys. Arrays as in the forward pass.
template <class T>
void attention_part_backward(const Handle& handle, View2<T> dqkv, View1<Accumulate<T>> sums,
                             View2<Accumulate<T>> dkey_value, View2<const T> grad,
                             View2<const T> qkv, View2<const T> key_value,
                             View3<const Accumulate<T>> logsumexp, View1<const Accumulate<T>> delta,
                             const AttentionPart& part, bool first,
                             const AttentionDropout& dropout);

/// to[r, d] = from[r, first + d]. to [R, N], from [R, M].
template <class T>
void copy_columns(const Exec& exec, View2<T> to, View2<const T> from, std::int64_t first);

/// to[r, first + d] = from[r, d], rounded. to [R, M], from [R, N].
template <class T>
void place_columns(const Exec& exec, View2<T> to, View2<const Accumulate<T>> from,
                   std::int64_t first);

}  // namespace trireme::kernels
