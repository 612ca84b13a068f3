#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/kernels/head_norm.hpp>
#include <trireme/kernels/latent_heads.hpp>
#include <trireme/kernels/rotary.hpp>
#include <trireme/kernels/width_norm.hpp>
#include <trireme/model/operations.hpp>
#include <trireme/model/ring_attention.hpp>

#include <optional>
#include <string>

/// Operations of attention: rotary position embedding and norm of queries and keys, and attention
/// itself.
namespace trireme::model {

/// Shape of attention for this rank's heads and this rank's tokens of a micro-batch.
kernels::AttentionShape attention_shape(const architecture::RankSizes& sizes,
                                        const deck::ModelConfig& model,
                                        const architecture::Operation& attention);

/// Rotary position embedding of queries and keys, in place.
template <class P>
class RotaryOperation final : public BlockOperation<P> {
 public:
  RotaryOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;
  /// The heads of a token share their sines and cosines.
  std::optional<Evaluations> evaluations(const PassArguments<P>& call) const override;

 private:
  kernels::Rotary rotary_;
};

/// RMSNorm of each head of queries and keys, in place.
template <class P>
class HeadNormOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  using G = typename P::Gradient;
  HeadNormOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;
  /// Runs before backward_input, which overwrites the output's gradient. Nothing with frozen gains.
  void backward_weight(const PassArguments<P>& call) const override;

 private:
  kernels::HeadNorm norm_;
  View1<T> gain_query_, gain_key_;    // [K]
  View1<G> dgain_query_, dgain_key_;  // [K]; empty if frozen
};

/// RMSNorm of all queries of a token, and of all its keys, in place.
template <class P>
class WidthNormOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  using G = typename P::Gradient;
  WidthNormOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;
  /// As HeadNormOperation::backward_weight.
  void backward_weight(const PassArguments<P>& call) const override;

 private:
  /// Saved factors, or their gradients, as [2, T].
  static View2<Accumulate<T>> by_part(View1<Accumulate<T>> both) {
    return trireme::matrix(both, 2, extent(both, 0) / 2);
  }

  const TensorAxis& axis_;
  kernels::WidthNorm norm_;
  View1<T> gain_query_, gain_key_;    // [Nq], [Nk]
  View1<G> dgain_query_, dgain_key_;  // [Nq], [Nk]; empty if frozen
  std::string forward_, backward_;    // labels of messages
};

/// Joins queries, keys and values of latent attention (kernels/latent_heads.hpp). Keys that all
/// heads share are gathered from the tensor ranks, and their gradients are sums over the ranks.
template <class P>
class JoinHeadsOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  JoinHeadsOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;

 private:
  const TensorAxis& axis_;
  kernels::LatentHeads heads_;
};

/// The columns of attention's output that are values.
template <class P>
class TakeValuesOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  TakeValuesOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;

 private:
  kernels::LatentHeads heads_;
};

/// Attention per head, with the model's scale (1/√K by default), soft cap, mask, sinks and biases
/// of relative positions; or attention of the tokens to keys and values of the source. A context
/// axis of several ranks uses ring attention.
template <class P>
class AttentionOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  AttentionOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;
  /// The gradient of the sinks. Call it before backward_input: see OperationRule.
  void backward_weight(const PassArguments<P>& call) const override;
  /// Exponentials of the scores, or random words for their dropout masks.
  std::optional<Evaluations> evaluations(const PassArguments<P>& call) const override;

 private:
  /// The forward pass of generation.
  void decode(const PassArguments<P>& call, const Decoding<P>& decoding) const;
  kernels::AttentionDropout dropout(const MicroContext& context) const;
  kernels::AttentionShape shape(const MicroContext& context) const;
  View3<Accumulate<T>> logsumexp(const PassArguments<P>& call) const;
  /// Work memory of the backward pass.
  View1<Accumulate<T>> work(const PassArguments<P>& call) const;
  bool has_biases() const { return shape_.has_biases(); }
  /// The biases [buckets, H]; empty if there are none.
  View2<T> biases(const PassArguments<P>& call) const {
    return has_biases() ? call.values.matrix(this->op_.inputs.back()) : View2<T>();
  }

  kernels::AttentionShape shape_;  ///< shape for this rank's heads and tokens
  layout::Slice heads_;
  std::int64_t all_heads_;
  double scores_;  ///< number of scores that the mask allows
  std::int64_t layer_;
  bool crosses_;     ///< whether keys and values are the operation's second input
  bool of_encoder_;  ///< whether queries are tokens of the source
  /// Fields of the batch with the ranges of keys, if samples hold pairs of a source and a target;
  /// only with their ends, if the tokens of an image see one another.
  std::optional<std::size_t> key_begin_, key_end_;
  std::optional<RingAttention<T>> ring_;  ///< empty on a context axis of one rank
  View1<T> sinks_;                        // [H], or empty
  View1<typename P::Gradient> dsinks_;    // [H], or empty
};

}  // namespace trireme::model
