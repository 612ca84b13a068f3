#pragma once

#include <trireme/model/training_head.hpp>

namespace trireme::model {

/// Each token predicts its successor: logits of all rows (see Logits).
template <class P>
class NextTokenHead final : public TrainingHead<P> {
 public:
  using T = typename P::Compute;

  /// `axis` must outlive this object.
  NextTokenHead(const Parameters<P>& parameters, const deck::ModelConfig& model,
                const TensorAxis& axis, architecture::HeadGradient gradient);

  void forward(const Handle& handle, View1<double> losses, View2<T> dy, View2<T> all,
               const HeadTensors<P>& tensors, BatchFields fields,
               const MicroContext& context) const override;
  void backward(const Handle& handle, View2<T> dy, View2<T> all, const HeadTensors<P>& tensors,
                BatchFields fields, const MicroContext& context) const override;
  void evaluate(const Handle& handle, View1<double> losses, View2<T> y, View2<T> all,
                const HeadTensors<P>& tensors, BatchFields fields, std::int64_t samples,
                View2<double> scores) const override;
  void logits(const Handle& handle, View2<Accumulate<T>> logits, View2<const T> y) const override;

 private:
  const TensorAxis& axis_;
  architecture::HeadGradient gradient_;
  std::int64_t sequence_;  ///< tokens of a sample on this rank
  std::size_t targets_;    ///< index of the field [T]: the token after each token
  Logits<P> logits_;
};

}  // namespace trireme::model
