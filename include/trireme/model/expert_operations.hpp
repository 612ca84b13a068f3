#pragma once

#include <trireme/kernels/expert_copies.hpp>
#include <trireme/kernels/experts.hpp>
#include <trireme/model/linear.hpp>
#include <trireme/model/operations.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// Operations of a mixture of experts (Shazeer et al. 2017, arXiv 1701.06538). Every tensor rank
/// has the choices of all T tokens, and computes the rows of the E' experts that it holds. With
/// [parallel] expert, it also receives the tokens of other replicas that chose its experts.
namespace trireme::model {

/// logits [R, E] = y Wᵀ + bias, in the type of the output: the product of a router, or of rows of
/// latent attention.
template <class P>
class RowProductOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  RowProductOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;
  void backward_weight(const PassArguments<P>& call) const override;

 private:
  Linear<P> linear_;
  bool is_wide_;  ///< the output has the type of sums
};

/// routes [T', 2k]: the k experts of each received token and their weights, from the router's
/// logits. Without [parallel] expert, T' = T.
template <class P>
class ChoiceOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  ChoiceOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;

 private:
  /// Adds the losses of this rank's rows to the context's losses, and their gradients to `dlogits`
  /// unless it is empty.
  void add_losses(const PassArguments<P>& call, View2<Accumulate<T>> dlogits) const;
  /// Number of this rank's rows whose losses and choices count: 0 if another rank counts them.
  std::int64_t counted_rows(const PassArguments<P>& call) const;
  /// Adds this rank's choices to the numbers of tokens of the layer's experts, in a backward pass
  /// also to the gradients of the bias and of the load.
  void add_counts(const PassArguments<P>& call) const;
  /// The choices of this replica's tokens.
  View2<Accumulate<T>> token_routes(const PassArguments<P>& call) const {
    return call.values.sums(axis_.experts().divides()
                                ? this->op_.saved[architecture::choice::token_routes]
                                : this->op_.output);
  }
  /// MicroContext::sample_tokens of this rank's rows.
  View1<const std::int32_t> own_sample_tokens(const PassArguments<P>& call) const;
  /// With [experts] capacity: drops choices of this replica's samples. Collective among the context
  /// ranks.
  void drop(const PassArguments<P>& call, View2<Accumulate<T>> routes) const;
  /// Sends the choices to the replicas with the experts. Returns the received choices.
  View2<Accumulate<T>> exchange(const PassArguments<P>& call) const;
  /// Adds the losses of rows to a sum of the objective's losses.
  void add_sum(const PassArguments<P>& call, View1<double> rows, std::int64_t sum) const;

  const TensorAxis& axis_;
  kernels::ExpertChoice choice_;
  kernels::ExpertParts parts_;
  mutable ExpertCopies copies_;
  View1<T> bias_;                                    // [E], or empty
  View1<T> load_;                                    // [E], or empty
  std::vector<View1<typename P::Gradient>> counts_;  ///< [E] each: of the bias and of the load
  layout::Slice held_;                               ///< experts of this rank
  deck::ExpertsConfig experts_;
  std::int64_t sequence_;
  std::int64_t balance_sum_ = -1, z_sum_ = -1;  ///< in the objective's sums; −1: none
  std::int64_t counts_sum_;                     ///< likewise: the layer's first expert
  std::int64_t dropped_sum_ = -1;               ///< likewise; −1: no choice is dropped
};

/// Whether this rank adds the weighed biases of its experts. If tensor ranks split every expert,
/// one of them does.
template <class P>
bool adds_bias(const OperationPlace<P>& place) {
  return !place.model().experts.split || place.parameters.shard().tensor_rank == 0;
}

/// The routes to the experts of a rank, as ChoiceOperation sorted them, on the host. Waits for the
/// device.
class RoutedRows {
 public:
  /// `most`: planned rows.
  RoutedRows(std::int64_t experts, std::int64_t most)
      : bounds_(static_cast<std::size_t>(experts) + 1), most_(most) {}

  /// Reads the bounds of the experts' rows. Returns the number of rows. Error if there are more
  /// rows than planned.
  std::int64_t read(const Exec& exec, View1<std::int32_t> bounds);
  /// Rows of expert `expert` of this rank.
  layout::Slice rows(std::int64_t expert) const {
    const auto e = static_cast<std::size_t>(expert);
    return {bounds_[e], bounds_[e + 1] - bounds_[e]};
  }
  std::int64_t experts() const { return std::ssize(bounds_) - 1; }

