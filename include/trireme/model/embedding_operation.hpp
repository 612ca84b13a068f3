#pragma once

#include <trireme/model/operations.hpp>

#include <cstddef>
#include <optional>

namespace trireme::model {

/// One of three look-ups: x[t] = scale · table[tokens[t]]; x[t] += table[segments[t]]; or x[t] +=
/// table[p], where p is the token's position in its sample, packed document or generated text. Each
/// tensor rank looks up the tokens in its part of the vocabulary, and x is the sum over the tensor
/// axis.
template <class P>
class EmbeddingOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  using G = typename P::Gradient;
  EmbeddingOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  /// Does nothing: indices have no gradient.
  void backward_input(const PassArguments<P>&, const BlockOperation<P>*, bool) const override {}
  /// Adds to the table's gradient. The look-up of tokens multiplies the gradient of x by the scale,
  /// in place.
  void backward_weight(const PassArguments<P>& call) const override;

 private:
  bool is_split() const { return this->op_.cut == architecture::Cut::inputs; }
  View1<const std::int32_t> ids(const PassArguments<P>& call) const {
    return call.context.fields[*field_];
  }
  /// This rank's part of MicroContext::positions; empty if the context has no positions.
  View1<const std::int32_t> own_positions(const PassArguments<P>& call) const;
  void scale(const PassArguments<P>& call, View2<T> x) const;

  const TensorAxis& axis_;
  std::optional<std::size_t> field_;  ///< index of the field [T] of ids; empty for positions
  bool of_source_;                    ///< whether the rows are those of a source
  std::int64_t sequence_;  ///< number of tokens of a sample, or of a source, on this rank
  double scale_;           ///< factor of the table's rows
  std::int64_t first_id_;  ///< first index of this rank's part of the table
  View2<T> table_;         // [V, D], [2, D] or [S, D]
  View2<G> dtable_;        // gradient of table_; empty if frozen
};

/// output = the table. In the backward pass, the gradient of the output, in the type of sums, is
/// added to that of the table.
template <class P>
class TableOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  TableOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>&, const BlockOperation<P>*, bool) const override {}
  void backward_weight(const PassArguments<P>& call) const override;

 private:
  View1<T> table_;
  View1<typename P::Gradient> dtable_;  ///< empty if frozen
};

}  // namespace trireme::model
