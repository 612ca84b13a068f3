#pragma once

#include <trireme/model/operations.hpp>

#include <cstddef>

/// Operations of heads. The head of masked tokens and sentence pairs follows Devlin et al. 2019,
/// arXiv 1810.04805, section 3.1, and the code published with the paper. All tensor ranks receive
/// the rows that it needs, and repeat the computations that the tensor axis does not split. With
/// sequence parallelism, each tensor rank sums the gradients of weights over a part of the rows.
/// The ranks of a context axis divide the rows among them.
namespace trireme::model {

/// Rows of a head on this rank.
class HeadRows {
 public:
  /// `axis` must outlive this object.
  HeadRows(const deck::ModelConfig& model, const TensorAxis& axis)
      : axis_(axis), masked_(model.predicts_masked_tokens() ? model.targets() : 0) {}

  /// This context rank's parts of the picked rows: masked() has the rows of its masked tokens,
  /// pairs() the rows of the first tokens of its samples, for the loss of pairs.
  layout::Slice masked(const architecture::RankSizes& sizes) const {
    return axis_.context().part(sizes.micro * masked_);
  }
  layout::Slice pairs(const architecture::RankSizes& sizes) const {
    const layout::Slice mine = axis_.context().part(sizes.micro);
    return {sizes.micro * masked_ + mine.offset, mine.extent};
  }
  /// Number of this rank's targets, and number of this rank's pairs, whose losses count: all in
  /// training; in evaluations, the targets and pairs of the first MicroContext::samples samples.
  template <class P>
  std::int64_t counted_targets(const PassArguments<P>& call) const;
  template <class P>
  std::int64_t counted_pairs(const PassArguments<P>& call) const;

 private:
  const TensorAxis& axis_;
  std::int64_t masked_;  ///< masked tokens of a sample; 0: all tokens are targets
};

/// y = the rows of x with the indices `indices`, collected from all tensor and context ranks. An
/// index is −1 if another context rank has the row. Collective on both axes.
template <class P>
class PickOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  PickOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  /// dx = dy in the picked rows, and 0 elsewhere.
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;

 private:
  /// Gives every context rank the gradients of all picked rows: sets the rows of other ranks' parts
  /// to 0, and sums the rows over the context axis.
  void share_gradients(const PassArguments<P>& call, View2<T> dy) const;

  const TensorAxis& axis_;
  HeadRows rows_;
  std::size_t field_;  ///< index of the field of indices
  bool has_pairs_;
};

/// y = x Wᵀ + b, with a fused activation also g = gelu(y), on rows that all tensor ranks have.
template <class P>
class HeadLinearOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  HeadLinearOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;
  void backward_weight(const PassArguments<P>& call) const override;

 private:
  /// The rows of x, or of the gradient of x, from which y is computed: this context rank's part if
  /// x has all picked rows, otherwise all of x.
  View2<T> own_rows(const PassArguments<P>& call, View2<T> x) const;

  const TensorAxis& axis_;
  HeadRows rows_;
  Linear<P> linear_;
  bool reads_picked_;
  bool of_pairs_;
  bool is_wide_;  ///< y has the type of sums
};

/// y = tanh(y), in place; the backward pass multiplies the gradient by 1 − y².
template <class P>
class TanhOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  using BlockOperation<P>::BlockOperation;

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;
};

/// Sum of the cross entropies of a term of the objective: Σ (log Σ exp(logits) − logits[target]).
/// For tokens, LogitsOperation computes the sum, with the memory of this operation. For pairs, this
/// operation computes the sum and, in training, its gradient.
template <class P>
class CrossEntropyOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  CrossEntropyOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>&, const BlockOperation<P>*, bool) const override {}

  /// Number of the term in the objective's losses, and its weight relative to that of a token.
  std::int64_t term() const { return this->op_.term; }
  double weight() const { return weight_; }
  View1<const std::int32_t> targets(const PassArguments<P>& call) const {
    return call.context.fields[field_];
  }
  View1<double> losses(const PassArguments<P>& call) const {
    return flat(call.values.template numbers<double>(this->op_.output));
  }
  View2<double> statistics(const PassArguments<P>& call) const {
    return call.values.template numbers<double>(this->op_.saved.front());
  }
  View2<double> merged(const PassArguments<P>& call) const {
    return call.values.template numbers<double>(this->op_.saved.back());
  }
  /// [1] sum of the losses of this term.
  View1<double> sum(const PassArguments<P>& call) const {
    return part(call.context.losses, term(), 1);
  }

 private:
  HeadRows rows_;
  std::size_t field_;  ///< index of the field of targets
  double weight_;
};

}  // namespace trireme::model
