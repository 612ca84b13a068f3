// Passes of each kind of operation: kernel calls, and messages of the tensor axis.
#include <trireme/architecture/fp8.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/model/attention_operations.hpp>
#include <trireme/model/embedding_operation.hpp>
#include <trireme/model/expert_operations.hpp>
#include <trireme/model/expert_rounds.hpp>
#include <trireme/model/image_operations.hpp>
#include <trireme/model/logits.hpp>

namespace trireme::model {

// ---- norm

namespace {

/// LayerNorm if means are saved, otherwise RMSNorm.
template <class P>
Norm<P> make_norm(const architecture::Operation& op, const OperationPlace<P>& place) {
  const std::string name = place.array(op.name);
  const std::int64_t columns = op.arrays.front().shape.front();
  const double epsilon = op.epsilon > 0 ? op.epsilon : place.model().norm_epsilon;
  if (op.saved.size() == 2) return LayerNorm<P>(place.parameters, name, columns, epsilon);
  return RmsNorm<P>(place.parameters, name, columns, epsilon, place.model().gain_offset());
}

}  // namespace

template <class P>
NormOperation<P>::NormOperation(const architecture::Operation& operation,
                                const OperationPlace<P>& place)
    : BlockOperation<P>(operation),
      axis_(place.axis),
      norm_(make_norm(operation, place)),
      is_shared_(is_shared(place.plan.description, operation.input())) {}

template <class P>
NormSaved<P> NormOperation<P>::saved(const PassArguments<P>& c) const {
  NormSaved<P> s;
  if (this->op_.saved.size() == 2) s.mean = c.values.list(this->op_.saved.front());
  s.inverse = c.values.list(this->op_.saved.back());
  return s;
}

/// y = gain (x − mean) / deviation + bias; for RMSNorm y = (offset + gain) x / rms(x).
template <class P>
void NormOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  const auto& v = c.values;
  if (is_shared_ && v.matrix(this->op_.input()).extent(0) == 0) return;
  std::visit(
      [&](const auto& norm) {
        norm.forward(c.handle, v.matrix(this->op_.output), saved(c), v.matrix(this->op_.input()));
      },
      norm_);
}

template <class P>
void NormOperation<P>::forward_residual(const PassArguments<P>& c, View2<T> sum, View2<const T> x,
                                        View2<const T> z, const kernels::Dropout& site) const {
  std::visit(
      [&](const auto& norm) {
        norm.forward_residual(c.handle, c.values.matrix(this->op_.output), saved(c), sum, x, z,
                              site);
      },
      norm_);
}

template <class P>
void NormOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                      bool accumulate) const {
  const auto& v = c.values;
  const View2<T> gradient = v.gradient(this->op_.input());
  if (is_shared_ && gradient.extent(0) == 0) return;
  const View2<T> dx = is_shared_ ? gradient : axis_.own_part(gradient);
  std::visit(
      [&](const auto& norm) {
        norm.backward_input(c.handle, dx, v.gradient(this->op_.output), saved(c),
                            v.matrix(this->op_.input()), accumulate);
      },
      norm_);
}

template <class P>
void NormOperation<P>::backward_weight(const PassArguments<P>& c) const {
  View2<const T> dy = c.values.gradient(this->op_.output);
  View2<const T> x = c.values.matrix(this->op_.input());
  NormSaved<P> s = saved(c);
  if (is_shared_) {
    if (x.extent(0) == 0) return;
    const layout::Slice mine = axis_.own_of_shared(extent(x, 0));
    dy = part(dy, mine);
    x = part(x, mine);
    s = {part(s.mean, mine), part(s.inverse, mine)};
  }
  std::visit([&](const auto& norm) { norm.backward_weight(c.handle, dy, s, x); }, norm_);
}

// ---- residual addition and dropout

template <class P>
kernels::Dropout ResidualOperation<P>::site(const MicroContext& c) const {
  const auto stream = static_cast<std::uint32_t>(this->op_.dropout_site + 2 * layer_);
  return c.dropout_site(stream, axis_.places());
}

template <class P>
void ResidualOperation<P>::forward(const PassArguments<P>& c,
                                   const BlockOperation<P>* fused) const {
  const View2<typename P::Compute> sum = c.values.matrix(this->op_.output);
  const View2<typename P::Compute> x = c.values.matrix(this->op_.inputs[1]);
  const View2<typename P::Compute> z = c.values.matrix(this->op_.input());
  if (fused != nullptr)
    static_cast<const NormOperation<P>&>(*fused).forward_residual(c, sum, x, z, site(c.context));
  else
    kernels::residual_dropout_forward<typename P::Compute>(c.handle, sum, x, z, site(c.context));
}

