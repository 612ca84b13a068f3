#pragma once

#include <trireme/architecture/local_sizes.hpp>
#include <trireme/model/context.hpp>
#include <trireme/model/logits.hpp>
#include <trireme/model/masked_head.hpp>
#include <trireme/model/norm.hpp>
#include <trireme/model/tensor_axis.hpp>

#include <optional>
#include <variant>

namespace trireme::model {

/// Final norm and what follows it: logits of all tokens (see Logits), or bert's heads (see
/// MaskedHead). The forward pass keeps dy, the gradient at the norm's output, for the backward
/// pass.
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
    typename Logits<P>::Scratch logits;
    typename MaskedHead<P>::Scratch masked;
  };

  /// `axis` must outlive this.
  Head(const Parameters<P>& parameters, const deck::ModelConfig& model, const TensorAxis& axis);

  static Saved cut_saved(Arena& arena, const architecture::LocalSizes& sizes);
  static Scratch cut_scratch(Arena& arena, const architecture::LocalSizes& sizes, int tensor_size);

  /// loss [2] += {Σ cross entropy of predicted tokens, of pairs}; also the gradient, scaled as the
  /// context says, down to dy and the table. `all` [T, D] is scratch where R is a part of T.
  void forward(const Exec& exec, View1<double> loss, const Saved& saved, View2<T> all,
               const Scratch& scratch, const Targets& targets, const MicroContext& context) const;
  /// The losses of the first `samples` samples, without gradients.
  void evaluate(const Exec& exec, View1<double> loss, const Saved& saved, View2<T> all,
                const Scratch& scratch, const Targets& targets, std::int64_t samples) const;
  /// dx [R, D] = gradient of the input.
  void backward_input(const Exec& exec, View2<T> dx, const Saved& saved) const;
  void backward_weight(const Exec& exec, const Saved& saved) const;

  /// logits [B, V] of rows x [B, D], on one tensor rank; `saved` holds scratch rows for T = B.
  void logits(const Exec& exec, View2<Accumulate<T>> logits, View2<const T> x,
              const Saved& saved) const;

 private:
  void normalise(const Exec& exec, View2<T> y, const NormSaved<P>& saved, View2<const T> x) const;

  const TensorAxis& axis_;
  std::int64_t targets_;                         ///< of a sample
  std::variant<LayerNorm<P>, RmsNorm<P>> norm_;  ///< as the family has it
  Logits<P> logits_;
  std::optional<MaskedHead<P>> masked_;
};

}  // namespace trireme::model
