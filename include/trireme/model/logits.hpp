#pragma once

#include <trireme/model/context.hpp>
#include <trireme/model/tensor_axis.hpp>
#include <trireme/model/tensor_memory.hpp>

namespace trireme::model {

/// Logits and cross entropy of rows. Logits are computed for blocks of rows and never stored whole.
/// Their gradient needs no later results. With HeadGradient::with_losses, the forward pass turns
/// each block into its gradient at once and adds the block's part of the table's gradient. `kept`
/// stores the gradient of all blocks, in a narrower type than logits. `again` stores the
/// statistics, with which the backward pass turns recomputed logits into their gradient without a
/// message. The results are bit-for-bit equal. The tensor axis splits the vocabulary; only three
/// values per row of logits are sent: the part's maximum, its sum of exponentials and the target's
/// logit.
template <class P>
class Logits {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  struct Scratch {
    View2<Accumulate<T>> logits;  // [rows of a block, V]
    View2<T> dlogits;          // [rows of a block, or all, V]: in the memory of logits if possible
    View1<double> losses;      // [rows]
    View1<double> statistics;  // [P · rows · 3] for all parts
    View1<double> merged;      // [rows of a block, or all, · 3]
  };

  /// `axis` must outlive this object.
  Logits(const Parameters<P>& parameters, const deck::ModelConfig& model, const TensorAxis& axis,
         architecture::HeadGradient gradient);

  static Scratch scratch_in(const TensorMemory<P>& memory);

  /// loss [1] += Σ_n cross entropy(n). For with_losses also computes the results of `backward`.
  void forward(const Handle& handle, View1<double> loss, View2<T> y, const Scratch& scratch,
               View1<const std::int32_t> targets, const MicroContext& context) const;
  /// y [N, D], as in the forward pass, becomes the gradient of the loss, scaled by the context and
  /// summed over this rank's part of the vocabulary. Adds to the table's gradient. Not for
  /// with_losses.
  void backward(const Handle& handle, View2<T> y, const Scratch& scratch,
                View1<const std::int32_t> targets, const MicroContext& context) const;
  /// Adds only the loss, and stores scores [≥ N, 2] of the rows (kernels::row_scores) unless empty.
  void evaluate(const Handle& handle, View1<double> loss, View2<const T> y, const Scratch& scratch,
                View1<const std::int32_t> targets, View2<double> scores) const;
  /// logits [N, V] of this rank's part of the vocabulary, from y [N, D].
  void compute(const Handle& handle, View2<Accumulate<T>> logits, View2<const T> y) const;

 private:
  /// Consecutive rows.
  struct Block {
    std::int64_t first;
    View2<Accumulate<T>> logits;
    View2<T> dlogits;
    View2<double> merged;  // [rows, 3]
    View1<const std::int32_t> targets;
    View2<const T> rows(View2<const T> y) const { return rows_of(y, first, extent(logits, 0)); }
  };

  /// Calls `use` with each block of `count` rows.
  template <class Use>
  void visit_blocks(std::int64_t count, const Scratch& scratch, View1<const std::int32_t> targets,
                    const Use& use) const;
  void block_logits(const Handle& handle, const Block& block, View2<const T> y) const;
  /// loss += Σ losses of the block; stores the statistics for the gradient in block.merged.
  void block_loss(const Handle& handle, View1<double> loss, const Block& block,
                  const Scratch& scratch) const;
  void block_gradient(const Handle& handle, const Block& block, const MicroContext& context) const;
  /// Computes the gradients of y and of the table from the gradient of the block's logits.
  void block_backward(const Handle& handle, const Block& block, View2<T> y) const;

  const TensorAxis& axis_;
  architecture::HeadGradient gradient_;
  double cap_;             ///< soft cap; 0: none
  std::int64_t first_id_;  ///< first id of this rank's part of the vocabulary
  View2<T> table_;         // [V, D]: the embedding's table if tied
  View2<G> dtable_;        // [V, D]: a separate gradient if tied
  View1<T> bias_;          // [V], or empty
  View1<G> dbias_;         // [V], or empty
};

}  // namespace trireme::model