template <class P>
void ResidualOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                          bool) const {
  const View2<typename P::Compute> dz = c.values.gradient(this->op_.input());
  kernels::dropout_backward<typename P::Compute>(
      c.handle, axis_.own_part(dz), c.values.gradient(this->op_.output), site(c.context));
}

// ---- swap

template <class P>
void SwapOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  const View1<T> value = flat(c.values.matrix(this->op_.inputs[1]));
  kernels::copy<T>(c.handle, flat(c.values.matrix(this->op_.output)), value);
  kernels::copy<T>(c.handle, value, flat<const T>(c.values.matrix(this->op_.input())));
}

template <class P>
void SwapOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                      bool accumulate) const {
  const View1<T> value = flat(c.values.gradient(this->op_.inputs[1]));
  const View1<T> dh = flat(c.values.gradient(this->op_.input()));
  if (accumulate)
    kernels::accumulate<T>(c.handle, dh, value);
  else
    kernels::copy<T>(c.handle, dh, value);
  kernels::copy<T>(c.handle, value, flat<const T>(c.values.gradient(this->op_.output)));
}

template <class P>
kernels::Dropout DropoutOperation<P>::site(const MicroContext& c) const {
  if (source_tokens_ == 0) return c.dropout_site(0, axis_.places());
  MicroContext of_source = c;
  of_source.sequence = source_tokens_;
  return of_source.dropout_site(architecture::source_site, axis_.places());
}

template <class P>
void DropoutOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  const View2<typename P::Compute> y = c.values.matrix(this->op_.output);
  kernels::dropout_forward<typename P::Compute>(c.handle, y, y, site(c.context));
}

template <class P>
void DropoutOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                         bool) const {
  const View2<typename P::Compute> dy = c.values.gradient(this->op_.output);
  kernels::dropout_backward<typename P::Compute>(c.handle, dy, dy, site(c.context));
}

// ---- activation

template <class P>
void ActivationFunction<P>::forward(const Handle& handle, View2<T> g, View2<const T> h) const {
  switch (activation_) {
    case Activation::gelu:
      return kernels::gelu_forward<T>(handle, g, h, gelu_);
    case Activation::relu:
      return kernels::relu_forward<T>(handle, g, h);
    case Activation::swiglu:
      return kernels::swiglu_forward<T>(handle, g, h);
    case Activation::geglu:
      return kernels::geglu_forward<T>(handle, g, h, gelu_);
    case Activation::clamped_swiglu:
      return kernels::clamped_swiglu_forward<T>(handle, g, h, limit_);
  }
}

template <class P>
void ActivationFunction<P>::backward(const Handle& handle, View2<T> dh, View2<const T> dg,
                                     View2<const T> h) const {
  switch (activation_) {
    case Activation::gelu:
      return kernels::gelu_backward<T>(handle, dh, dg, h, gelu_);
    case Activation::relu:
      return kernels::relu_backward<T>(handle, dh, dg, h);
    case Activation::swiglu:
      return kernels::swiglu_backward<T>(handle, dh, dg, h);
    case Activation::geglu:
      return kernels::geglu_backward<T>(handle, dh, dg, h, gelu_);
    case Activation::clamped_swiglu:
      return kernels::clamped_swiglu_backward<T>(handle, dh, dg, h, limit_);
  }
}

template <class P>
std::optional<Evaluations> ActivationFunction<P>::evaluations(double number) const {
  using kernels::Arithmetic;
  if (activation_ == Activation::relu) return std::nullopt;
  const bool of_gelu = activation_ == Activation::gelu || activation_ == Activation::geglu;
  if (!of_gelu || gelu_ == Gelu::quick) return Evaluations{Arithmetic::exponential, number};
  return Evaluations{
      gelu_ == Gelu::exact ? Arithmetic::error_function : Arithmetic::hyperbolic_tangent, number};
}

/// In layers, this pass is not fused with the preceding product: a fused kernel would apply GELU
/// before h is rounded. g may be recomputed from the rounded h, and must then have the same bits.
template <class P>
void ActivationOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  function_.forward(c.handle, c.values.matrix(this->op_.output), input(c));
}

template <class P>
void ActivationOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                            bool) const {
  const View2<T> dg = c.values.gradient(this->op_.output);
  const View2<T> dh = input_gradient(c);
  if (dg.extent(0) == 0) return;  // a head on a context rank without targets
  function_.backward(c.handle, dh, dg, input(c));
}

template <class P>
std::optional<Evaluations> ActivationOperation<P>::evaluations(const PassArguments<P>& c) const {
  return function_.evaluations(static_cast<double>(output(c).size()));
}

// ---- matrix product

