#pragma once

#include <trireme/model/linear.hpp>
#include <trireme/model/training_head.hpp>

#include <optional>

namespace trireme::model {

/// BERT's heads (Devlin et al. 2019, arXiv 1810.04805, section 3.1; as in its published code) on
/// the normalised output y of the last layer:
/// masked tokens: logits(norm(gelu(dense y)));  pairs: output(tanh(dense y)) of first tokens.
/// Only the required rows are computed. They are sent to all tensor ranks, which repeat all
/// computations that the axis does not split; where each rank sums its own tokens' gradients, each
/// takes a part of these rows. The ranks of a context axis share the rows: each computes the losses
/// and gradients of its part. Gradients are computed in the pass of HeadGradient, as for logits. A
/// pair has the weight of all masked tokens of a sample.
template <class P>
class MaskedHead final : public TrainingHead<P> {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  using Tensors = HeadTensors<P>;

  /// `axis` must outlive this object.
  MaskedHead(const Parameters<P>& parameters, const deck::ModelConfig& model,
             const TensorAxis& axis, architecture::HeadGradient gradient);

  void forward(const Handle& handle, View1<double> losses, View2<T> dy, View2<T> all,
               const Tensors& tensors, BatchFields fields,
               const MicroContext& context) const override;
  void backward(const Handle& handle, View2<T> dy, View2<T> all, const Tensors& tensors,
                BatchFields fields, const MicroContext& context) const override;
  void evaluate(const Handle& handle, View1<double> losses, View2<T> y, View2<T> all,
                const Tensors& tensors, BatchFields fields, std::int64_t samples,
                View2<double> scores) const override;
  /// Throws Error: only masked tokens are predicted.
  void logits(const Handle& handle, View2<Accumulate<T>> logits, View2<const T> y) const override;

 private:
  /// The sentence head's two products.
  struct Pairs {
    Linear<P> dense;
    Linear<P> output;
  };

  /// Indices of batch fields.
  struct Fields {
    std::size_t targets;  ///< [N] masked tokens
    /// Rows of the masked tokens in [T], then of the samples' first tokens, for all context ranks;
    /// −1 if another rank has the token.
    std::size_t rows;
    std::optional<std::size_t> pairs;  ///< [B] kind of each sample's pair, 0 or 1
  };

  void transform(const Handle& handle, const Tensors& s) const;
  void transform_backward(const Handle& handle, const Tensors& s) const;
  void score(const Handle& handle, const Tensors& s, View1<double> loss,
             View1<const std::int32_t> pairs, std::int64_t samples) const;
  void score_gradient(const Handle& handle, const Tensors& s, View1<const std::int32_t> pairs,
                      const MicroContext& context) const;
  void score_backward(const Handle& handle, const Tensors& s) const;
  /// Computes the gradient in `picked` from the gradients of logits and scores.
  void backward_to_rows(const Handle& handle, const Tensors& s) const;
  /// dy = the gradient in `picked`, in the picked rows, and 0 elsewhere.
  void place(const Handle& handle, View2<T> dy, const Tensors& s,
             View1<const std::int32_t> rows) const;
  void pick(const Handle& handle, const Tensors& s, View2<const T> y,
            View1<const std::int32_t> rows) const;
  /// The part of n replicated rows whose weight gradients this rank sums.
  layout::Slice own(std::int64_t n) const;
  void backward_weight(const Handle& handle, const Linear<P>& linear, View2<const T> dy,
                       View2<const T> x) const;
  /// This context rank's rows of `picked`: rows of its masked tokens, and of its pairs.
  layout::Slice predicted(const Tensors& s) const;
  layout::Slice first_rows(const Tensors& s) const;
  /// Sums the gradients of the picked rows over the context ranks, each of which has its own part.
  void share_gradients(const Handle& handle, const Tensors& s) const;
  View2<T> first_tokens(const Tensors& s) const {
    return rows_of(s.picked, first_rows(s).offset, first_rows(s).extent);
  }

  const TensorAxis& axis_;
  architecture::HeadGradient gradient_;
  Fields fields_;
  Gelu gelu_;
  std::int64_t masked_;  ///< masked tokens of a sample
  Linear<P> dense_;
  LayerNorm<P> norm_;
  std::optional<Pairs> pairs_;
  Logits<P> logits_;
};

}  // namespace trireme::model
