#pragma once

#include <trireme/base/kernel_memory.hpp>
#include <trireme/base/philox.hpp>
#include <trireme/base/types.hpp>
#include <trireme/kernels/cache.hpp>
#include <trireme/kernels/handle.hpp>
#include <trireme/kernels/relative_buckets.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Attention by blocks: the softmax of a block of queries is computed online over blocks of keys
/// (Milakov and Gimelshein 2018, arXiv 1805.02867; Dao et al. 2022 and 2023, arXiv 2205.14135 and
/// 2307.08691). Kernels are asynchronous on their handle or exec, and instantiated for float,
/// double, Bf16 and Fp16.
namespace trireme::kernels {

/// Groups of G query heads share a head of keys and values (Ainslie et al. 2023, arXiv 2305.13245).
/// A rank may hold only part of its first and its last group: query head h uses head (heads_before
/// + h) / G of keys and values.
struct AttentionShape {
  std::int64_t batch = 0;            ///< B
  std::int64_t sequence = 0;         ///< S
  std::int64_t heads = 0;            ///< H, heads of this rank; may be 0
  std::int64_t key_value_heads = 0;  ///< Hkv, used by the H query heads; 0 only if H is 0
  std::int64_t head_size = 0;        ///< K
  bool causal = true;                ///< query i sees keys 0 … i
  double scale = 0.0;                ///< factor of the scores; 0 means 1/√K
  std::int64_t group = 0;            ///< G; 0 means H / Hkv, which must then be an integer
  std::int64_t heads_before = 0;     ///< number of heads of the first group on lower ranks; < G
  std::int64_t window = 0;           ///< most keys per query, its own token included; 0: no limit
  double cap = 0;                    ///< scaled scores s become cap tanh(s / cap); 0: unchanged
  /// Position of each token in its document, 0, 1, …, for samples of several documents. A query
  /// sees no key of another document. [T], or empty if each sample is one document.
  View1<const std::int32_t> positions = {};
  std::int64_t key_sequence = 0;  ///< S_k, keys per sample; 0 means S
  /// Query t sees only the keys [key_begin[t], key_end[t]) of its sample, without a causal mask; of
  /// these, with a window of W, those from t − W + 1 on. Both are non-decreasing within a sample. A
  /// query that sees no key has o = 0, no gradients, and the lowest number as logsumexp. key_end
  /// [T], or empty if queries see all keys; key_begin [T], or empty for 0.
  View1<const std::int32_t> key_begin = {}, key_end = {};
  RelativeBuckets buckets = {};  ///< buckets of the biases; none: no biases

