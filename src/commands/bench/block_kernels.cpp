// trireme bench, section kernels: the layers' kernels except matrix products. The layer's list of
// operations determines the kernels and their calls; this file defines the bytes and the arithmetic
// of a call.
#include <trireme/commands/bench/kernels.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/norm.hpp>
#include <trireme/model/parameters.hpp>

namespace trireme::commands {
namespace {

using architecture::OperationKind;
using architecture::Pass;

template <class T>
double bytes_of(const BenchKernel& kernel) {
  return static_cast<double>(kernel.elements()) * sizeof(T);
}

template <class P>
void measure_norm(KernelBench& b, const plan::BlockKernel& k) {
  using T = typename P::Compute;
  using A = Accumulate<T>;
  using G = typename P::Gradient;
  const BenchKernel kernel = b.of_layers(k);
  const bool rms = b.model().norm == NormKind::rms;
  const bool adds = k.call.accumulates();
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const kernels::Handle& handle = b.handle();
  const BenchArray<T> x(handle, rows, columns), y(handle, rows, columns), dx(handle, rows, columns);
  const BenchArray<T> gain(handle, columns), bias(handle, columns);
  const BenchArray<G> dgain(handle, columns), dbias(handle, columns);
  const BenchArray<A> mean(handle, rows), inverse(handle, rows);
  const double bytes = bytes_of<T>(kernel);
  const double epsilon = b.model().norm_epsilon, offset = b.model().gain_offset();
  switch (k.call.pass) {
    case Pass::forward:
      return b.measure(kernel.with(traffic(bytes, bytes)), [&] {
        if (rms)
          kernels::rms_norm_forward<T>(handle, y, inverse, x, gain, offset, epsilon);
        else
          kernels::layer_norm_forward<T>(handle, y, mean, inverse, x, gain, bias, epsilon);
      });
    case Pass::backward_input:
      return b.measure(
          kernel.with(adds ? traffic(2 * bytes, 0, bytes) : traffic(2 * bytes, bytes)), [&] {
            if (rms)
              kernels::rms_norm_backward_input<T>(handle, dx, y, x, inverse, gain, offset, adds);
            else
              kernels::layer_norm_backward_input<T>(handle, dx, y, x, mean, inverse, gain, adds);
          });
    case Pass::backward_weight:
      return b.measure(kernel.with(traffic(2 * bytes, 0)), [&] {
        if (rms)
          kernels::rms_norm_backward_weight<T>(handle, dgain, y, x, inverse);
        else
          kernels::layer_norm_backward_weight<T>(handle, dgain, dbias, y, x, mean, inverse);
      });
  }
}

template <class P>
void measure_activation(KernelBench& b, const plan::BlockKernel& k) {
  using T = typename P::Compute;
  BenchKernel kernel = b.of_layers(k);
  const architecture::RankSizes& n = b.sizes();
  const kernels::Handle& handle = b.handle();
  const BenchArray<T> h(handle, kernel.rows, n.inner), dh(handle, kernel.rows, n.inner);
  const BenchArray<T> g(handle, kernel.rows, kernel.columns),
      dg(handle, kernel.rows, kernel.columns);
  const Activation activation = b.model().activation;
  const Gelu form = b.model().gelu;
  const auto arithmetic = activation == Activation::swiglu ? kernels::Arithmetic::exponential
                          : form == Gelu::exact            ? kernels::Arithmetic::error_function
                                                : kernels::Arithmetic::hyperbolic_tangent;
  const double out = bytes_of<T>(kernel);
  const double in = static_cast<double>(kernel.rows * n.inner) * sizeof(T);
  const bool forward = k.call.pass == Pass::forward;
  kernel.cost =
      with(forward ? traffic(in, out) : traffic(in + out, in), arithmetic, kernel.elements());
  if (k.call.fused >= 0 && kernels::fuses_gelu(handle, dtype_of<T>, form, n.inner))
    kernel.calls = 0;  // fused into the preceding product
  b.measure(kernel, [&] {
    switch (activation) {
      case Activation::gelu:
        return forward ? kernels::gelu_forward<T>(handle, g, h, form)
                       : kernels::gelu_backward<T>(handle, dh, dg, h, form);
      case Activation::swiglu:
        return forward ? kernels::swiglu_forward<T>(handle, g, h)
                       : kernels::swiglu_backward<T>(handle, dh, dg, h);
      case Activation::geglu:
        return forward ? kernels::geglu_forward<T>(handle, g, h, form)
                       : kernels::geglu_backward<T>(handle, dh, dg, h, form);
    }
  });
}

/// Measures dropout and additions to the residual stream (alone, or fused with the norm of the
/// sum), and additions to the residual gradient.
template <class P>
void measure_residual(KernelBench& b, const plan::BlockKernel& k) {
  using T = typename P::Compute;
  BenchKernel kernel = b.of_layers(k);
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const kernels::Handle& handle = b.handle();
  const BenchArray<T> x(handle, rows, columns), z(handle, rows, columns);
  const BenchArray<T> sum(handle, rows, columns), y(handle, rows, columns);
  const BenchArray<T> gain(handle, columns), bias(handle, columns);
  const BenchArray<Accumulate<T>> mean(handle, rows), inverse(handle, rows);
  const kernels::Dropout dropout{b.model().dropout, {1, Purpose::dropout, 2, 3}, 0};
  const double epsilon = b.model().norm_epsilon;
  const double bytes = bytes_of<T>(kernel);
  const auto measure = [&](BenchCost cost, const std::function<void()>& call) {
    kernel.cost =
        dropout.rate == 0 ? cost : with(cost, kernels::Arithmetic::random_word, kernel.elements());
    b.measure(kernel, call);
  };
  const OperationKind kind = b.operation(k).kind;
  if (kind == OperationKind::linear)
    return b.measure(kernel.with(traffic(bytes, 0, bytes)),
                     [&] { kernels::accumulate<T>(handle, y, x); });
  if (k.call.pass != Pass::forward)
    return measure(traffic(bytes, bytes),
                   [&] { kernels::dropout_backward<T>(handle, y, x, dropout); });
  if (kind == OperationKind::dropout)
    return measure(traffic(0, 0, bytes),
                   [&] { kernels::dropout_forward<T>(handle, x, x, dropout); });
  if (k.call.fused < 0)
    return measure(traffic(2 * bytes, bytes),
                   [&] { kernels::residual_dropout_forward<T>(handle, sum, x, z, dropout); });
  measure(traffic(2 * bytes, 2 * bytes), [&] {
    if (b.model().norm == NormKind::rms)
      kernels::residual_rms_norm_forward<T>(handle, y, inverse, sum, x, z, dropout, gain,
                                            b.model().gain_offset(), epsilon);
    else
      kernels::residual_layer_norm_forward<T>(handle, y, mean, inverse, sum, x, z, dropout, gain,
                                              bias, epsilon);
  });
}

template <class P>
void measure(KernelBench& b, const plan::BlockKernel& k) {
  switch (b.operation(k).kind) {
    case OperationKind::norm:
      return measure_norm<P>(b, k);
    case OperationKind::linear:  // products have their own section
      if (k.call.accumulates()) measure_residual<P>(b, k);
      return;
    case OperationKind::head_norm:
    case OperationKind::width_norm:
    case OperationKind::rotary:
    case OperationKind::attention:
      return measure_attention_kernel<P>(b, k);
    case OperationKind::activation:
      return measure_activation<P>(b, k);
    case OperationKind::dropout:
    case OperationKind::residual:
      return measure_residual<P>(b, k);
    case OperationKind::embedding:
    case OperationKind::pick:
    case OperationKind::logits:
    case OperationKind::cross_entropy:
      break;  // not part of a layer
  }
}

}  // namespace

template <class P>
void measure_block_kernels(KernelBench& b) {
  for (const plan::BlockKernel& kernel : b.shard().kernels) measure<P>(b, kernel);
}

template void measure_block_kernels<model::Fp32>(KernelBench&);
template void measure_block_kernels<model::Fp64>(KernelBench&);
template void measure_block_kernels<model::MixedBf16>(KernelBench&);
template void measure_block_kernels<model::MixedFp16>(KernelBench&);

}  // namespace trireme::commands
