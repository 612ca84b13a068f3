#pragma once

#include <trireme/model/layer_values.hpp>
#include <trireme/model/linear.hpp>
#include <trireme/model/norm.hpp>
#include <trireme/model/product_adapter.hpp>
#include <trireme/model/tensor_axis.hpp>

#include <memory>
#include <optional>
#include <string>
#include <variant>

/// Execution of a layer's operations: one class per kind, with the passes of the description
/// (architecture/operation.hpp). Shapes are the shapes of the description's tensors.
namespace trireme::model {

/// Context of an operation in the model.
template <class P>
struct OperationPlace {
  const Parameters<P>& parameters;
  const architecture::Architecture& architecture;
  const TensorAxis& axis;
  const LayerPlan& plan;
  std::int64_t layer = 0;

  /// Full name of an array: "layers.3.attention.query".
  std::string array(const std::string& name) const {
    return architecture.block_of(layer).prefix + name;
  }
  const deck::ModelConfig& model() const { return architecture.model; }
};

template <class P>
class LayerOperation {
 public:
  using T = typename P::Compute;

  explicit LayerOperation(const architecture::Operation& operation) : op_(operation) {}
  virtual ~LayerOperation() = default;
  LayerOperation(const LayerOperation&) = delete;
  LayerOperation& operator=(const LayerOperation&) = delete;

  /// `fused`: another operation that the same kernel computes, or null; see architecture::Step.
  virtual void forward(const StepCall<P>& call, const LayerOperation* fused) const = 0;
  virtual void backward_input(const StepCall<P>& call, const LayerOperation* fused,
                              bool accumulate) const = 0;
  virtual void backward_weight(const StepCall<P>&) const {}
  /// Takes memory that keeps its values between passes.
  virtual void take_memory(Arena&) {}

 protected:
  const architecture::Operation op_;
};

template <class P>
std::unique_ptr<LayerOperation<P>> make_operation(const architecture::Operation& operation,
                                                  const OperationPlace<P>& place);

/// y = norm(x).
template <class P>
class NormOperation final : public LayerOperation<P> {
 public:
  using typename LayerOperation<P>::T;
  NormOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const StepCall<P>& call, const LayerOperation<P>* fused) const override;
  void backward_input(const StepCall<P>& call, const LayerOperation<P>* fused,
                      bool accumulate) const override;
  void backward_weight(const StepCall<P>& call) const override;
  /// sum = x + dropout(z), y = norm(sum), in one kernel.
  void forward_residual(const StepCall<P>& call, View2<T> sum, View2<const T> x, View2<const T> z,
                        const kernels::Dropout& site) const;

 private:
  NormSaved<P> saved(const StepCall<P>& call) const;

  const TensorAxis& axis_;
  std::variant<LayerNorm<P>, RmsNorm<P>> norm_;
  /// All tensor ranks have all rows (in a head); each sums a part of them for its weights.
  bool is_shared_;
};

/// out = x + dropout(z).
template <class P>
class ResidualOperation final : public LayerOperation<P> {
 public:
  ResidualOperation(const architecture::Operation& operation, const OperationPlace<P>& place)
      : LayerOperation<P>(operation), axis_(place.axis), layer_(place.layer) {}

  void forward(const StepCall<P>& call, const LayerOperation<P>* fused) const override;
  void backward_input(const StepCall<P>& call, const LayerOperation<P>* fused,
                      bool accumulate) const override;

 private:
  kernels::Dropout site(const MicroContext& context) const;

  const TensorAxis& axis_;
  std::int64_t layer_;
};

/// y = dropout(y), for embeddings that are normed first.
template <class P>
class DropoutOperation final : public LayerOperation<P> {
 public:
  DropoutOperation(const architecture::Operation& operation, const OperationPlace<P>& place)
      : LayerOperation<P>(operation), axis_(place.axis) {}

  void forward(const StepCall<P>& call, const LayerOperation<P>* fused) const override;
  void backward_input(const StepCall<P>& call, const LayerOperation<P>* fused,
                      bool accumulate) const override;

 private:
  const TensorAxis& axis_;
};

/// g = gelu(h), or with a gate g = silu(first half of h) · second half of h, or gelu instead of
/// silu.
template <class P>
class ActivationOperation final : public LayerOperation<P> {
 public:
  using typename LayerOperation<P>::T;
  ActivationOperation(const architecture::Operation& operation, const OperationPlace<P>& place)
      : LayerOperation<P>(operation),
        activation_(place.model().activation),
        gelu_(place.model().gelu) {}

  void forward(const StepCall<P>& call, const LayerOperation<P>* fused) const override;
  void backward_input(const StepCall<P>& call, const LayerOperation<P>* fused,
                      bool accumulate) const override;
  View2<T> input(const StepCall<P>& call) const { return call.values.matrix(this->op_.input); }
  View2<T> output(const StepCall<P>& call) const { return call.values.matrix(this->op_.output); }
  View2<T> input_gradient(const StepCall<P>& call) const {
    return call.values.gradient(this->op_.input);
  }
  Gelu form() const { return gelu_; }

 private:
  Activation activation_;
  Gelu gelu_;
};

/// y = x Wᵀ + bias, with outputs or inputs split by the tensor axis, and an adapter's update.
template <class P>
class LinearOperation final : public LayerOperation<P> {
 public:
  using typename LayerOperation<P>::T;
  LinearOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const StepCall<P>& call, const LayerOperation<P>* fused) const override;
  void backward_input(const StepCall<P>& call, const LayerOperation<P>* fused,
                      bool accumulate) const override;
  void backward_weight(const StepCall<P>& call) const override;
  void take_memory(Arena& arena) override {
    if (adapter_) adapter_->take_memory(arena);
  }

 private:
  void add_product(const StepCall<P>& call, View2<T> y, View2<const T> x, bool add_bias) const;
  void add_input_gradient(const StepCall<P>& call, View2<T> dx, View2<const T> dy) const;
  void add_weight_gradient(const StepCall<P>& call, View2<const T> dy, View2<const T> x) const;
  bool scales() const { return adapter_ && adapter_->scales(); }
  /// Scales of this operation's tensors, with products in fp8.
  std::optional<kernels::Fp8Linear> fp8(const StepCall<P>& call) const;

  const TensorAxis& axis_;
  Linear<P> linear_;
  std::optional<ProductAdapter<P>> adapter_;
  const Fp8Scaling* scaling_;  ///< null: no fp8
  std::int64_t fp8_tensor_ = 0;
  std::string input_forward_, input_backward_, input_again_;  // labels of messages
  std::string output_forward_, output_backward_;
};

}  // namespace trireme::model
