#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/kernels/head_norm.hpp>
#include <trireme/kernels/rotary.hpp>
#include <trireme/model/operations.hpp>
#include <trireme/model/ring_attention.hpp>

#include <optional>

/// Attention, and operations on queries and keys before it.
namespace trireme::model {

/// Attention with this rank's heads and tokens of a micro-batch. `window`: 0 for full attention.
kernels::AttentionShape attention_shape(const architecture::LocalSizes& sizes,
                                        const deck::ModelConfig& model, std::int64_t window);

/// Rotary positions of queries and keys, in place.
template <class P>
class RotaryOperation final : public LayerOperation<P> {
 public:
  RotaryOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const StepCall<P>& call, const LayerOperation<P>* fused) const override;
  void backward_input(const StepCall<P>& call, const LayerOperation<P>* fused,
                      bool accumulate) const override;

 private:
  kernels::Rotary rotary_;
};

/// RMSNorm of each head of queries and keys, in place.
template <class P>
class HeadNormOperation final : public LayerOperation<P> {
 public:
  using typename LayerOperation<P>::T;
  using G = typename P::Gradient;
  HeadNormOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const StepCall<P>& call, const LayerOperation<P>* fused) const override;
  /// Also computes the gradients of the gains, because it overwrites the gradient that they depend
  /// on.
  void backward_input(const StepCall<P>& call, const LayerOperation<P>* fused,
                      bool accumulate) const override;

 private:
  kernels::HeadNorm norm_;
  View1<T> gain_query_, gain_key_;    // [K]
  View1<G> dgain_query_, dgain_key_;  // [K]
};

/// o = softmax(q kᵀ / √K) v per head, with dropout of the probabilities; as a ring over a context
/// axis.
template <class P>
class AttentionOperation final : public LayerOperation<P> {
 public:
  using typename LayerOperation<P>::T;
  AttentionOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const StepCall<P>& call, const LayerOperation<P>* fused) const override;
  void backward_input(const StepCall<P>& call, const LayerOperation<P>* fused,
                      bool accumulate) const override;

 private:
  kernels::AttentionDropout dropout(const MicroContext& context) const;
  kernels::AttentionShape shape(const MicroContext& context) const;
  View3<Accumulate<T>> logsumexp(const StepCall<P>& call) const;

  kernels::AttentionShape shape_;  ///< shape for this rank's tokens
  layout::Slice heads_;
  std::int64_t all_heads_;
  std::int64_t layer_;
  std::optional<RingAttention<T>> ring_;  ///< with a context axis
};

}  // namespace trireme::model
