#include <trireme/commands/bench/kernels.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/norm.hpp>
#include <trireme/kernels/rms_norm.hpp>
#include <trireme/model/parameters.hpp>

namespace trireme::commands {
namespace {

BenchCost with(BenchCost cost, kernels::Arithmetic arithmetic, std::int64_t elements) {
  cost.arithmetic = arithmetic;
  cost.elements = static_cast<double>(elements);
  return cost;
}

/// Norms without an addition that the backward pass of a layer computes again.
double recomputed_norms(Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
    case Recompute::automatic:
      return 0;
    case Recompute::selective:
      return 2;
    case Recompute::full:
      return 1;
  }
  return 0;
}

/// The norms of the layers and the last one.
template <class P>
void measure_norm(KernelBench& b) {
  using T = typename P::Compute;
  using A = Accumulate<T>;
  using G = typename P::Gradient;
  const architecture::LocalSizes& n = b.sizes();
  const bool rms = b.model().norm == NormKind::rms;
  const bool adds = b.model().causal();  // bert's norms stand behind the additions
  const std::string name = rms ? "rms_norm" : "layer_norm";
  const std::int64_t rows = n.rows;
  const Exec& exec = b.exec();
  const BenchArray<T> x(exec, rows, n.hidden), y(exec, rows, n.hidden), dx(exec, rows, n.hidden);
  const BenchArray<T> gain(exec, n.hidden), bias(exec, n.hidden);
  const BenchArray<G> dgain(exec, n.hidden), dbias(exec, n.hidden);
  const BenchArray<A> mean(exec, rows), inverse(exec, rows);
  const double bytes = static_cast<double>(rows * n.hidden) * sizeof(T);
  const double of_head = b.shard().has_head ? static_cast<double>(b.shard().micros) : 0;
  const double calls = 2 * b.layer_calls();
  const bool here = rows > 0 && (b.shard().layers > 0 || b.shard().has_head);
  const double epsilon = b.model().norm_epsilon;
  // The second norm of a layer's forward pass is measured below, with the addition in front of it.
  const double again = recomputed_norms(b.config().parallel.recompute);
  b.measure({name + ".forward", here, b.layer_calls() * (1 + again) + of_head, rows, n.hidden,
             traffic(bytes, bytes)},
            [&] {
              if (rms)
                kernels::rms_norm_forward<T>(exec, y.matrix(), inverse.list(), x.matrix(),
                                             gain.list(), epsilon);
              else
                kernels::layer_norm_forward<T>(exec, y.matrix(), mean.list(), inverse.list(),
                                               x.matrix(), gain.list(), bias.list(), epsilon);
            });
  b.measure({name + ".backward_input", here, calls + of_head, rows, n.hidden,
             adds ? traffic(2 * bytes, 0, bytes) : traffic(2 * bytes, bytes)},
            [&] {
              if (rms)
                kernels::rms_norm_backward_input<T>(exec, dx.matrix(), y.matrix(), x.matrix(),
                                                    inverse.list(), gain.list(), adds);
              else
                kernels::layer_norm_backward_input<T>(exec, dx.matrix(), y.matrix(), x.matrix(),
                                                      mean.list(), inverse.list(), gain.list(),
                                                      adds);
            });
  b.measure(
      {name + ".backward_weight", here, calls + of_head, rows, n.hidden, traffic(2 * bytes, 0)},
      [&] {
        if (rms)
          kernels::rms_norm_backward_weight<T>(exec, dgain.list(), y.matrix(), x.matrix(),
                                               inverse.list());
        else
          kernels::layer_norm_backward_weight<T>(exec, dgain.list(), dbias.list(), y.matrix(),
                                                 x.matrix(), mean.list(), inverse.list());
      });
}

/// The addition behind attention with the norm behind it.
template <class P>
void measure_residual_norm(KernelBench& b) {
  using T = typename P::Compute;
  const architecture::LocalSizes& n = b.sizes();
  const bool rms = b.model().norm == NormKind::rms;
  const Exec& exec = b.exec();
  const BenchArray<T> x(exec, n.rows, n.hidden), z(exec, n.rows, n.hidden);
  const BenchArray<T> sum(exec, n.rows, n.hidden), y(exec, n.rows, n.hidden);
  const BenchArray<T> gain(exec, n.hidden), bias(exec, n.hidden);
  const BenchArray<Accumulate<T>> mean(exec, n.rows), inverse(exec, n.rows);
  const std::int64_t elements = n.rows * n.hidden;
  const double bytes = static_cast<double>(elements) * sizeof(T);
  const kernels::Dropout dropout{b.model().dropout, {1, Purpose::dropout, 2, 3}, 0};
  BenchCost cost = traffic(2 * bytes, 2 * bytes);
  if (dropout.rate > 0) cost = with(cost, kernels::Arithmetic::random_word, elements);
  const double epsilon = b.model().norm_epsilon;
  b.measure({rms ? "residual_rms_norm.forward" : "residual_layer_norm.forward",
             b.shard().layers > 0 && elements > 0,
             b.layer_calls() * b.forward_passes(Recompute::full), n.rows, n.hidden, cost},
            [&] {
              if (rms)
                kernels::residual_rms_norm_forward<T>(exec, y.matrix(), inverse.list(),
                                                      sum.matrix(), x.matrix(), z.matrix(), dropout,
                                                      gain.list(), epsilon);
              else
                kernels::residual_layer_norm_forward<T>(
                    exec, y.matrix(), mean.list(), inverse.list(), sum.matrix(), x.matrix(),
                    z.matrix(), dropout, gain.list(), bias.list(), epsilon);
            });
}

template <class P>
void measure_activation(KernelBench& b) {
  using T = typename P::Compute;
  const architecture::LocalSizes& n = b.sizes();
  const bool gated = n.gated();
  const std::string name = gated ? "swiglu" : "gelu";
  const std::int64_t elements = n.tokens * n.feed_forward;
  const bool here = b.shard().layers > 0 && elements > 0;
  const Exec& exec = b.exec();
  const BenchArray<T> h(exec, n.tokens, n.inner), dh(exec, n.tokens, n.inner);
  const BenchArray<T> g(exec, n.tokens, n.feed_forward), dg(exec, n.tokens, n.feed_forward);
  const Gelu form = b.model().gelu;
  const auto arithmetic = gated                 ? kernels::Arithmetic::exponential
                          : form == Gelu::exact ? kernels::Arithmetic::error_function
                                                : kernels::Arithmetic::hyperbolic_tangent;
  const double out = static_cast<double>(elements) * sizeof(T);
  const double in = out * static_cast<double>(n.inner) / static_cast<double>(n.feed_forward);
  b.measure({name + ".forward", here, b.layer_calls() * b.forward_passes(Recompute::selective),
             n.tokens, n.inner, with(traffic(in, out), arithmetic, elements)},
            [&] {
              if (gated)
                kernels::swiglu_forward<T>(exec, g.matrix(), h.matrix());
              else
                kernels::gelu_forward<T>(exec, g.matrix(), h.matrix(), form);
            });
  // 0 where it is a part of the product before it
  const bool fused = !gated && kernels::fuses_gelu(exec, dtype_of<T>, form, n.inner);
  b.measure({name + ".backward", here, fused ? 0 : b.layer_calls(), n.tokens, n.inner,
             with(traffic(in + out, in), arithmetic, elements)},
            [&] {
              if (gated)
                kernels::swiglu_backward<T>(exec, dh.matrix(), dg.matrix(), h.matrix());
              else
                kernels::gelu_backward<T>(exec, dh.matrix(), dg.matrix(), h.matrix(), form);
            });
}

/// Additions to the residual stream, as the deck has them and with or without dropout as it has
/// not: those are called 0 times.
template <class P>
void measure_residual(KernelBench& b) {
  using T = typename P::Compute;
  const architecture::LocalSizes& n = b.sizes();
  const Exec& exec = b.exec();
  const BenchArray<T> x(exec, n.rows, n.hidden), y(exec, n.rows, n.hidden),
      z(exec, n.rows, n.hidden);
  const std::int64_t elements = n.rows * n.hidden;
  const double bytes = static_cast<double>(elements) * sizeof(T);
  const bool here = b.shard().layers > 0 && elements > 0;
  const double forward = b.layer_calls();
  const double backward = 2 * b.layer_calls();
  const bool drops = b.model().dropout > 0;
  const kernels::Dropout none;
  const kernels::Dropout dropout{drops ? b.model().dropout : 0.1, {1, Purpose::dropout, 2, 3}, 0};
  constexpr auto words = kernels::Arithmetic::random_word;
  b.measure(
      {"residual.forward", here, drops ? 0 : forward, n.rows, n.hidden, traffic(2 * bytes, bytes)},
      [&] {
        kernels::residual_dropout_forward<T>(exec, y.matrix(), x.matrix(), z.matrix(), none);
      });
  b.measure(
      {"residual.backward", here, drops ? 0 : backward, n.rows, n.hidden, traffic(bytes, bytes)},
      [&] { kernels::dropout_backward<T>(exec, y.matrix(), x.matrix(), none); });
  b.measure({"residual_dropout.forward", here, drops ? forward : 0, n.rows, n.hidden,
             with(traffic(2 * bytes, bytes), words, elements)},
            [&] {
              kernels::residual_dropout_forward<T>(exec, y.matrix(), x.matrix(), z.matrix(),
                                                   dropout);
            });
  b.measure({"residual_dropout.backward", here, drops ? backward : 0, n.rows, n.hidden,
             with(traffic(bytes, bytes), words, elements)},
            [&] { kernels::dropout_backward<T>(exec, y.matrix(), x.matrix(), dropout); });
  if (!b.model().predicts_masked_tokens()) return;
  b.measure({"residual.add", here, backward, n.rows, n.hidden, traffic(bytes, 0, bytes)},
            [&] { kernels::accumulate<T>(exec, y.list(), x.list()); });
}

}  // namespace

template <class P>
void measure_layer_kernels(KernelBench& b) {
  measure_norm<P>(b);
  measure_residual_norm<P>(b);
  measure_activation<P>(b);
  measure_residual<P>(b);
}

template void measure_layer_kernels<model::Fp32>(KernelBench&);
template void measure_layer_kernels<model::Fp64>(KernelBench&);
template void measure_layer_kernels<model::MixedBf16>(KernelBench&);
template void measure_layer_kernels<model::MixedFp16>(KernelBench&);

}  // namespace trireme::commands
