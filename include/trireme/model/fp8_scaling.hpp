#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/kernels/fp8.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/named_tensor.hpp>

#include <cstdint>

namespace trireme::model {

/// Delayed scaling (Micikevicius et al. 2022, arXiv 2209.05433; NVIDIA Transformer Engine): the
/// scale of each tensor of architecture/fp8.hpp follows from its maxima in previous steps, never
/// from the current step. Every rank holds the maxima of the whole model.
class Fp8Scaling {
 public:
  /// `gradient_exponent`: see Fp8Rule.
  Fp8Scaling(std::int64_t tensors, const deck::PrecisionConfig& precision, int gradient_exponent);

  /// A tensor's scale in the current step. `notes`: whether kernels raise the tensor's maximum of
  /// this step.
  kernels::Fp8Scale scale(std::int64_t tensor, bool notes) const;

  /// This rank's maxima of the current step [tensors]; finish_step needs the maxima over all ranks.
  View1<float> maxima() const { return maxima_; }
  /// Stores the maxima of step `step` ≥ 1 in the history, in place of the oldest maxima. Sets the
  /// scales of the next step, and maxima() to 0.
  void finish_step(const Exec& exec, std::int64_t step) const;

  /// Sets the scales of the step after `step` from the history.
  void resume(const Exec& exec, std::int64_t step) const;
  /// Sets the history and maxima() to 0, and the scales to their first values.
  void reset(const Exec& exec) const;
  /// The history [history, tensors], as stored in checkpoints.
  NamedTensor<float> history() const;

  std::int64_t tensors() const { return extent(history_, 1); }
  Bytes bytes() const { return memory_.capacity(); }

 private:
  Fp8Algorithm algorithm_;
  int gradient_exponent_;
  Arena memory_;
  View2<float> history_;   // [history, tensors]
  View1<float> maxima_;    // [tensors]
  View1<float> scales_;    // [tensors]
  View2<float> inverses_;  // [tensors, fp8_inverse_stride] 1 / scales in the first column
};

}  // namespace trireme::model
