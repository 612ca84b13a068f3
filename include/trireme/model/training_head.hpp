#pragma once

#include <trireme/model/context.hpp>
#include <trireme/model/tensor_axis.hpp>
#include <trireme/model/tensor_memory.hpp>

#include <memory>
#include <span>

namespace trireme::model {

/// The fields of a micro-batch by their number in the objective; empty where a stage does not read
/// them.
using BatchFields = std::span<const View1<std::int32_t>>;

/// Computes the objective's losses from the normalised output y of the last layer and, in the same
/// pass, their gradient. Its batch fields and losses are numbered as in
/// architecture::TrainingObjective.
template <class P>
class TrainingHead {
 public:
  using T = typename P::Compute;

  TrainingHead() = default;
  TrainingHead(const TrainingHead&) = delete;
  TrainingHead& operator=(const TrainingHead&) = delete;
  virtual ~TrainingHead() = default;

  /// Takes the memory used within one pass; required before training and evaluation.
  virtual void take_scratch(const TensorMemory<P>& memory) = 0;

  /// losses [terms] += Σ cross entropy of each term. dy [R, D] holds y on entry and its gradient on
  /// return, scaled by the context. Adds the gradients of the head's own weights. `all` [T, D]:
  /// scratch if R is a part of T.
  virtual void forward(const Handle& handle, View1<double> losses, View2<T> dy, View2<T> all,
                       BatchFields fields, const MicroContext& context) const = 0;
  /// The losses of the first `samples` samples, without gradients.
  virtual void evaluate(const Handle& handle, View1<double> losses, View2<T> y, View2<T> all,
                        BatchFields fields, std::int64_t samples) const = 0;
  /// logits [B, V] of the tokens that follow the rows y [B, D], on one tensor rank. Error if the
  /// objective does not predict them.
  virtual void logits(const Handle& handle, View2<Accumulate<T>> logits,
                      View2<const T> y) const = 0;
};

/// The head of the model's objective. `axis` must outlive it.
template <class P>
std::unique_ptr<TrainingHead<P>> make_training_head(const Parameters<P>& parameters,
                                                    const deck::ModelConfig& model,
                                                    const TensorAxis& axis);

}  // namespace trireme::model
