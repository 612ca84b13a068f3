// trireme bench, section kernels: rotary positions, head norms and attention. Attention is measured
// with the deck's back ends and, unless these are portable, with every other available back end as
// a row with 0 calls.
#include <trireme/commands/bench/kernels.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/head_norm.hpp>
#include <trireme/kernels/rotary.hpp>
#include <trireme/kernels/width_norm.hpp>
#include <trireme/model/attention_operations.hpp>

#include <string>

namespace trireme::commands {
namespace {

using architecture::OperationKind;
using architecture::Pass;

template <class P>
void measure_rotary(KernelBench& b, const plan::BlockKernel& k) {
  using T = typename P::Compute;
  const architecture::RankSizes& n = b.sizes();
  const kernels::Handle& handle = b.handle();
  BenchKernel kernel = b.of_layers(k);
  const BenchArray<T> x(handle, kernel.rows, kernel.columns);
  kernels::Rotary rotary;
  rotary.heads = n.heads + n.key_value_heads;
  rotary.head_size = n.head_size;
  rotary.theta = b.model().rope_theta;
  rotary.sequence = n.sequence;
  kernel.columns = rotary.heads * n.head_size;  // queries and keys: values are not rotated
  kernel.cost = with(traffic(0, 0, static_cast<double>(kernel.elements()) * sizeof(T)),
                     kernels::Arithmetic::sine_and_cosine, n.tokens * n.head_size / 2);
  b.measure(kernel, [&] {
    if (k.call.pass == Pass::forward)
      kernels::rotary_forward<T>(handle, x, rotary);
    else
      kernels::rotary_backward<T>(handle, x, rotary);
  });
}

/// Sets the factors of a norm in place to 1. With other factors, the values of repeated calls would
/// underflow, and arithmetic with subnormal numbers is many times slower.
template <class T>
void set_neutral(KernelBench& b, const BenchArray<T>& gain_query, const BenchArray<T>& gain_key,
                 const BenchArray<Accumulate<T>>& inverse) {
  kernels::fill<T>(b.exec(), gain_query.list(), 1 - b.model().gain_offset());
  kernels::fill<T>(b.exec(), gain_key.list(), 1 - b.model().gain_offset());
  kernels::fill<Accumulate<T>>(b.exec(), inverse.list(), 1);
}

template <class P>
void measure_head_norm(KernelBench& b, const plan::BlockKernel& k) {
  using T = typename P::Compute;
  using A = Accumulate<T>;
  const architecture::RankSizes& n = b.sizes();
  const kernels::Handle& handle = b.handle();
  BenchKernel kernel = b.of_layers(k);
  const kernels::HeadNorm norm{n.heads, n.key_value_heads, n.head_size, b.model().norm_epsilon,
                               b.model().gain_offset()};
  const BenchArray<T> qkv(handle, kernel.rows, kernel.columns);
  const BenchArray<T> raw(handle, kernel.rows, norm.columns());
  const BenchArray<A> inverse(handle, kernel.rows, norm.normed());
  const BenchArray<T> gain_query(handle, n.head_size), gain_key(handle, n.head_size);
  const BenchArray<A> dgain_query(handle, n.head_size), dgain_key(handle, n.head_size);
  set_neutral<T>(b, gain_query, gain_key, inverse);
  kernel.columns = norm.columns();  // queries and keys: values are not normalized
  const double bytes = static_cast<double>(kernel.elements()) * sizeof(T);
  switch (k.call.pass) {
    case Pass::forward:
      return b.measure(kernel.with(traffic(0, bytes, bytes)), [&] {
        kernels::head_norm_forward<T>(handle, qkv, raw, inverse, gain_query, gain_key, norm);
      });
    case Pass::backward_input:
      return b.measure(kernel.with(traffic(bytes, 0, bytes)), [&] {
        kernels::head_norm_backward_input<T>(handle, qkv, raw, inverse, gain_query, gain_key, norm);
      });
    case Pass::backward_weight:
      return b.measure(kernel.with(traffic(2 * bytes, 0)), [&] {
        kernels::head_norm_backward_weight<T>(handle, dgain_query, dgain_key, qkv, raw, inverse,
                                              norm);
      });
  }
}

/// The sums over the tensor ranks are not measured.
template <class P>
void measure_width_norm(KernelBench& b, const plan::BlockKernel& k) {
  using T = typename P::Compute;
  using A = Accumulate<T>;
  const architecture::RankSizes& n = b.sizes();
  const kernels::Handle& handle = b.handle();
  BenchKernel kernel = b.of_layers(k);
  const std::int64_t heads = b.model().heads, groups = b.model().key_value_heads;
  kernels::WidthNorm norm{n.attention(), n.groups(), heads * n.head_size, groups * n.head_size};
  norm.epsilon = b.model().norm_epsilon;
  norm.gain_offset = b.model().gain_offset();
  const BenchArray<T> qkv(handle, kernel.rows, kernel.columns);
  const BenchArray<T> raw(handle, kernel.rows, norm.columns());
  const BenchArray<A> inverse(handle, 2, kernel.rows), products(handle, 2, kernel.rows);
  const BenchArray<T> gain_query(handle, norm.queries), gain_key(handle, norm.keys);
  const BenchArray<A> dgain_query(handle, norm.queries), dgain_key(handle, norm.keys);
  set_neutral<T>(b, gain_query, gain_key, inverse);
  kernel.columns = norm.columns();  // queries and keys: values are not normalized
  const double bytes = static_cast<double>(kernel.elements()) * sizeof(T);
  switch (k.call.pass) {
    case Pass::forward:
      return b.measure(kernel.with(traffic(bytes, bytes, bytes)), [&] {
        kernels::width_norm_squares<T>(handle, inverse, raw, qkv, norm);
        kernels::width_norm_factors<T>(handle, inverse, norm);
        kernels::width_norm_forward<T>(handle, qkv, inverse, gain_query, gain_key, norm);
      });
    case Pass::backward_input:
      return b.measure(kernel.with(traffic(3 * bytes, 0, bytes)), [&] {
        kernels::width_norm_products<T>(handle, products, qkv, raw, inverse, gain_query, gain_key,
                                        norm);
        kernels::width_norm_backward_input<T>(handle, qkv, raw, inverse, products, gain_query,
                                              gain_key, norm);
      });
    case Pass::backward_weight:
      return b.measure(kernel.with(traffic(2 * bytes, 0)), [&] {
        kernels::width_norm_backward_weight<T>(handle, dgain_query, dgain_key, qkv, raw, inverse,
                                               norm);
      });
  }
}

template <class P>
void measure_attention(KernelBench& b, const plan::BlockKernel& k) {
  using T = typename P::Compute;
  using A = Accumulate<T>;
  const architecture::RankSizes& n = b.sizes();
  const kernels::Handle& handle = b.handle();
  BenchKernel kernel = b.of_layers(k);
  const std::int64_t window = b.operation(k).window;
  const kernels::AttentionShape shape = model::attention_shape(n, b.model(), window);
  const kernels::AttentionDropout dropout{
      b.model().dropout, {1, Purpose::attention_dropout, 0, 0}, 0, 0, b.model().heads};
  const BenchArray<T> qkv(handle, n.tokens, n.query_key_value());
  const BenchArray<T> dqkv(handle, n.tokens, n.query_key_value());
  const BenchArray<T> o(handle, n.tokens, n.attention()), grad(handle, n.tokens, n.attention());
  const BenchArray<A> sums(handle, n.micro * n.heads, n.sequence);
  const View3<A> logsumexp(sums.list().data(), static_cast<std::size_t>(n.micro),
                           static_cast<std::size_t>(n.heads), static_cast<std::size_t>(n.sequence));
  const bool forward = k.call.pass == Pass::forward;
  const double scores =
      static_cast<double>(n.tokens * n.heads) * architecture::visible_tokens(b.model(), window);
  const double in = static_cast<double>(n.tokens * n.query_key_value()) * sizeof(T);
  const double out = static_cast<double>(kernel.elements()) * sizeof(T);
  kernel.cost = forward ? traffic(in, out) : traffic(in + 2 * out, in);
  // Forward has 2 products, backward 4. The backward kernel also recomputes the scores; these FLOPs
  // are not counted, because the gradient itself does not require them.
  kernel.cost.flops = 4 * scores * static_cast<double>(n.head_size) *
                      architecture::product_factor(b.operation(k), k.call.pass);
  kernel.cost.arithmetic =
      dropout.rate > 0 ? kernels::Arithmetic::random_word : kernels::Arithmetic::exponential;
  kernel.cost.elements = scores;
  const auto measure = [&](const kernels::Handle& by) {
    const BenchArray<A> work(by, kernels::attention_workspace_elements<T>(by.choice(), shape));
    b.measure(kernel, [&] {
      if (forward)
        kernels::attention_forward<T>(by, o, logsumexp, qkv, shape, dropout);
      else
        kernels::attention_backward<T>(by, dqkv, grad, o, qkv, logsumexp, work, shape, dropout);
    });
  };
  measure(handle);
  using kernels::AttentionBackend;
  const DType type = dtype_of<T>;
  const kernels::AttentionBackends chosen = handle.choice().attention(type);
  if (chosen == kernels::AttentionBackends{}) return;
  const std::string pass = kernel.name.substr(kernel.name.find('.'));
  kernel.calls = 0;
  const auto beside = [&](const char* name, AttentionBackend backend) {
    if (!kernels::attention_backend_available(type, backend)) return;
    if (chosen == kernels::AttentionBackends{backend, backend}) return;
    kernels::KernelChoice choice = handle.choice();
    kernel.name = name + pass;
    measure(kernels::Handle(choice.set_attention(type, {backend, backend})));
  };
  beside("attention_portable", AttentionBackend::portable);
  beside("attention_tensor_cores", AttentionBackend::tensor_cores);
  beside("attention_cudnn", AttentionBackend::cudnn);
}

}  // namespace

template <class P>
void measure_attention_kernel(KernelBench& b, const plan::BlockKernel& k) {
  const OperationKind kind = b.operation(k).kind;
  if (kind == OperationKind::rotary) return measure_rotary<P>(b, k);
  if (kind == OperationKind::head_norm) return measure_head_norm<P>(b, k);
  if (kind == OperationKind::width_norm) return measure_width_norm<P>(b, k);
  measure_attention<P>(b, k);
}

template void measure_attention_kernel<model::Fp32>(KernelBench&, const plan::BlockKernel&);
template void measure_attention_kernel<model::Fp64>(KernelBench&, const plan::BlockKernel&);
template void measure_attention_kernel<model::MixedBf16>(KernelBench&, const plan::BlockKernel&);
template void measure_attention_kernel<model::MixedFp16>(KernelBench&, const plan::BlockKernel&);

}  // namespace trireme::commands
