#pragma once

#include <trireme/model/context.hpp>
#include <trireme/model/tensor_axis.hpp>
#include <trireme/model/tensor_memory.hpp>

namespace trireme::model {

/// Logits and cross entropy of rows. Logits are computed for blocks of rows and never stored whole.
/// Their gradient needs nothing from later. With HeadGradient::with_losses, the forward pass turns
/// each block into its gradient at once and adds the block's part of the table's gradient; `kept`
/// stores the gradient of all blocks, narrower than logits, and `again` the statistics, with which
/// the backward pass turns logits into their gradient without a message. The numbers are the same,
/// bit for bit. The tensor axis
/// cuts the vocabulary; of a row of logits only three numbers travel: the part's maximum, its sum
/// of exponentials and the target's logit.
template <class P>
class Logits {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  struct Scratch {
    View2<Accumulate<T>> logits;  // [rows of a block, V]
    View2<T> dlogits;          // [rows of a block, or all, V]: in the memory of logits if it can be
    View1<double> losses;      // [rows]
    View1<double> statistics;  // [P · rows · 3] of all parts
    View1<double> merged;      // [rows of a block, or all, · 3]
  };

  /// `axis` must outlive this.
  Logits(const Parameters<P>& parameters, const deck::ModelConfig& model, const TensorAxis& axis,
         architecture::HeadGradient gradient);

  static Scratch scratch_in(const TensorMemory<P>& memory);

  /// loss [1] += Σ_n cross entropy(n). With with_losses also as `backward`.
  void forward(const Handle& handle, View1<double> loss, View2<T> y, const Scratch& scratch,
               View1<const std::int32_t> targets, const MicroContext& context) const;
  /// y [N, D], as in the forward pass, becomes the gradient of the loss, scaled as the context says
  /// and summed over this rank's part of the vocabulary, and the table's gradient is added. Not for
  /// with_losses.
  void backward(const Handle& handle, View2<T> y, const Scratch& scratch,
                View1<const std::int32_t> targets, const MicroContext& context) const;
  /// The loss alone, and scores [≥ N, 2] of the rows (kernels::row_scores) unless they are empty.
  void evaluate(const Handle& handle, View1<double> loss, View2<const T> y, const Scratch& scratch,
                View1<const std::int32_t> targets, View2<double> scores) const;
  /// logits [N, V] of this rank's part of the vocabulary, of y [N, D].
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
  /// loss += Σ losses of the block, and in block.merged what their gradient needs.
  void block_loss(const Handle& handle, View1<double> loss, const Block& block,
                  const Scratch& scratch) const;
  void block_gradient(const Handle& handle, const Block& block, const MicroContext& context) const;
  /// From the gradient of the block's logits to that of y and of the table.
  void block_backward(const Handle& handle, const Block& block, View2<T> y) const;

  const TensorAxis& axis_;
  architecture::HeadGradient gradient_;
  double cap_;             ///< soft cap; 0: none
  std::int64_t first_id_;  ///< of this rank's part of the vocabulary
  View2<T> table_;         // [V, D]: the embedding's if tied
  View2<G> dtable_;        // [V, D]: a gradient of its own if tied
  View1<T> bias_;          // [V], or empty
  View1<G> dbias_;         // [V], or empty
};

}  // namespace trireme::model
