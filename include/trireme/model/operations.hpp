#pragma once

#include <trireme/kernels/arithmetic.hpp>
#include <trireme/model/block_values.hpp>
#include <trireme/model/linear.hpp>
#include <trireme/model/norm.hpp>
#include <trireme/model/product_adapter.hpp>
#include <trireme/model/tensor_axis.hpp>

#include <memory>
#include <optional>
#include <string>
#include <variant>

/// Execution of a block's operations, by classes with one function per pass.
/// architecture/operation.hpp describes the operations and the shapes of their tensors.
namespace trireme::model {

/// The objects from which an operation is constructed. `block`: number of the block in
/// Architecture::blocks.
template <class P>
struct OperationPlace {
  const Parameters<P>& parameters;
  const architecture::Architecture& architecture;
  const TensorAxis& axis;       ///< for the block's stream
  const TensorAxis& main_axis;  ///< for the model's tokens
  const BlockPlan& plan;
  std::int64_t block = 0;
  /// Number 0 … L−1 of the layer.
  std::int64_t layer() const { return block - architecture::block_of_layer(0); }

  /// Full name of an array, for example "layers.3.attention.query".
  std::string array(const std::string& name) const {
    return architecture.block(block).prefix + name;
  }
  const deck::ModelConfig& model() const { return architecture.model_of(plan.description.stream); }
  /// Whether a tensor has rows of the source, and the axis for its rows.
  bool is_of_source(int tensor) const {
    const architecture::Rows& rows = plan.description.tensors[architecture::at(tensor)].rows;
    return plan.description.stream == architecture::Stream::source ||
           rows == architecture::Rows::source_own || rows == architecture::Rows::source_tokens;
  }
  const TensorAxis& axis_of(int tensor) const {
    return is_of_source(tensor) ? main_axis.of(architecture::Stream::source) : axis;
  }
};

/// Columns of a tensor on a rank.
template <class P>
std::int64_t columns_of(int tensor, const OperationPlace<P>& place) {
  const auto& tensors = place.plan.description.tensors;
  return architecture::columns_of(tensors[static_cast<std::size_t>(tensor)].columns,
                                  place.plan.sizes);
}

/// The function that takes most of the arithmetic of a pass besides products, and the number of its
/// evaluations.
struct Evaluations {
  kernels::Arithmetic function;
  double count;
};

template <class P>
class BlockOperation {
 public:
  using T = typename P::Compute;

  explicit BlockOperation(const architecture::Operation& operation) : op_(operation) {}
  virtual ~BlockOperation() = default;
  BlockOperation(const BlockOperation&) = delete;
  BlockOperation& operator=(const BlockOperation&) = delete;

  /// `fused`: another operation that the same call computes, or null. `accumulate`: add to the
  /// gradient of the input, for operations whose rule has adds_gradient.
  virtual void forward(const PassArguments<P>& call, const BlockOperation* fused) const = 0;
  virtual void backward_input(const PassArguments<P>& call, const BlockOperation* fused,
                              bool accumulate) const = 0;
  virtual void backward_weight(const PassArguments<P>&) const {}
  /// Evaluations in any pass; empty if a pass has only a few multiplications per element.
  virtual std::optional<Evaluations> evaluations(const PassArguments<P>&) const { return {}; }
  /// Takes memory from the arena for values that are valid in several passes.
  virtual void take_memory(Arena&) {}

 protected:
  /// Random words for a dropout mask of the output; empty without dropout.
  std::optional<Evaluations> mask_words(const PassArguments<P>& call) const {
    if (call.context.dropout == 0) return {};
    return Evaluations{kernels::Arithmetic::random_word,
                       static_cast<double>(call.values.matrix(op_.output).size())};
  }

  const architecture::Operation op_;
};

template <class P>
std::unique_ptr<BlockOperation<P>> make_operation(const architecture::Operation& operation,
                                                  const OperationPlace<P>& place);

/// y = norm(x).
template <class P>
class NormOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  NormOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;
  void backward_weight(const PassArguments<P>& call) const override;
  /// sum = x + dropout(z), y = norm(sum), in one kernel.
  void forward_residual(const PassArguments<P>& call, View2<T> sum, View2<const T> x,
                        View2<const T> z, const kernels::Dropout& site) const;

 private:
  NormSaved<P> saved(const PassArguments<P>& call) const;

  const TensorAxis& axis_;
  std::variant<LayerNorm<P>, RmsNorm<P>> norm_;
  /// Whether all tensor ranks have all rows, as in a head.
  bool is_shared_;
};

