#include <trireme/commands/bench/kernels.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/rotary.hpp>
#include <trireme/model/parameters.hpp>

#include <string>

namespace trireme::commands {
namespace {

template <class P>
void measure_rotary(KernelBench& b) {
  using T = typename P::Compute;
  if (b.model().positions != Positions::rotary) return;
  const architecture::LocalSizes& n = b.sizes();
  const Exec& exec = b.exec();
  kernels::Rotary rotary;
  rotary.heads = n.heads + n.key_value_heads;
  rotary.head_size = n.head_size;
  rotary.theta = b.model().rope_theta;
  rotary.sequence = n.sequence;
  const std::int64_t columns = rotary.heads * n.head_size;
  const BenchArray<T> x(exec, n.tokens, n.query_key_value());
  BenchCost cost = traffic(0, 0, static_cast<double>(n.tokens * columns) * sizeof(T));
  cost.arithmetic = kernels::Arithmetic::sine_and_cosine;
  cost.elements = static_cast<double>(n.tokens * n.head_size / 2);
  const bool here = b.shard().layers > 0 && columns > 0;
  b.measure({"rotary.forward", here, b.layer_calls() * b.forward_passes(Recompute::full), n.tokens,
             columns, cost},
            [&] { kernels::rotary_forward<T>(exec, x.matrix(), rotary); });
  b.measure({"rotary.backward", here, b.layer_calls(), n.tokens, columns, cost},
            [&] { kernels::rotary_backward<T>(exec, x.matrix(), rotary); });
}

}  // namespace

template <class P>
void measure_attention_kernels(KernelBench& b) {
  using T = typename P::Compute;
  using A = Accumulate<T>;
  measure_rotary<P>(b);
  const architecture::LocalSizes& n = b.sizes();
  kernels::AttentionShape shape{n.micro, n.sequence, n.heads, n.key_value_heads, n.head_size};
  shape.causal = b.model().causal();
  shape.group = n.group;
  shape.heads_before = n.heads_before;
  kernels::AttentionDropout dropout;
  dropout.rate = b.model().dropout;
  dropout.key = {1, Purpose::attention_dropout, 0, 0};
  dropout.all_heads = b.model().heads;
  const Exec& exec = b.exec();
  const BenchArray<T> qkv(exec, n.tokens, n.query_key_value());
  const BenchArray<T> dqkv(exec, n.tokens, n.query_key_value());
  const BenchArray<T> o(exec, n.tokens, n.attention()), grad(exec, n.tokens, n.attention());
  const BenchArray<A> sums(exec, n.micro * n.heads, n.sequence);
  const View3<A> logsumexp(sums.list().data(), static_cast<std::size_t>(n.micro),
                           static_cast<std::size_t>(n.heads), static_cast<std::size_t>(n.sequence));
  // A causal model needs half of the square of scores.
  const double scores =
      static_cast<double>(n.micro * n.heads * n.sequence * n.sequence) * (shape.causal ? 0.5 : 1.0);
  const double product = 2 * scores * static_cast<double>(n.head_size);
  const double in = static_cast<double>(n.tokens * n.query_key_value()) * sizeof(T);
  const double out = static_cast<double>(n.tokens * n.attention()) * sizeof(T);
  const auto cost_of = [&](BenchCost cost, int products) {
    cost.flops = products * product;
    cost.arithmetic =
        dropout.rate > 0 ? kernels::Arithmetic::random_word : kernels::Arithmetic::exponential;
    cost.elements = scores;
    return cost;
  };
  const bool here = b.shard().layers > 0 && n.heads > 0;
  const auto measure = [&](const std::string& name, double calls) {
    const BenchArray<A> work(exec, kernels::attention_workspace_elements<T>(shape));
    b.measure({name + ".forward", here, calls * b.forward_passes(Recompute::full), n.tokens,
               n.attention(), cost_of(traffic(in, out), 2)},
              [&] {
                kernels::attention_forward<T>(exec, o.matrix(), logsumexp, qkv.matrix(), shape,
                                              dropout);
              });
    // Four products: scores again are how the kernel does it, and not what the gradient needs.
    b.measure({name + ".backward", here, calls, n.tokens, n.attention(),
               cost_of(traffic(in + 2 * out, in), 4)},
              [&] {
                kernels::attention_backward<T>(exec, dqkv.matrix(), grad.matrix(), o.matrix(),
                                               qkv.matrix(), logsumexp, work.list(), shape,
                                               dropout);
              });
  };
  measure("attention", b.layer_calls());
  using kernels::AttentionBackend;
  const DType type = dtype_of<T>;
  const kernels::AttentionBackends chosen = kernels::attention_backends(type);
  if (chosen == kernels::AttentionBackends{}) return;
  const auto beside = [&](const char* name, AttentionBackend backend) {
    if (!kernels::attention_backend_available(type, backend)) return;
    if (chosen == kernels::AttentionBackends{backend, backend}) return;
    kernels::set_attention_backends(type, {backend, backend});
    measure(name, 0);
  };
  beside("attention_portable", AttentionBackend::portable);
  beside("attention_tensor_cores", AttentionBackend::tensor_cores);
  beside("attention_cudnn", AttentionBackend::cudnn);
  kernels::set_attention_backends(type, chosen);
}

template void measure_attention_kernels<model::Fp32>(KernelBench&);
template void measure_attention_kernels<model::Fp64>(KernelBench&);
template void measure_attention_kernels<model::MixedBf16>(KernelBench&);
template void measure_attention_kernels<model::MixedFp16>(KernelBench&);

}  // namespace trireme::commands
