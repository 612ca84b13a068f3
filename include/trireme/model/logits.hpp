#pragma once

#include <trireme/model/head_operations.hpp>

namespace trireme::model {

/// Logits and their cross entropy. Except in generation, logits are computed one block of rows at a
/// time and never stored whole. HeadGradient determines the pass that computes the gradients. With
/// HeadGradient::again, the backward pass recomputes the logits, and uses the statistics of the
/// forward pass.
///
/// The tensor axis splits the vocabulary. For the losses, only three values per row of logits are
/// sent: the part's maximum, the part's sum of exponentials, and the target's logit.
template <class P>
class LogitsOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  using G = typename P::Gradient;
  LogitsOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  /// Adds the losses and, in training, computes the gradients that HeadGradient assigns to the
  /// forward pass. In generation, only computes Decoding::logits.
  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  /// Computes the gradients of the input, in the input's memory, and of the table, and sums the
  /// input's gradient over the tensor axis, unless forward() has done so.
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;

 private:
  /// A block of consecutive rows.
  struct Block {
    std::int64_t first;
    View2<T> y;
    View2<Accumulate<T>> logits;
    View2<T> dlogits;      // may be in the memory of `logits`
    View2<double> merged;  // [rows, 3]
    View1<const std::int32_t> targets;
  };

  /// Calls `use` with each block of the first `count` rows of y.
  template <class Use>
  void visit_blocks(const PassArguments<P>& call, View2<T> y, std::int64_t count,
                    const CrossEntropyOperation<P>& loss, const Use& use) const;
  /// logits = cap(y tableᵀ + bias)
  void compute(const Handle& handle, View2<Accumulate<T>> logits, View2<const T> y) const;
  /// Adds the losses of the block's rows to the sum of `loss`. Stores the statistics for the
  /// gradient in block.merged. Returns the loss of each row.
  View1<double> add_losses(const PassArguments<P>& call, const Block& block,
                           const CrossEntropyOperation<P>& loss) const;
  /// `weight`: weight of the loss, relative to that of a token.
  void block_gradient(const PassArguments<P>& call, const Block& block, double weight) const;
  /// From the gradient of the block's logits, computes the gradient of y, and adds to the gradients
  /// of the table and the bias.
  void block_backward(const PassArguments<P>& call, const Block& block) const;
  /// Sums the input's gradient over the tensor axis.
  void sum_gradient(const PassArguments<P>& call) const;

  const TensorAxis& axis_;
  architecture::HeadGradient gradient_;
  HeadRows rows_;
  bool gathers_;           ///< the input has this rank's rows; the operation gathers them
  double cap_;             ///< soft cap; 0: none
  double scale_;           ///< factor of the logits
  std::int64_t first_id_;  ///< first id of this rank's part of the vocabulary
  View2<T> table_;         // [V, D]: the embedding's table if embeddings are tied
  View2<G> dtable_;        // [V, D]: not the look-up's gradient, even if embeddings are tied
  View1<T> bias_;          // [V]; empty without a bias
  View1<G> dbias_;         // [V]; empty if frozen or without a bias
};

}  // namespace trireme::model