  TRIREME_FUNCTION std::int64_t key_value_head(std::int64_t h) const {
    return (heads_before + h) / group;
  }
  /// Whether samples may hold several documents.
  TRIREME_FUNCTION bool has_documents() const { return positions.data() != nullptr; }
  TRIREME_FUNCTION bool has_key_ranges() const { return key_end.data() != nullptr; }
  TRIREME_FUNCTION bool has_biases() const { return buckets.count > 0; }
  TRIREME_FUNCTION std::int64_t keys_per_sample() const {
    return key_sequence > 0 ? key_sequence : sequence;
  }
  /// First key that query i sees in a sample of one document.
  TRIREME_FUNCTION std::int64_t first_key(std::int64_t i) const {
    return window > 0 && i >= window ? i - window + 1 : 0;
  }
  std::int64_t tokens() const { return batch * sequence; }
  std::int64_t qkv_columns() const { return (heads + 2 * key_value_heads) * head_size; }
  AttentionSizes sizes() const { return {batch, sequence, heads, key_value_heads, head_size}; }
};

/// Dropout of probabilities: p[b,h,i,j] is dropped if word ((sample·A + head)·S + i)·S_k + j of the
/// random array `key` is below rate·2^32, otherwise divided by 1 − rate. The indices sample =
/// first_sample + b and head = first_head + h are global, and A is the number of heads on all
/// ranks, so that the mask does not depend on the layout. The backward pass recomputes the mask.
struct AttentionDropout {
  double rate = 0.0;  ///< in [0, 1); 0: no dropout
  RandomKey key;
  std::int64_t first_sample = 0;
  std::int64_t first_head = 0;
  std::int64_t all_heads = 0;  ///< A; 0: AttentionShape::heads
};

/// o[t, h·K + d] = Σ_j p[b,h,i,j] v[j,d] with t = b·S + i, p = softmax_j(s_j) and the scores s_j =
/// scale q·k_j, or cap tanh(scale q·k_j / cap) with a cap. logsumexp[b,h,i] = log Σ_j exp(s_j), for
/// the backward pass. Sums are over the keys that query i sees. Dropout applies to p in the sum of
/// values only. o [T, H·K]; logsumexp [B, H, S]; qkv [T, (H + 2 Hkv)·K] with columns [queries of
/// all heads | keys | values]. o must not overlap qkv. With buckets, the score of query i and key j
/// is scale q·k_j + table[bucket(j − i), h], without a cap; table [buckets, H].
template <class T>
void attention_forward(const Handle& handle, View2<T> o, View3<Accumulate<T>> logsumexp,
                       View2<const T> qkv, const AttentionShape& shape,
                       const AttentionDropout& dropout = {}, View2<const T> table = {});
/// Attention to keys of other tokens, without a causal mask and without biases. q [T, H·K];
/// key_value [B·S_k, 2 Hkv·K] with columns [keys | values].
template <class T>
void attention_forward(const Handle& handle, View2<T> o, View3<Accumulate<T>> logsumexp,
                       View2<const T> q, View2<const T> key_value, const AttentionShape& shape,
                       const AttentionDropout& dropout = {});

/// Number of elements of attention_backward's workspace: B·H·S for float and double; for two-byte
/// T, narrow_attention_workspace() of kernel_memory.hpp; with buckets, also
/// relative_bias_workspace().
template <class T>
std::int64_t attention_workspace_elements(const KernelChoice& choice, const AttentionShape& shape);

/// Computes dqkv [T, (H + 2 Hkv)·K], the gradient of qkv, from the gradient `grad` [T, H·K] of o.
/// o, qkv and logsumexp are the arrays of the forward pass, and `dropout` is its dropout. Sums have
/// a fixed order. dqkv must not overlap an input. workspace [attention_workspace_elements]. The
/// table's gradient is added to dtable [buckets, H], which is contiguous, or empty for no gradient.
template <class T>
void attention_backward(const Handle& handle, View2<T> dqkv, View2<const T> grad, View2<const T> o,
                        View2<const T> qkv, View3<const Accumulate<T>> logsumexp,
                        View1<Accumulate<T>> workspace, const AttentionShape& shape,
                        const AttentionDropout& dropout = {}, View2<const T> table = {},
                        View2<Accumulate<T>> dtable = {});
/// Computes dq [T, H·K] and dkey_value [B·S_k, 2 Hkv·K], the gradients of q and key_value.
template <class T>
void attention_backward(const Handle& handle, View2<T> dq, View2<T> dkey_value, View2<const T> grad,
                        View2<const T> o, View2<const T> q, View2<const T> key_value,
                        View3<const Accumulate<T>> logsumexp, View1<Accumulate<T>> workspace,
                        const AttentionShape& shape, const AttentionDropout& dropout = {});

/// Attention of single tokens for generation. The token of row r attends to the cached keys and
/// values of its text at the positions 0 … positions[r]: o[r] is row positions[r] of the text's
/// attention_forward without dropout, or 0 if the row has no token. o, q [R, H·K]; caches [B, Smax,
/// Hkv·K]. Keys outside the window are not read. shape.batch and shape.sequence are not used.
/// sinks: [H] further scores of the softmax (attention_sinks.hpp), or empty. table [buckets, H]:
/// biases of the scores, for the offsets from positions[r] to the keys. With rows.ends, row r
/// attends to the positions below ends[r] instead. A row that attends to the n keys of another text
/// has positions[r] = n − 1.
template <class T>
void attention_decode(const Exec& exec, View2<T> o, View2<const T> q, View3<const T> key_cache,
                      View3<const T> value_cache, const CacheRows& rows,
                      const AttentionShape& shape, View1<const T> sinks = {},
                      View2<const T> table = {});

}  // namespace trireme::kernels
