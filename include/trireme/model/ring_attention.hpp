#pragma once

#include <trireme/kernels/attention_range.hpp>
#include <trireme/layout/ring.hpp>
#include <trireme/model/context_axis.hpp>

#include <cstdint>

namespace trireme::model {

/// Scratch of attention over a context axis.
template <class T>
struct RingMemory {
  View1<T> values;            // [RankSizes::ring_values]
  View1<Accumulate<T>> sums;  // [RankSizes::ring_sums]
};

/// Attention of this rank's queries to the keys of all context ranks. The ranks send blocks of keys
/// and values around a ring (Liu et al. 2023, arXiv 2310.01889): the next block arrives while the
/// current block is used. In the backward pass, the blocks go around again, and the sums of their
/// gradients follow one step later, back to the owners of the keys. Collective on the axis.
template <class T>
class RingAttention {
 public:
  using A = Accumulate<T>;

  /// `shape`: shape.sequence is the number of this rank's tokens of a sample. `sequence`: number of
  /// tokens of a whole sample. `axis` must outlive this object.
  RingAttention(const ContextAxis& axis, const kernels::AttentionShape& shape,
                std::int64_t sequence);

  /// Computes o [T, H·K] and logsumexp [B, H, this rank's tokens of a sample] from qkv [T, (H + 2
  /// Hkv)·K]. `positions`: [T] positions of this rank's tokens in their documents; empty without
  /// packed documents.
  void forward(const kernels::Handle& handle, View2<T> o, View3<A> logsumexp, View2<const T> qkv,
               const RingMemory<T>& memory, View1<const std::int32_t> positions,
               const kernels::AttentionDropout& dropout) const;
  /// Computes dqkv from the gradient `grad` of o.
  void backward(const kernels::Handle& handle, View2<T> dqkv, View2<const T> grad, View2<const T> o,
                View2<const T> qkv, View3<const A> logsumexp, const RingMemory<T>& memory,
                View1<const std::int32_t> positions,
                const kernels::AttentionDropout& dropout) const;

 private:
  /// The two messages of a step: to the next rank, and from the previous rank.
  struct Exchange {
    grid::Request send, receive;
  };

  int owner(int step) const { return ring_.owner(axis_.rank(), step); }
  /// Calls f(part, first) for each pair of chunks of a step, and progresses outstanding messages in
  /// between. `first`: whether the pair is the first pair with its queries.
  template <class F>
  void for_pairs(int step, View1<const std::int32_t> positions, const F& f) const;

  /// The block of rank `owner` in buffer `number` of `memory`: [rows of its tokens, 2 Hkv·K].
  template <class U>
  View2<U> block(View1<U> memory, int number, int owner) const;
  /// Starts to send `mine` to the next rank, and to receive `theirs` from the previous rank.
  template <class U>
  Exchange exchange(const kernels::Handle& handle, View2<U> theirs, View2<U> mine,
                    int channel) const;
  void wait(Exchange& exchange, const char* what) const;

  const ContextAxis& axis_;
  layout::AttentionRing ring_;
  kernels::AttentionShape shape_;  ///< shape for whole samples
  std::int64_t tokens_;            ///< number of tokens of a sample on this rank
  std::int64_t largest_ = 0;       ///< number of elements of the largest block
};

extern template class RingAttention<float>;
extern template class RingAttention<double>;
extern template class RingAttention<Bf16>;
extern template class RingAttention<Fp16>;

}  // namespace trireme::model
