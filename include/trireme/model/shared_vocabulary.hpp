#pragma once

#include <trireme/model/context.hpp>
#include <trireme/model/tensor_axis.hpp>
#include <trireme/model/tensor_memory.hpp>

#include <cstddef>
#include <functional>
#include <vector>

namespace trireme::model {

/// A rank's part of a vocabulary that all pipeline ranks share: look-up, logits and their
/// gradients. look_up(), look_up_gradient(), logits() and output_gradient() are collective on the
/// tensor axis. The caller sends the messages over the pipeline axis: statistics, and slices [T /
/// tensor ranks, D] with this tensor rank's part of the tokens. See schedule::share_vocabulary().
template <class P>
class SharedVocabulary {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  /// Values kept from `logits` to `logits_gradient`.
  struct Slot {
    View1<std::int32_t> targets;  // [N]
    View2<T> y;                   // [T, D] the last stage's output
    View2<T> softmax;      // [N, Vl]; [rows of a block, Vl] in scratch if logits are recomputed
    View2<double> own;     // [N, 3] statistics of this rank's part of the vocabulary
    View2<double> merged;  // [N, 3] statistics of the whole vocabulary
  };

  /// Called between kernels to progress messages in flight.
  using Between = std::function<void()>;

  /// `axis` must outlive this object.
  SharedVocabulary(const Parameters<P>& parameters, const deck::ModelConfig& model,
                   const TensorAxis& axis, architecture::HeadGradient gradient);

  void take_scratch(Arena& arena, const architecture::RankSizes& sizes);
  /// Takes a slot's memory. Call take_scratch first.
  Slot take_slot(Arena& arena, const architecture::RankSizes& sizes) const;
  /// Ids of the micro-batch [T]; fill them before look_up and before look_up_gradient.
  View1<std::int32_t> tokens() const { return tokens_; }

  /// slice = this tensor rank's slice of scale · the token table's rows, for tokens that this
  /// pipeline rank's tensor ranks hold; 0 for other tokens.
  void look_up(const Exec& exec, View2<T> slice) const;
  /// Adds to the token table's gradient. `slice`: this tensor rank's slice of the gradient dx of
  /// the look-up.
  void look_up_gradient(const Exec& exec, View2<T> slice) const;

  /// Fills y and `own` of the slot from the slices of y; the slot's targets must be set. With
  /// `gradient`, also fills the slot's softmax and the scratch of output_gradient(), which must be
  /// called before the next logits(). `statistics` [N, 3] receives the merged statistics of all
  /// tensor ranks.
  void logits(const Handle& handle, const Slot& slot, View2<T> slice, View2<double> statistics,
              bool gradient, const Between& between) const;
  /// Sets slot.merged from the statistics [p, N, 3] of all pipeline ranks. loss [1] += Σ cross
  /// entropy of the first `rows` rows. `scores`: see MicroContext. If `loss` is an empty view, loss
  /// and scores are not computed.
  void combine(const Handle& handle, const Slot& slot, View3<const double> statistics,
               View1<double> loss, std::int64_t rows, View2<double> scores = {}) const;
  /// slice = this tensor rank's slice of the pipeline rank's contribution to the gradient of y.
  void output_gradient(const Handle& handle, const Slot& slot, View2<T> slice,
                       const MicroContext& context) const;
  /// Adds to the gradient of the output table. Overwrites the slot's softmax.
  void logits_gradient(const Handle& handle, const Slot& slot, const MicroContext& context,
                       const Between& between) const;

 private:
  struct Block {
    std::int64_t first = 0;
    View2<Accumulate<T>> logits;
    View2<T> softmax;
    View1<const std::int32_t> targets;
    View2<double> own;
    View2<double> merged;
    View2<T> y;
  };
  /// Calls `use` with each block of rows.
  template <class Use>
  void visit_blocks(const Slot& slot, const Use& use) const;
  void block_logits(const Handle& handle, const Block& block) const;

  const TensorAxis& axis_;
  bool again_;
  std::int64_t vocabulary_;  ///< number of ids in all parts
  double scale_;             ///< factor of the token table's rows
  double cap_;               ///< soft cap of the logits; 0: none
  std::int64_t first_id_;
  View2<T> token_;    // [Vl, D]
  View2<G> dtoken_;   // [Vl, D]
  View2<T> output_;   // [Vl, D]: the token table if embeddings are tied
  View2<G> doutput_;  // [Vl, D]: not dtoken_, even if embeddings are tied

  architecture::BlockDescription description_;
  std::vector<std::byte*> scratch_;  ///< memory by index of a tensor in description_
  View1<std::int32_t> tokens_;       // [T]
  View2<Accumulate<T>> logits_;      // [rows of a block, Vl]
  View1<double> losses_;             // [N]
  View1<double> statistics_;         // [tensor ranks · N · 3]
  View2<T> dy_;                      // [T, D]
  View2<T> rows_;                    // [T, D]
};

}  // namespace trireme::model
