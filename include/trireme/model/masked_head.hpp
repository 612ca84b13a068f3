#pragma once

#include <trireme/model/linear.hpp>
#include <trireme/model/logits.hpp>
#include <trireme/model/norm.hpp>
#include <trireme/model/training_head.hpp>

#include <optional>

namespace trireme::model {

/// BERT's heads (Devlin et al. 2019, arXiv 1810.04805, section 3.1; as in its published code) on
/// the normalised output y of the last layer:
///   masked tokens: logits(norm(gelu(dense y)));  pairs: output(tanh(dense y)) of first tokens.
/// Only the rows that they need are looked at. These few are brought to all tensor ranks, which
/// compute alike what is not cut; where each sums its own tokens' gradients, each takes its part of
/// these rows. The ranks of a context axis share the rows: each computes the losses and gradients
/// of its part. All passes happen in the forward pass, as for logits. A pair weighs as much as all
/// masked tokens of a sample.
template <class P>
class MaskedHead final : public TrainingHead<P> {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  struct Scratch {
    View2<T> picked;              // [rows of all context ranks, D] of y, then their gradient
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
    typename Logits<P>::Scratch logits;
  };

  /// `axis` must outlive this.
  MaskedHead(const Parameters<P>& parameters, const deck::ModelConfig& model,
             const TensorAxis& axis);

  void take_scratch(const TensorMemory<P>& memory) override;
  void forward(const Handle& handle, View1<double> losses, View2<T> dy, View2<T> all,
               BatchFields fields, const MicroContext& context) const override;
  void evaluate(const Handle& handle, View1<double> losses, View2<T> y, View2<T> all,
                BatchFields fields, std::int64_t samples) const override;
  /// Throws Error: only masked tokens are predicted.
  void logits(const Handle& handle, View2<Accumulate<T>> logits, View2<const T> y) const override;

  /// Results of the last pass, for tests.
  const Scratch& scratch() const { return scratch_; }

 private:
  /// The sentence head's two products.
  struct Pairs {
    Linear<P> dense;
    Linear<P> output;
  };

  /// Numbers of batch fields.
  struct Fields {
    std::size_t targets;  ///< [N] masked tokens
    /// Rows of the masked tokens in [T], then of the samples' first tokens, of all context ranks;
    /// −1 where another rank has the token.
    std::size_t rows;
    std::optional<std::size_t> pairs;  ///< [B] kind of each sample's pair, 0 or 1
  };

  void transform(const Handle& handle) const;
  void transform_backward(const Handle& handle) const;
  void score(const Handle& handle, View1<double> loss, View1<const std::int32_t> pairs,
             std::int64_t samples) const;
  void score_backward(const Handle& handle, View1<const std::int32_t> pairs,
                      const MicroContext& context) const;
  /// This context rank's rows of `picked`: those of its masked tokens, and of its pairs.
  layout::Slice predicted() const;
  layout::Slice first_tokens_slice() const;
  /// Sums the gradients of the picked rows, of which each context rank has its own.
  void share_gradients(const Handle& handle) const;
  void pick(const Handle& handle, View2<const T> y, View1<const std::int32_t> rows) const;
  /// The part of n replicated rows whose weight gradients this rank sums.
  layout::Slice own(std::int64_t n) const;
  void backward_weight(const Handle& handle, const Linear<P>& linear, View2<const T> dy,
                       View2<const T> x) const;
  View2<T> first_tokens() const {
    return rows_of(scratch_.picked, first_tokens_slice().offset, first_tokens_slice().extent);
  }

  const TensorAxis& axis_;
  Fields fields_;
  Gelu gelu_;
  std::int64_t masked_;  ///< tokens of a sample
  Linear<P> dense_;
  LayerNorm<P> norm_;
  std::optional<Pairs> pairs_;
  Logits<P> logits_;
  Scratch scratch_;
};

}  // namespace trireme::model
