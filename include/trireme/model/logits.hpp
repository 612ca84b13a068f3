#pragma once

#include <trireme/model/context.hpp>
#include <trireme/model/tensor_axis.hpp>
#include <trireme/model/tensor_memory.hpp>

namespace trireme::model {

/// Logits and cross entropy of rows. Logits are computed for blocks of rows and never stored whole:
/// the training forward pass turns each block into its gradient at once (the gradient of the loss
/// needs nothing from later) and adds the block's part of the table's gradient. The tensor axis
/// cuts the vocabulary; of a row of logits only three numbers travel: the part's maximum, its sum
/// of exponentials and the target's logit.
template <class P>
class Logits {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  struct Scratch {
    View2<Accumulate<T>> logits;  // [rows of a block, V]
    View2<T> dlogits;             // [rows of a block, V]: in the same memory where the types agree
    View1<double> losses;         // [rows]
    View1<double> statistics;     // [P · rows · 3] of all parts
    View1<double> merged;         // [rows · 3]
  };

  /// `axis` must outlive this.
  Logits(const Parameters<P>& parameters, const deck::ModelConfig& model, const TensorAxis& axis);

  static Scratch scratch_in(const TensorMemory<P>& memory);

  /// loss [1] += Σ_n cross entropy(n); y [N, D] becomes the gradient of that, scaled as the context
  /// says and summed over this rank's part of the vocabulary, and the table's gradient is added.
  void train(const Handle& handle, View1<double> loss, View2<T> y, const Scratch& scratch,
             View1<const std::int32_t> targets, const MicroContext& context) const;
  /// The loss alone.
  void evaluate(const Handle& handle, View1<double> loss, View2<const T> y, const Scratch& scratch,
                View1<const std::int32_t> targets) const;
  /// logits [N, V] of y [N, D], on one tensor rank.
  void compute(const Handle& handle, View2<Accumulate<T>> logits, View2<const T> y) const;

 private:
  /// Losses of the rows of one block, and in scratch.merged what their gradient needs.
  View2<const double> block_losses(const Handle& handle, View1<double> losses,
                                   View2<Accumulate<T>> logits, View1<const std::int32_t> targets,
                                   const Scratch& scratch) const;

  const TensorAxis& axis_;
  std::int64_t first_id_;  ///< of this rank's part of the vocabulary
  View2<T> table_;         // [V, D]: the embedding's if tied
  View2<G> dtable_;        // [V, D]: a gradient of its own if tied
  View1<T> bias_;          // [V], or empty
  View1<G> dbias_;         // [V], or empty
};

}  // namespace trireme::model
