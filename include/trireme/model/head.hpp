#pragma once

#include <trireme/architecture/local_sizes.hpp>
#include <trireme/model/context.hpp>
#include <trireme/model/norm.hpp>
#include <trireme/model/tensor_axis.hpp>

#include <variant>

namespace trireme::model {

/// Final norm, logits and cross entropy. Logits are computed for blocks of rows and never stored
/// whole: the training forward pass turns each block into its gradient at once (the gradient of the
/// loss needs nothing from later), adds the block's part of the table's gradient and keeps dy for
/// the backward pass. The tensor axis cuts the vocabulary; of a row of logits only three numbers
/// travel: the part's maximum, its sum of exponentials and the target's logit.
template <class P>
class Head {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  struct Saved {
    View2<T> x;   // [R, D] input
    View2<T> dy;  // [R, D] normalised input, then its gradient
    NormSaved<P> norm;
  };
  struct Scratch {
    View2<Accumulate<T>> logits;  // [rows, V]
    View2<T> dlogits;      // [rows, V]: their gradient, in the same memory where the types agree
    View1<double> losses;  // [rows]
    View1<double> statistics;  // [P · rows · 3] of all parts
    View1<double> merged;      // [rows · 3]
  };

  /// `axis` must outlive this.
  Head(const Parameters<P>& parameters, const deck::ModelConfig& model, const TensorAxis& axis);

  static Saved cut_saved(Arena& arena, const architecture::LocalSizes& sizes);
  static Scratch cut_scratch(Arena& arena, const architecture::LocalSizes& sizes, int tensor_size);

  /// loss [1] += Σ_t cross entropy(t); also the gradient, scaled as the context says, down to dy
  /// and the table. `all` [T, D] is scratch where R is a part of T.
  void forward(const Exec& exec, View1<double> loss, const Saved& saved, View2<T> all,
               const Scratch& scratch, View1<const std::int32_t> targets,
               const MicroContext& context) const;
  /// The loss of the first `tokens` tokens, without gradients.
  void evaluate(const Exec& exec, View1<double> loss, const Saved& saved, View2<T> all,
                const Scratch& scratch, View1<const std::int32_t> targets,
                std::int64_t tokens) const;
  /// dx [R, D] = gradient of the input.
  void backward_input(const Exec& exec, View2<T> dx, const Saved& saved) const;
  void backward_weight(const Exec& exec, const Saved& saved) const;

  /// logits [B, V] of rows x [B, D], on one tensor rank; `saved` holds scratch rows for T = B.
  void logits(const Exec& exec, View2<Accumulate<T>> logits, View2<const T> x,
              const Saved& saved) const;

 private:
  void normalise(const Exec& exec, View2<T> y, const NormSaved<P>& saved, View2<const T> x) const;
  /// Losses of the rows of one block, and in scratch.merged what their gradient needs.
  View2<const double> block_losses(const Exec& exec, View1<double> losses,
                                   View2<Accumulate<T>> logits, View1<const std::int32_t> targets,
                                   const Scratch& scratch) const;

  const TensorAxis& axis_;
  std::int64_t first_id_;                        ///< of this rank's part of the vocabulary
  std::variant<LayerNorm<P>, RmsNorm<P>> norm_;  ///< as the family has it
  View2<T> table_;                               // [V, D]: the embedding's if tied
  View2<G> dtable_;                              // [V, D]: a gradient of its own if tied
};

}  // namespace trireme::model
