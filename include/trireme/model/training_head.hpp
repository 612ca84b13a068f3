#pragma once

#include <trireme/model/context.hpp>
#include <trireme/model/logits.hpp>
#include <trireme/model/norm.hpp>
#include <trireme/model/tensor_axis.hpp>
#include <trireme/model/tensor_memory.hpp>

#include <memory>
#include <span>

namespace trireme::model {

/// The fields of a micro-batch by their index in the objective; empty if a stage does not read
/// them.
using BatchFields = std::span<const View1<std::int32_t>>;

/// Tensors of a training head. If the gradient is not computed with the losses, tensors that the
/// backward pass reads are in a slot; all others are scratch. Empty unless the head has them.
template <class P>
struct HeadTensors {
  using T = typename P::Compute;

  View2<T> picked;              // [N + B, D] rows of y, then their gradient
  View2<T> dense;               // [N, D]
  View2<T> activated;           // [N, D]
  View2<T> normed;              // [N, D], then gradients down to dense
  NormSaved<P> norm;            // [N]
  View2<T> pooled;              // [B, D]
  View2<T> dpooled;             // [B, D]
  View2<Accumulate<T>> scores;  // [B, 2]
  View2<T> dscores;             // [B, 2]: in the memory of scores if possible
  View1<double> losses;         // [B]
  View2<double> statistics;     // [B, 3]
  View2<double> merged;         // [B, 3]
  typename Logits<P>::Scratch logits;
};

template <class P>
HeadTensors<P> head_tensors(const TensorMemory<P>& memory);

/// Computes the objective's losses from the normalised output y of the last layer, and their
/// gradient in the pass of HeadGradient. Its batch fields and losses are numbered as in
/// architecture::TrainingObjective.
template <class P>
class TrainingHead {
 public:
  using T = typename P::Compute;

  TrainingHead() = default;
  TrainingHead(const TrainingHead&) = delete;
  TrainingHead& operator=(const TrainingHead&) = delete;
  virtual ~TrainingHead() = default;

  using Tensors = HeadTensors<P>;

  /// losses [terms] += Σ cross entropy of each term. With HeadGradient::with_losses also computes
  /// the results of `backward`. `all` [T, D]: scratch if R is a part of T.
  virtual void forward(const Handle& handle, View1<double> losses, View2<T> dy, View2<T> all,
                       const Tensors& tensors, BatchFields fields,
                       const MicroContext& context) const = 0;
  /// dy [R, D] holds y on entry and its gradient on return, scaled by the context. Adds the
  /// gradients of the head's own weights. Not for HeadGradient::with_losses.
  virtual void backward(const Handle& handle, View2<T> dy, View2<T> all, const Tensors& tensors,
                        BatchFields fields, const MicroContext& context) const = 0;
  /// The losses of the first `samples` samples, without gradients. `scores`: see MicroContext; only
  /// for an objective that predicts the next token.
  virtual void evaluate(const Handle& handle, View1<double> losses, View2<T> y, View2<T> all,
                        const Tensors& tensors, BatchFields fields, std::int64_t samples,
                        View2<double> scores) const = 0;
  /// logits [R, V] of the tokens that follow the rows y [R, D], for this rank's part of the
  /// vocabulary. Error if the objective does not predict these tokens.
  virtual void logits(const Handle& handle, View2<Accumulate<T>> logits,
                      View2<const T> y) const = 0;
};

/// Makes the head of the model's objective. `axis` must outlive it.
template <class P>
std::unique_ptr<TrainingHead<P>> make_training_head(const Parameters<P>& parameters,
                                                    const deck::ModelConfig& model,
                                                    const TensorAxis& axis,
                                                    architecture::HeadGradient gradient);

}  // namespace trireme::model
