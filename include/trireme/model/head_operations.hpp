#pragma once

#include <trireme/model/operations.hpp>

#include <cstddef>

/// Operations of heads (Devlin et al. 2019, arXiv 1810.04805, section 3.1; as in its published
/// code). Only the rows that a head needs are computed. All tensor ranks receive them, and repeat
/// the computations that the axis does not split; with sequence parallelism, each rank sums the
/// gradients of weights over a part of the rows. The ranks of a context axis divide the rows: each
/// computes the losses and gradients of its part.
namespace trireme::model {

/// Rows of a head on this rank.
class HeadRows {
 public:
  /// `axis` must outlive this object.
  HeadRows(const deck::ModelConfig& model, const TensorAxis& axis)
      : axis_(axis), masked_(model.predicts_masked_tokens() ? model.targets() : 0) {}

  /// This context rank's part of the picked rows: the rows of its masked tokens, and of its pairs'
  /// first tokens.
  layout::Slice masked(const architecture::LocalSizes& sizes) const {
    return axis_.context().part(sizes.micro * masked_);
  }
  layout::Slice pairs(const architecture::LocalSizes& sizes) const {
    const layout::Slice mine = axis_.context().part(sizes.micro);
    return {sizes.micro * masked_ + mine.offset, mine.extent};
  }
  /// Number of this rank's targets, and of its pairs, whose losses count: all, except in
  /// evaluations.
  template <class P>
  std::int64_t counted_targets(const StepCall<P>& call) const;
  template <class P>
  std::int64_t counted_pairs(const StepCall<P>& call) const;

 private:
  const TensorAxis& axis_;
  std::int64_t masked_;  ///< masked tokens of a sample; 0: all tokens are targets
};

/// y = rows `indices` of x, from all ranks that hold them. An index is −1 if another context rank
/// has the token.
template <class P>
class PickOperation final : public LayerOperation<P> {
 public:
  using typename LayerOperation<P>::T;
  PickOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const StepCall<P>& call, const LayerOperation<P>* fused) const override;
  /// dx = dy in the picked rows, and 0 elsewhere.
  void backward_input(const StepCall<P>& call, const LayerOperation<P>* fused,
                      bool accumulate) const override;

 private:
  /// Sums the gradients of the rows over the context ranks, each of which has its own part.
  void share_gradients(const StepCall<P>& call, View2<T> dy) const;

  const TensorAxis& axis_;
  HeadRows rows_;
  std::size_t field_;  ///< index of the field of indices
  bool has_pairs_;
};

/// y = x Wᵀ + b, or y = gelu(x Wᵀ + b), on rows that all tensor ranks have.
template <class P>
class HeadLinearOperation final : public LayerOperation<P> {
 public:
  using typename LayerOperation<P>::T;
  HeadLinearOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const StepCall<P>& call, const LayerOperation<P>* fused) const override;
  void backward_input(const StepCall<P>& call, const LayerOperation<P>* fused,
                      bool accumulate) const override;
  void backward_weight(const StepCall<P>& call) const override;

 private:
  /// The rows of x, or of its gradient, that belong to y.
  View2<T> own_rows(const StepCall<P>& call, View2<T> x) const;

  const TensorAxis& axis_;
  HeadRows rows_;
  Linear<P> linear_;
  bool reads_picked_;
  bool of_pairs_;
  bool is_wide_;  ///< y has the type of sums
};

/// y = tanh(y); its gradient is 1 − y².
template <class P>
class TanhOperation final : public LayerOperation<P> {
 public:
  using typename LayerOperation<P>::T;
  using LayerOperation<P>::LayerOperation;

  void forward(const StepCall<P>& call, const LayerOperation<P>* fused) const override;
  void backward_input(const StepCall<P>& call, const LayerOperation<P>* fused,
                      bool accumulate) const override;
};

/// Σ (log Σ exp(logits) − logits[target]) of a term of the objective. The logits' operation
/// computes the sum over tokens. The sum over pairs is computed here, with its gradient in
/// training; a pair has the weight of all masked tokens of a sample.
template <class P>
class CrossEntropyOperation final : public LayerOperation<P> {
 public:
  using typename LayerOperation<P>::T;
  CrossEntropyOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const StepCall<P>& call, const LayerOperation<P>* fused) const override;
  void backward_input(const StepCall<P>&, const LayerOperation<P>*, bool) const override {}

  View1<const std::int32_t> targets(const StepCall<P>& call) const {
    return call.context.fields[field_];
  }
  View1<double> losses(const StepCall<P>& call) const {
    return flat(call.values.template numbers<double>(this->op_.output));
  }
  View2<double> statistics(const StepCall<P>& call) const {
    return call.values.template numbers<double>(this->op_.saved.front());
  }
  View2<double> merged(const StepCall<P>& call) const {
    return call.values.template numbers<double>(this->op_.saved.back());
  }
  /// [1] sum of the losses of this term.
  View1<double> sum(const StepCall<P>& call) const { return part(call.context.losses, term_, 1); }

 private:
  HeadRows rows_;
  std::size_t field_;  ///< index of the field of targets
  std::int64_t term_;  ///< index in the objective's losses
  double weight_;      ///< relative to the weight of a token
};

}  // namespace trireme::model