 private:
  std::vector<std::int32_t> bounds_;
  std::int64_t most_;
};

/// A matrix product whose rows are multiplied by the weights of their own experts. With split
/// outputs (`Cut::outputs`), the input has a row per token, and the output a row per route. With
/// split inputs, it is the reverse: the rows of a token are summed, ascending by expert and then
/// over the tensor ranks.
template <class P>
class ExpertProductOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  ExpertProductOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;
  void backward_weight(const PassArguments<P>& call) const override;

 private:
  /// Indices in Operation::inputs and Operation::scratch.
  struct Input {
    static constexpr std::size_t order = 1, bounds = 2, sent = 3, copy_bounds = 4, weights = 5;
  };
  struct Work {
    static constexpr std::size_t rows = 0, sums = 1, sent_rows = 2, received_rows = 3;
  };
  /// The weights of one expert, its rows, and memory for a row of each of its tokens.
  struct Expert {
    View2<T> weights;  // [N, M]
    View1<T> bias;     // [N], or empty
    View2<typename P::Gradient> gradient;
    View1<typename P::Gradient> bias_gradient;
    layout::Slice routed;
    View1<const std::int32_t> order;
    View2<T> rows;  // [routed.extent, D]
  };
  /// Calls use(expert) for each expert with rows, ascending.
  template <class Use>
  void visit(const PassArguments<P>& call, Use&& use) const;
  /// The rows [T', D] of the received tokens, from the rows of this replica's T tokens.
  View2<T> received(const PassArguments<P>& call, View2<T> rows, const std::string& what) const;
  View1<const std::int32_t> copied(const PassArguments<P>& call) const {
    return flat(call.values.template numbers<std::int32_t>(this->op_.inputs[Input::sent]));
  }
  /// Reads the bounds of the copies. Returns the number T' of received tokens.
  std::int64_t read_copies(const PassArguments<P>& call) const;
  /// to [R, D] = the sums of each token's rows over all experts of all ranks. `product` computes
  /// the rows of an expert.
  template <class Use>
  void sum(const PassArguments<P>& call, View2<T> to, const std::string& what, Use&& product) const;

  /// Whether the bias of a row is multiplied by the weight of its expert.
  bool weighs_bias() const { return this->op_.inputs.size() > Input::weights; }
  View2<Accumulate<T>> weights(const PassArguments<P>& call) const {
    return call.values.sums(this->op_.inputs[Input::weights]);
  }

  const TensorAxis& axis_;
  std::int64_t outputs_ = 0;  ///< N, rows of an expert's weights
  Linear<P> linear_;          ///< the weights of all experts of this rank, below one another
  bool adds_bias_ = true;     ///< see adds_bias(), for weighed biases
  std::int64_t active_ = 1;
  mutable RoutedRows routed_;
  mutable ExpertCopies copies_;
  std::string input_forward_, input_backward_, input_again_;  // labels of messages
  std::string output_forward_, output_backward_;
};

/// z = sigmoid(logit) z, row by row, in place.
template <class P>
class GateOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  GateOperation(const architecture::Operation& operation, const OperationPlace<P>& place)
      : BlockOperation<P>(operation), axis_(place.axis) {}

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;

 private:
  const TensorAxis& axis_;
};

/// z += y, in place.
template <class P>
class AddOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  AddOperation(const architecture::Operation& operation, const OperationPlace<P>& place)
      : BlockOperation<P>(operation), axis_(place.axis) {}

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;

 private:
  const TensorAxis& axis_;
};

/// g = weight · activation(h), row by row.
template <class P>
class ExpertActivationOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  ExpertActivationOperation(const architecture::Operation& operation,
                            const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;
  std::optional<Evaluations> evaluations(const PassArguments<P>& call) const override;

 private:
  View1<const std::int32_t> order(const PassArguments<P>& call) const;

  ActivationFunction<P> function_;
  bool adds_;  ///< whether another operation has written gradients of the weights before
  mutable RoutedRows routed_;
  std::int64_t rows_;  ///< number of rows if all experts are used equally
};

}  // namespace trireme::model
