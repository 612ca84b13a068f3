#pragma once

#include <trireme/model/context.hpp>
#include <trireme/model/norm.hpp>

namespace trireme::model {

/// Final norm, logits and cross entropy. Logits are computed for blocks of rows and never stored
/// whole: the training forward pass turns each block into its gradient at once (the gradient of the
/// loss needs nothing from later), adds the block's part of the table's gradient and keeps dy [T,
/// D] for the backward pass.
template <class P>
class Head {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  struct Saved {
    View2<T> x;   // [T, D] input
    View2<T> dy;  // [T, D] normalised input, then its gradient
    typename Norm<P>::Saved norm;
  };
  struct Scratch {
    View2<T> logits;       // [rows, V]
    View1<double> losses;  // [rows]
  };

  Head(const Parameters<P>& parameters, const deck::ModelConfig& model);

  static Saved cut_saved(Arena& arena, const deck::ModelConfig& model, std::int64_t micro);
  static Scratch cut_scratch(Arena& arena, const deck::ModelConfig& model, std::int64_t micro);

  /// loss [1] += Σ_t cross entropy(t); also the gradient, scaled by context.loss_scale, down to dy
  /// and the table.
  void forward(const Exec& exec, View1<double> loss, const Saved& saved, const Scratch& scratch,
               View1<const std::int32_t> targets, const MicroContext& context) const;
  /// The loss of the first `tokens` rows, without gradients.
  void evaluate(const Exec& exec, View1<double> loss, const Saved& saved, const Scratch& scratch,
                View1<const std::int32_t> targets, std::int64_t tokens) const;
  /// dx [T, D] = gradient of the input.
  void backward_input(const Exec& exec, View2<T> dx, const Saved& saved) const;
  void backward_weight(const Exec& exec, const Saved& saved) const;

  /// logits [B, V] of rows x [B, D]; `saved` holds scratch rows for T = B.
  void logits(const Exec& exec, View2<T> logits, View2<const T> x, const Saved& saved) const;

 private:
  Norm<P> norm_;
  View2<T> table_;   // [V, D]: the embedding's if tied
  View2<G> dtable_;  // [V, D]: a gradient of its own if tied
};

}  // namespace trireme::model