template <class P>
LinearOperation<P>::LinearOperation(const architecture::Operation& op,
                                    const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      axis_(place.axis_of(op.input())),
      linear_(place.parameters, place.array(op.arrays.front().name),
              op.bias().empty() ? "" : place.array(op.bias()), columns_of(op.output, place),
              columns_of(op.input(), place)),
      scaling_(place.plan.fp8),
      input_forward_(op.name + ", input, forward"),
      input_backward_(op.name + ", input, backward"),
      input_again_(op.name + ", input again, backward"),
      output_forward_(op.name + ", output, forward"),
      output_backward_(op.name + ", output, backward") {
  if (!op.adapter.empty()) adapter_.emplace(op, place);
  if (scaling_ != nullptr)
    fp8_tensor_ = architecture::fp8_tensor(place.architecture, op, place.layer());
}

template <class P>
std::optional<kernels::Fp8Linear> LinearOperation<P>::fp8(const PassArguments<P>& c) const {
  if (scaling_ == nullptr) return {};
  const auto scale = [&](std::int64_t i) {
    return scaling_->scale(fp8_tensor_ + i, c.context.notes_maxima);
  };
  return kernels::Fp8Linear{scale(0), scale(1), scale(2), c.scratch.codes};
}

/// y = x Wᵀ, plus b if `add_bias`, plus the adapter's update. With magnitudes, the bias is added
/// after the scaling.
template <class P>
void LinearOperation<P>::add_product(const PassArguments<P>& c, View2<T> y, View2<const T> x,
                                     bool add_bias) const {
  linear_.forward(c.handle, y, x, fp8(c), add_bias && !scales());
  if (adapter_) adapter_->forward(c, y, x);
  if (scales()) adapter_->scale(c, y, add_bias ? linear_.b : View1<T>());
}

/// y = x Wᵀ + b plus the adapter's update. With split inputs, y is the sum of the ranks' partial
/// products.
template <class P>
void LinearOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  const View2<T> x = c.values.matrix(this->op_.input());
  const View2<T> y = c.values.matrix(this->op_.output);
  if (this->op_.cut == architecture::Cut::outputs) {
    const View2<T> all = axis_.gather(c.handle, c.scratch.all(axis_, x), x, input_forward_.c_str());
    add_product(c, y, all, true);
    return;
  }
  // Only rank 0 adds the bias to its partial sums.
  const View2<T> sum = axis_.partial(c.scratch.all(axis_, y), y);
  add_product(c, sum, x, axis_.rank() == 0);
  axis_.reduce(c.handle, y, c.scratch.all(axis_, y), output_forward_.c_str());
}

template <class P>
void LinearOperation<P>::add_input_gradient(const PassArguments<P>& c, View2<T> dx,
                                            View2<const T> dy) const {
  const View2<const T> dz = scales() ? adapter_->unscaled_gradient(c, dy) : dy;
  linear_.backward_input(c.handle, dx, dz, fp8(c));
  if (adapter_) adapter_->backward_input(c, dx, dz);
}

/// dx = dy W plus the adapter's part; or dh = (dy W) gelu'(h) if the product's input is gelu(h) and
/// both passes are fused.
template <class P>
void LinearOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>* fused,
                                        bool) const {
  const View2<T> dy = c.values.gradient(this->op_.output);
  if (this->op_.cut == architecture::Cut::outputs) {
    const View2<T> dx = c.values.gradient(this->op_.input());
    const View2<T> sum = axis_.partial(c.scratch.all(axis_, dx), dx);
    add_input_gradient(c, sum, dy);
    return axis_.reduce(c.handle, dx, c.scratch.all(axis_, dx), input_backward_.c_str());
  }
  axis_.gather(c.handle, dy, axis_.own_rows(dy), output_backward_.c_str());
  if (fused == nullptr) {
    const View2<T> dx = c.values.gradient(this->op_.input());
    add_input_gradient(c, dx, dy);
    return;
  }
  const auto& gelu = static_cast<const ActivationOperation<P>&>(*fused);
  linear_.gelu_backward_input(c.handle, gelu.input_gradient(c), dy, gelu.input(c), gelu.form(),
                              fp8(c));
}

/// dW += dzᵀ x and the adapter's gradients, where dz is the gradient of the unscaled outputs.
template <class P>
void LinearOperation<P>::add_weight_gradient(const PassArguments<P>& c, View2<const T> dy,
                                             View2<const T> x) const {
  View2<const T> dz = dy;
  if (scales()) {
    adapter_->magnitude_gradient(
        c, dy, x, [&](View2<T> z) { linear_.forward(c.handle, z, x, fp8(c), false); });
    dz = adapter_->unscaled_gradient(c, dy);
  }
  linear_.backward_weight_alone(c.handle, dz, x, fp8(c));
  if (this->op_.trains_adapter()) adapter_->backward_weight(c, dz, x);
}

