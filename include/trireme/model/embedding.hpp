#pragma once

#include <trireme/model/context.hpp>
#include <trireme/model/parameters.hpp>

namespace trireme::model {

/// x[t] = dropout(token[tokens[t]] + position[t mod S]).
template <class P>
class Embedding {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  Embedding(const Parameters<P>& parameters, const deck::ModelConfig& model);

  /// x [T, D], tokens [T].
  void forward(const Exec& exec, View2<T> x, View1<const std::int32_t> tokens,
               const MicroContext& context) const;
  /// Adds to the gradients of both tables; dx [T, D] is overwritten.
  void backward_weight(const Exec& exec, View2<T> dx, View1<const std::int32_t> tokens,
                       const MicroContext& context) const;
  /// One token per row, all at `position`: x [B, D].
  void decode(const Exec& exec, View2<T> x, View1<const std::int32_t> tokens,
              std::int64_t position) const;

  View2<T> table() const { return token_; }

 private:
  std::int64_t sequence_;
  View2<T> token_;      // [V, D]
  View2<T> position_;   // [S, D]
  View2<G> dtoken_;     // [V, D]
  View2<G> dposition_;  // [S, D]
};

}  // namespace trireme::model
