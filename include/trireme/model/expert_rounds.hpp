#pragma once

#include <trireme/kernels/experts.hpp>
#include <trireme/model/expert_operations.hpp>

#include <cstdint>

/// A mixture of experts in rounds ([experts] rows): the rows that chose the experts of a rank are
/// processed a bounded number at a time, and their inner rows are not kept.
namespace trireme::model {

/// rows [T', D]: the rows of the tokens that a rank receives, from all replicas that divide the
/// experts; without [parallel] expert, of all T tokens.
template <class P>
class DispatchOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  DispatchOperation(const architecture::Operation& operation, const OperationPlace<P>& place)
      : BlockOperation<P>(operation), axis_(place.axis), copies_(place.axis.experts()) {}

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;

 private:
  const TensorAxis& axis_;
  mutable ExpertCopies copies_;
};

/// The sums of rows [T', D] over the replicas and tensor ranks, on the ranks of their tokens: the
/// transpose of DispatchOperation.
template <class P>
class CombineOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  CombineOperation(const architecture::Operation& operation, const OperationPlace<P>& place)
      : BlockOperation<P>(operation), axis_(place.axis), copies_(place.axis.experts()) {}

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;

 private:
  const TensorAxis& axis_;
  mutable ExpertCopies copies_;
};

/// z [T', D] = for each row of x, the sum over its experts on this rank, ascending, of weight ·
/// down(activation(up(x))). backward_input also computes the gradients of the weights, because it
/// computes the inner rows again.
template <class P>
class ExpertRoundsOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  ExpertRoundsOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;

 private:
  /// Inner rows of a round, and their routes.
  struct Round {
    layout::Slice rows;  ///< among the routed rows of this rank
    View1<const std::int32_t> order;
    View2<T> h, g, dh, dg;
  };
  /// The rows of one expert in a round.
  struct Expert {
    std::int64_t number = 0;
    layout::Slice rows;  ///< among the rows of the round
    View1<const std::int32_t> order;
    View2<T> work;  // [rows.extent, D]
  };
  /// Calls use(round) for each round.
  template <class Use>
  void visit_rounds(const PassArguments<P>& call, Use&& use) const;
  /// Calls use(expert) for each expert with rows in the round, ascending.
  template <class Use>
  void visit(const PassArguments<P>& call, const Round& round, Use&& use) const;
  /// Computes h, and g = weight · activation(h).
  void compute_inner(const PassArguments<P>& call, const Round& round, View2<const T> x) const;
  /// Adds the gradients of the weights of `down`, and computes dg.
  void go_back_through_down(const PassArguments<P>& call, const Round& round, View2<const T> dz,
                            View2<Accumulate<T>> of_weights) const;
  /// The T' rows of tokens in the memory of x or z.
  template <class View>
  View of_tokens(const PassArguments<P>& call, View all) const;

  /// Whether the product with `down` has a bias, which the weights multiply.
  bool weighs_bias() const { return down_.b.extent(0) > 0; }

  const TensorAxis& axis_;
  Linear<P> up_, down_;    ///< of all experts of this rank, below one another
  bool adds_bias_ = true;  ///< see adds_bias()
  ActivationFunction<P> function_;
  std::int64_t active_ = 1;
  mutable RoutedRows routed_;
  mutable ExpertCopies copies_;
};

}  // namespace trireme::model
