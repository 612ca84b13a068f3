#pragma once

#include <trireme/model/context.hpp>
#include <trireme/model/norm.hpp>
#include <trireme/model/tensor_axis.hpp>
#include <trireme/model/training_head.hpp>

#include <memory>
#include <variant>

namespace trireme::model {

/// Final norm and the head of the training objective, whose forward pass keeps dy, the gradient at
/// the norm's output, for the norm's backward pass.
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

  /// `axis` must outlive this.
  Head(const Parameters<P>& parameters, const deck::ModelConfig& model, const TensorAxis& axis);

  Saved take_saved(Arena& arena, const architecture::LocalSizes& sizes) const;
  void take_scratch(Arena& arena, const architecture::LocalSizes& sizes) {
    training_->take_scratch({arena, description_, architecture::Home::scratch, sizes});
  }

  /// losses [terms] += Σ cross entropy of each term; also the gradient, scaled as the context says,
  /// down to dy. `all` [T, D] is scratch where R is a part of T.
  void forward(const Handle& handle, View1<double> losses, const Saved& saved, View2<T> all,
               BatchFields fields, const MicroContext& context) const;
  /// The losses of the first `samples` samples, without gradients.
  void evaluate(const Handle& handle, View1<double> losses, const Saved& saved, View2<T> all,
                BatchFields fields, std::int64_t samples) const;
  /// dx [R, D] = gradient of the input.
  void backward_input(const Handle& handle, View2<T> dx, const Saved& saved) const;
  void backward_weight(const Handle& handle, const Saved& saved) const;

  /// logits [B, V] of rows x [B, D], on one tensor rank; `saved` holds scratch rows for T = B.
  void logits(const Handle& handle, View2<Accumulate<T>> logits, View2<const T> x,
              const Saved& saved) const;

  const TrainingHead<P>& training() const { return *training_; }

 private:
  void normalise(const Handle& handle, View2<T> y, const NormSaved<P>& saved,
                 View2<const T> x) const;

  architecture::LayerDescription description_;
  std::variant<LayerNorm<P>, RmsNorm<P>> norm_;
  std::unique_ptr<TrainingHead<P>> training_;
};

}  // namespace trireme::model