/// dW += dyᵀ x, db += Σ_t dy[t], and the adapter's gradients.
template <class P>
void LinearOperation<P>::backward_weight(const PassArguments<P>& c) const {
  const View2<T> x = c.values.matrix(this->op_.input());
  const View2<T> dy = c.values.gradient(this->op_.output);
  const bool reads = this->op_.trains_product() || this->op_.trains_adapter();
  if (this->op_.cut == architecture::Cut::outputs) {
    if (!reads) return linear_.backward_bias(c.handle, dy);
    // Only this rank's rows of x are kept.
    const View2<T> all = axis_.gather(c.handle, c.scratch.all(axis_, x), x, input_again_.c_str());
    if (!scales()) {
      linear_.backward_weight(c.handle, dy, all, fp8(c));
      if (this->op_.trains_adapter()) adapter_->backward_weight(c, dy, all);
      return;
    }
    add_weight_gradient(c, dy, all);
    return linear_.backward_bias(c.handle, dy);
  }
  if (reads) add_weight_gradient(c, dy, x);
  linear_.backward_bias(c.handle, axis_.own_rows(dy));
}

template <class P>
std::unique_ptr<BlockOperation<P>> make_operation(const architecture::Operation& op,
                                                  const OperationPlace<P>& place) {
  using architecture::OperationKind;
  switch (op.kind) {
    case OperationKind::norm:
      return std::make_unique<NormOperation<P>>(op, place);
    case OperationKind::head_norm:
      return std::make_unique<HeadNormOperation<P>>(op, place);
    case OperationKind::width_norm:
      return std::make_unique<WidthNormOperation<P>>(op, place);
    case OperationKind::linear:
      if (op.cut == architecture::Cut::none)
        return std::make_unique<HeadLinearOperation<P>>(op, place);
      return std::make_unique<LinearOperation<P>>(op, place);
    case OperationKind::rotary:
      return std::make_unique<RotaryOperation<P>>(op, place);
    case OperationKind::attention:
      return std::make_unique<AttentionOperation<P>>(op, place);
    case OperationKind::activation:
      if (op.name == "tanh") return std::make_unique<TanhOperation<P>>(op);
      return std::make_unique<ActivationOperation<P>>(op, place);
    case OperationKind::dropout:
      return std::make_unique<DropoutOperation<P>>(op, place);
    case OperationKind::residual:
      return std::make_unique<ResidualOperation<P>>(op, place);
    case OperationKind::embedding:
      return std::make_unique<EmbeddingOperation<P>>(op, place);
    case OperationKind::pick:
      return std::make_unique<PickOperation<P>>(op, place);
    case OperationKind::logits:
      return std::make_unique<LogitsOperation<P>>(op, place);
    case OperationKind::cross_entropy:
      return std::make_unique<CrossEntropyOperation<P>>(op, place);
    case OperationKind::router:
      return std::make_unique<RowProductOperation<P>>(op, place);
    case OperationKind::choice:
      return std::make_unique<ChoiceOperation<P>>(op, place);
    case OperationKind::expert_product:
      return std::make_unique<ExpertProductOperation<P>>(op, place);
    case OperationKind::expert_activation:
      return std::make_unique<ExpertActivationOperation<P>>(op, place);
    case OperationKind::dispatch:
      return std::make_unique<DispatchOperation<P>>(op, place);
    case OperationKind::expert_rounds:
      return std::make_unique<ExpertRoundsOperation<P>>(op, place);
    case OperationKind::combine:
      return std::make_unique<CombineOperation<P>>(op, place);
    case OperationKind::gate:
      return std::make_unique<GateOperation<P>>(op, place);
    case OperationKind::add:
      return std::make_unique<AddOperation<P>>(op, place);
    case OperationKind::row_product:
      return std::make_unique<RowProductOperation<P>>(op, place);
    case OperationKind::join_heads:
      return std::make_unique<JoinHeadsOperation<P>>(op, place);
    case OperationKind::take_values:
      return std::make_unique<TakeValuesOperation<P>>(op, place);
    case OperationKind::table:
      return std::make_unique<TableOperation<P>>(op, place);
    case OperationKind::swap:
      return std::make_unique<SwapOperation<P>>(op);
    case OperationKind::patches:
      return std::make_unique<PatchesOperation<P>>(op, place);
    case OperationKind::class_token:
      return std::make_unique<ClassTokenOperation<P>>(op, place);
    case OperationKind::pool:
      return std::make_unique<PoolOperation<P>>(op, place);
    case OperationKind::splice:
      return std::make_unique<SpliceOperation<P>>(op, place);
  }
  return {};
}

#define TRIREME_INSTANTIATE(P)                                                                  \
  template class ActivationFunction<P>;                                                         \
  template std::unique_ptr<BlockOperation<P>> make_operation<P>(const architecture::Operation&, \
                                                                const OperationPlace<P>&);
TRIREME_INSTANTIATE(Fp32)
TRIREME_INSTANTIATE(Fp64)
TRIREME_INSTANTIATE(MixedBf16)
TRIREME_INSTANTIATE(MixedFp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