/// out = x + dropout(z).
template <class P>
class ResidualOperation final : public BlockOperation<P> {
 public:
  ResidualOperation(const architecture::Operation& operation, const OperationPlace<P>& place)
      : BlockOperation<P>(operation), axis_(place.axis), layer_(place.layer()) {}

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;
  std::optional<Evaluations> evaluations(const PassArguments<P>& call) const override {
    return this->mask_words(call);
  }

 private:
  kernels::Dropout site(const MicroContext& context) const;

  const TensorAxis& axis_;
  std::int64_t layer_;
};

/// y = dropout(y), in place: dropout of the embedding, in post-norm models after the first norm.
template <class P>
class DropoutOperation final : public BlockOperation<P> {
 public:
  DropoutOperation(const architecture::Operation& operation, const OperationPlace<P>& place)
      : BlockOperation<P>(operation),
        axis_(place.axis_of(operation.output)),
        source_tokens_(place.is_of_source(operation.output) ? place.model().encoder.sequence : 0) {}

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;
  std::optional<Evaluations> evaluations(const PassArguments<P>& call) const override {
    return this->mask_words(call);
  }

 private:
  kernels::Dropout site(const MicroContext& context) const;

  const TensorAxis& axis_;
  std::int64_t source_tokens_;  ///< tokens of a sample's source, if its rows are dropped; else 0
};

/// e = value; value = h. In the backward pass, the gradient of the value is added to that of h, and
/// becomes that of e.
template <class P>
class SwapOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  using BlockOperation<P>::BlockOperation;

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;
};

/// g = gelu(h); with a gate, g = silu(h₁) h₂ (SwiGLU, also with clamped factors) or g = gelu(h₁) h₂
/// (GeGLU), where h₁ and h₂ are the two halves of each row of h.
template <class P>
class ActivationFunction {
 public:
  using T = typename P::Compute;
  explicit ActivationFunction(Gelu form) : activation_(Activation::gelu), gelu_(form), limit_(0) {}
  explicit ActivationFunction(const deck::ModelConfig& model)
      : activation_(model.activation), gelu_(model.gelu), limit_(model.activation_limit) {}

  /// g [N, F], h [N, F] or [N, 2F].
  void forward(const Handle& handle, View2<T> g, View2<const T> h) const;
  /// dh = dg · ∂g/∂h. dh and h as h, dg as g in forward().
  void backward(const Handle& handle, View2<T> dh, View2<const T> dg, View2<const T> h) const;
  /// Evaluations for `number` elements of g in one pass; none for ReLU, which needs no function.
  std::optional<Evaluations> evaluations(double number) const;
  Gelu form() const { return gelu_; }

 private:
  Activation activation_;
  Gelu gelu_;
  double limit_;
};

/// g = activation(h).
template <class P>
class ActivationOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  ActivationOperation(const architecture::Operation& operation, const OperationPlace<P>& place)
      : BlockOperation<P>(operation),
        function_(operation.gelu ? ActivationFunction<P>(*operation.gelu)
                                 : ActivationFunction<P>(place.model())) {}

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;
  std::optional<Evaluations> evaluations(const PassArguments<P>& call) const override;
  View2<T> input(const PassArguments<P>& call) const {
    return call.values.matrix(this->op_.input());
  }
  View2<T> output(const PassArguments<P>& call) const {
    return call.values.matrix(this->op_.output);
  }
  View2<T> input_gradient(const PassArguments<P>& call) const {
    return call.values.gradient(this->op_.input());
  }
  Gelu form() const { return function_.form(); }

 private:
  ActivationFunction<P> function_;
};

/// y = x Wᵀ + bias, plus the update of an adapter, if the product has one. The tensor axis splits
/// the outputs or the inputs of the product.
template <class P>
class LinearOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  LinearOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;
  void backward_weight(const PassArguments<P>& call) const override;
  void take_memory(Arena& arena) override {
    if (adapter_) adapter_->take_memory(arena);
  }

 private:
  void add_product(const PassArguments<P>& call, View2<T> y, View2<const T> x, bool add_bias) const;
  void add_input_gradient(const PassArguments<P>& call, View2<T> dx, View2<const T> dy) const;
  void add_weight_gradient(const PassArguments<P>& call, View2<const T> dy, View2<const T> x) const;
  bool scales() const { return adapter_ && adapter_->scales(); }
  /// Scales of this operation's tensors, and memory, for products in fp8; empty without fp8.
  std::optional<kernels::Fp8Linear> fp8(const PassArguments<P>& call) const;

  const TensorAxis& axis_;
  Linear<P> linear_;
  std::optional<ProductAdapter<P>> adapter_;
  const Fp8Scaling* scaling_;  ///< null: no fp8
  std::int64_t fp8_tensor_ = 0;
  std::string input_forward_, input_backward_, input_again_;  // labels of messages
  std::string output_forward_, output_backward_;
};

}  // namespace trireme::model
