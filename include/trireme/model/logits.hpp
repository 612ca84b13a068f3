#pragma once

#include <trireme/model/head_operations.hpp>

namespace trireme::model {

/// Logits and their cross entropy. Logits are computed for blocks of rows and never stored whole.
/// Their gradient needs no later results. With HeadGradient::with_losses, the forward pass turns
/// each block into its gradient at once and adds the block's part of the table's gradient. `kept`
/// stores the gradient of all blocks, in a narrower type than logits. `again` stores the
/// statistics, with which the backward pass turns recomputed logits into their gradient without a
/// message. The results are bit-for-bit equal. The tensor axis splits the vocabulary; only three
/// values per row of logits are sent: the part's maximum, its sum of exponentials and the target's
/// logit.
template <class P>
class LogitsOperation final : public LayerOperation<P> {
 public:
  using typename LayerOperation<P>::T;
  using G = typename P::Gradient;
  LogitsOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  /// Losses, and their gradients in training; in generation only the logits of whole rows.
  void forward(const StepCall<P>& call, const LayerOperation<P>* fused) const override;
  /// The gradients of the input, in its memory, and of the table, unless forward() computed them.
  void backward_input(const StepCall<P>& call, const LayerOperation<P>* fused,
                      bool accumulate) const override;

 private:
  /// Consecutive rows.
  struct Block {
    std::int64_t first;
    View2<T> y;
    View2<Accumulate<T>> logits;
    View2<T> dlogits;      // in the memory of logits if possible
    View2<double> merged;  // [rows, 3]
    View1<const std::int32_t> targets;
  };

  /// Calls `use` with each block of y's first `count` rows.
  template <class Use>
  void visit_blocks(const StepCall<P>& call, View2<T> y, std::int64_t count,
                    const CrossEntropyOperation<P>& loss, const Use& use) const;
  /// logits = cap(y tableᵀ + bias)
  void compute(const Handle& handle, View2<Accumulate<T>> logits, View2<const T> y) const;
  /// loss += Σ losses of the block; stores the statistics for the gradient in block.merged, and
  /// returns the losses.
  View1<double> add_losses(const StepCall<P>& call, const Block& block,
                           const CrossEntropyOperation<P>& loss) const;
  void block_gradient(const StepCall<P>& call, const Block& block) const;
  /// Computes the gradients of y and of the table from the gradient of the block's logits.
  void block_backward(const StepCall<P>& call, const Block& block) const;

  const TensorAxis& axis_;
  architecture::HeadGradient gradient_;
  HeadRows rows_;
  bool gathers_;           ///< the input has this rank's rows, not all
  double cap_;             ///< soft cap; 0: none
  std::int64_t first_id_;  ///< first id of this rank's part of the vocabulary
  View2<T> table_;         // [V, D]: the embedding's table if tied
  View2<G> dtable_;        // [V, D]: a separate gradient if tied
  View1<T> bias_;          // [V], or empty
  View1<G> dbias_;         // [V], or empty
};

}  // namespace trireme::model
