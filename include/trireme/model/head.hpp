#pragma once

#include <trireme/model/context.hpp>
#include <trireme/model/norm.hpp>
#include <trireme/model/tensor_axis.hpp>
#include <trireme/model/training_head.hpp>

#include <cstddef>
#include <memory>
#include <variant>
#include <vector>

namespace trireme::model {

/// Final norm and the head of the training objective. A pass of the head leaves dy, the gradient at
/// the norm's output, for the norm's backward pass. With a shared vocabulary, the head is only the
/// norm: SharedVocabulary computes dy.
template <class P>
class Head {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  struct Saved {
    View2<T> x;   // [R, D] input
    View2<T> dy;  // [R, D] normalised input, then its gradient
    NormSaved<P> norm;
    HeadTensors<P> tensors;
  };

  /// `axis` must outlive this object.
  Head(const Parameters<P>& parameters, const deck::ModelConfig& model, const TensorAxis& axis,
       architecture::HeadGradient gradient = architecture::HeadGradient::with_losses);

  /// Takes a slot's memory. In training and evaluation, call take_scratch first.
  Saved take_saved(Arena& arena, const architecture::LocalSizes& sizes) const;
  void take_scratch(Arena& arena, const architecture::LocalSizes& sizes) {
    scratch_ = TensorMemory<P>(arena, description_, architecture::Home::scratch, sizes).data();
  }

  /// losses [terms] += Σ cross entropy of each term; with HeadGradient::with_losses also computes
  /// the gradient down to dy, scaled by the context. `all` [T, D] is scratch if R is a part of T.
  void forward(const Handle& handle, View1<double> losses, const Saved& saved, View2<T> all,
               BatchFields fields, const MicroContext& context) const;
  /// The losses of the first `samples` samples, without gradients. `scores`: see MicroContext.
  void evaluate(const Handle& handle, View1<double> losses, const Saved& saved, View2<T> all,
                BatchFields fields, std::int64_t samples, View2<double> scores) const;
  /// Computes the gradient down to dy, unless the forward pass has computed it. Call it before the
  /// following two functions.
  void backward_losses(const Handle& handle, const Saved& saved, View2<T> all, BatchFields fields,
                       const MicroContext& context) const;
  /// dx [R, D] = gradient of the input.
  void backward_input(const Handle& handle, View2<T> dx, const Saved& saved) const;
  void backward_weight(const Handle& handle, const Saved& saved) const;

  /// logits [R, V] of this rank's part of the vocabulary, from whole rows x [R, D]; `saved` holds
  /// scratch for as many rows.
  void logits(const Handle& handle, View2<Accumulate<T>> logits, View2<const T> x,
              const Saved& saved) const;

 private:
  void normalise(const Handle& handle, View2<T> y, const NormSaved<P>& saved,
                 View2<const T> x) const;

  architecture::HeadGradient gradient_;
  architecture::LayerDescription description_;
  std::variant<LayerNorm<P>, RmsNorm<P>> norm_;
  std::unique_ptr<TrainingHead<P>> training_;  ///< null with a shared vocabulary
  std::vector<std::byte*> scratch_;            ///< by index of a tensor
};

}  // namespace trireme::model
