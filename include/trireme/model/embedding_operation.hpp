#pragma once

#include <trireme/model/operations.hpp>

#include <cstddef>
#include <optional>

namespace trireme::model {

/// x[t] = scale table[tokens[t]], or x[t] += table[segments[t]], or x[t] += table[p], where p is
/// the token's position in the sample or, for packed documents, in its document. Each tensor rank
/// looks up the ids of its part of the vocabulary; the sum over the axis is the result.
template <class P>
class EmbeddingOperation final : public LayerOperation<P> {
 public:
  using typename LayerOperation<P>::T;
  using G = typename P::Gradient;
  EmbeddingOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const StepCall<P>& call, const LayerOperation<P>* fused) const override;
  /// Indices have no gradient.
  void backward_input(const StepCall<P>&, const LayerOperation<P>*, bool) const override {}
  /// Adds to the table's gradient. The token table scales the gradient of x in place.
  void backward_weight(const StepCall<P>& call) const override;

 private:
  bool is_split() const { return this->op_.cut == architecture::Cut::inputs; }
  View1<const std::int32_t> ids(const StepCall<P>& call) const {
    return call.context.fields[*field_];
  }
  /// Positions of this rank's rows in their documents, or empty.
  View1<const std::int32_t> own_positions(const StepCall<P>& call) const;
  void scale(const StepCall<P>& call, View2<T> x) const;

  const TensorAxis& axis_;
  std::optional<std::size_t> field_;  ///< index of the field [T] of ids; none: positions
  std::int64_t sequence_;             ///< tokens of a sample on this rank
  double scale_;                      ///< factor of the table's rows
  std::int64_t first_id_;             ///< first index of this rank's part of the table
  View2<T> table_;                    // [V, D], [2, D] or [S, D]
  View2<G> dtable_;                   // gradient of table_; empty if frozen
};

}  // namespace trireme::model
