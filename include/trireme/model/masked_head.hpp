#pragma once

#include <trireme/architecture/local_sizes.hpp>
#include <trireme/model/context.hpp>
#include <trireme/model/linear.hpp>
#include <trireme/model/logits.hpp>
#include <trireme/model/norm.hpp>

#include <optional>

namespace trireme::model {

/// What a micro-batch's predictions are compared with.
struct Targets {
  View1<const std::int32_t>
      ids;  // [N] of the tokens that are predicted: all, or bert's masked ones
  View1<const std::int32_t> rows;   // [N + B] bert: where those stand in [T], then the first tokens
  View1<const std::int32_t> pairs;  // [B] bert: 0 or 1, what kind of pair each sample is
};

/// BERT's heads (Devlin et al. 2019, arXiv 1810.04805, section 3.1; as in its published code) on
/// the normalised output y of the last layer:
///   masked tokens: logits(norm(gelu(dense y)));  pairs: output(tanh(dense y)) of first tokens.
/// Only the rows that they need are looked at. These few are brought to all tensor ranks, which
/// compute alike what is not cut; where each sums its own tokens' gradients, each takes its part of
/// these rows. All passes happen in the forward pass, as for logits.
template <class P>
class MaskedHead {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  struct Scratch {
    View2<T> picked;              // [N + B, D] rows of y, then their gradient
    View2<T> dense;               // [N, D]
    View2<T> activated;           // [N, D]
    View2<T> normed;              // [N, D], then gradients down to dense
    NormSaved<P> norm;            // [N]
    View2<T> pooled;              // [B, D]
    View2<T> dpooled;             // [B, D]
    View2<Accumulate<T>> scores;  // [B, 2]
    View2<T> dscores;             // [B, 2]: in the same memory where the types agree
    View1<double> losses;         // [B]
    View2<double> statistics;     // [B, 3]
    View2<double> merged;         // [B, 3]
  };

  /// `axis` must outlive this.
  MaskedHead(const Parameters<P>& parameters, const deck::ModelConfig& model,
             const TensorAxis& axis);

  static Scratch cut_scratch(Arena& arena, const architecture::LocalSizes& sizes);

  /// loss [2] += {Σ cross entropy of masked tokens, of pairs}. dy [R, D] is y and becomes its
  /// gradient: weighted as the context says for each masked token, as much for a pair as for all
  /// masked tokens of a sample.
  void forward(const Exec& exec, View1<double> loss, View2<T> dy, const Logits<P>& logits,
               const typename Logits<P>::Scratch& logit_scratch, const Scratch& scratch,
               const Targets& targets, const MicroContext& context) const;
  /// The losses of the first `samples` samples, without gradients.
  void evaluate(const Exec& exec, View1<double> loss, View2<const T> y, const Logits<P>& logits,
                const typename Logits<P>::Scratch& logit_scratch, const Scratch& scratch,
                const Targets& targets, std::int64_t samples) const;

 private:
  /// The sentence head's two products.
  struct Pairs {
    Linear<P> dense;
    Linear<P> output;
  };

  void transform(const Exec& exec, const Scratch& scratch) const;
  void transform_backward(const Exec& exec, const Scratch& scratch) const;
  void score(const Exec& exec, View1<double> loss, const Scratch& scratch,
             View1<const std::int32_t> pairs, std::int64_t samples) const;
  void score_backward(const Exec& exec, const Scratch& scratch, View1<const std::int32_t> pairs,
                      const MicroContext& context) const;
  void pick(const Exec& exec, View2<const T> y, const Scratch& scratch,
            const Targets& targets) const;
  /// Of n rows that all ranks have, those whose gradients this one sums.
  layout::Slice own(std::int64_t n) const;
  void backward_weight(const Exec& exec, const Linear<P>& linear, View2<const T> dy,
                       View2<const T> x) const;
  View2<T> first_tokens(const Scratch& scratch) const {
    return rows_of(scratch.picked, extent(scratch.dense, 0), extent(scratch.pooled, 0));
  }

  const TensorAxis& axis_;
  Gelu gelu_;
  std::int64_t masked_;  ///< tokens of a sample
  Linear<P> dense_;
  LayerNorm<P> norm_;
  std::optional<Pairs> pairs_;
};

}  // namespace trireme::model
