#pragma once

#include <trireme/model/context.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/model/tensor_axis.hpp>
#include <trireme/model/training_head.hpp>

namespace trireme::model {

/// x[t] = dropout(token[tokens[t]] + position[p] + segment[segments[t]]), where p is the token's
/// position in the sample or, for packed documents, in its document. Terms whose tables the model
/// does not have are omitted. With post-norm, dropout follows a norm in the first layer. With a
/// shared vocabulary, SharedVocabulary computes the look-up: x holds its rows before the forward
/// pass, and the token table's gradient is not added. Each tensor rank looks up the ids of its part
/// of the vocabulary; the sum over the axis is the result.
template <class P>
class Embedding {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  /// `axis` must outlive this object.
  Embedding(const Parameters<P>& parameters, const deck::ModelConfig& model,
            const TensorAxis& axis);

  /// x [R, D]: this rank's rows. `all` [T, D]: scratch if R is a part of T.
  void forward(const Exec& exec, View2<T> x, View2<T> all, BatchFields fields,
               const MicroContext& context) const;
  /// Adds to the gradients of the tables; dx [R, D] is overwritten.
  void backward_weight(const Exec& exec, View2<T> dx, View2<T> all, BatchFields fields,
                       const MicroContext& context) const;
  /// For generation, on whole rows: x [R, D] of the tokens at these positions.
  void decode(const Exec& exec, View2<T> x, View1<const std::int32_t> tokens,
              View1<const std::int32_t> positions) const;

 private:
  bool has_positions() const { return position_.data() != nullptr; }
  void scale(const Exec& exec, View2<T> x) const;
  /// Positions of this rank's rows in their documents.
  View1<const std::int32_t> own_positions(const MicroContext& context) const;
  bool has_segments() const { return segment_.data() != nullptr; }

  const TensorAxis& axis_;
  bool looks_up_;          ///< false with a shared vocabulary
  std::int64_t sequence_;  ///< tokens of a sample on this rank
  std::size_t tokens_;     ///< index of the field [T]
  std::size_t segments_;   ///< index of the field [T], if the model has the table
  bool drops_;             ///< dropout follows the look-up
  double scale_;           ///< factor of the token table's rows
  std::int64_t first_id_;  ///< first id of this rank's part of the vocabulary
  View2<T> token_;         // [V, D]
  View2<T> position_;      // [S, D], or empty
  View2<T> segment_;       // [2, D], or empty
  View2<G> dtoken_;        // [V, D]
  View2<G> dposition_;     // [S, D], or empty
  View2<G> dsegment_;      // [2, D], or empty
};

}  // namespace trireme::model
