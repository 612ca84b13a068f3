// trireme bench, section kernels: zeroing and norm of the gradient, the optimizer's update, and the
// conversions of weights.
#include <trireme/commands/bench/kernels.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/muon.hpp>
#include <trireme/kernels/update.hpp>
#include <trireme/model/parameters.hpp>

#include <algorithm>

namespace trireme::commands {
namespace {

/// Largest number of elements measured; a larger shard runs at the same rate.
constexpr std::int64_t most_elements = 1 << 24;

/// The measured part of a shard, as one array. `calls`: size of the shard divided by the size of
/// the part. A training step makes one call per array instead.
struct Part {
  std::int64_t elements;
  double calls;

  explicit Part(std::int64_t all)
      : elements(std::min(all, most_elements)),
        calls(all == 0 ? 0 : static_cast<double>(all) / static_cast<double>(elements)) {}
  double bytes(std::size_t size) const {
    return static_cast<double>(elements) * static_cast<double>(size);
  }
};

template <class P>
void measure_optimizer(KernelBench& b) {
  using M = typename P::Master;
  const Part part(b.shard().states);
  const std::int64_t n = part.elements;
  const deck::OptimizerConfig& o = b.config().optimizer;
  const Exec& exec = b.exec();
  const BenchArray<M> weight(exec, n), m(exec, n), v(exec, n), gradient(exec, n);
  const BenchArray<double> control(exec, kernels::control_size), ratio(exec, 1);
  kernels::fill<double>(exec, control, 0.5);
  kernels::fill<M>(exec, v, 0.5);  // second moments are not negative
  constexpr double rate = 1e-9;    // small, so that weights hardly change
  const kernels::AdamW rule{rate, o.beta1, o.beta2, o.epsilon, o.weight_decay};
  const double bytes = part.bytes(sizeof(M));
  const auto measure = [&](const char* name, const BenchCost& cost,
                           const std::function<void()>& call) {
    b.measure({name, n > 0, part.calls, n, 1, cost}, call);
  };
  switch (o.kind) {
    case OptimizerKind::muon: {
      const kernels::UpdateRanges all = kernels::whole_update(n);
      measure("muon.direction", traffic(bytes, 0, 2 * bytes), [&] {
        kernels::muon_direction<M>(exec, gradient, m, o.momentum, o.nesterov, control, all);
      });
      measure("muon.update", traffic(bytes, 0, bytes), [&] {
        kernels::muon_update<M>(exec, weight, gradient, rate, o.weight_decay, ratio, control, all);
      });
      return;
    }
    case OptimizerKind::adamw:
      measure("adamw.update", traffic(bytes, 0, 3 * bytes),
              [&] { kernels::adamw_update<M>(exec, weight, m, v, gradient, rule, control); });
      return;
    case OptimizerKind::sgd: {
      const bool moment = o.momentum != 0;
      measure("sgd.update", traffic(bytes, 0, (moment ? 2 : 1) * bytes), [&] {
        kernels::sgd_update<M>(exec, weight, moment ? m.list() : View1<M>(), gradient,
                               {rate, o.momentum, o.nesterov, o.weight_decay}, control);
      });
      return;
    }
    case OptimizerKind::lamb:
      measure("lamb.direction", traffic(bytes, 0, 3 * bytes),
              [&] { kernels::lamb_direction<M>(exec, gradient, m, v, weight, rule, control); });
      measure("lamb.update", traffic(bytes, 0, bytes),
              [&] { kernels::lamb_update<M>(exec, weight, gradient, rate, ratio, control); });
      return;
    case OptimizerKind::lars:
      measure("lars.update", traffic(bytes, 0, (o.momentum != 0 ? 2 : 1) * bytes), [&] {
        kernels::lars_update<M>(exec, weight, m, gradient,
                                {rate, o.momentum, o.weight_decay, o.trust_coefficient}, ratio,
                                control);
      });
      return;
  }
}

/// Conversions of bf16 and fp16: rounding of the master weights, and widening, which a step only
/// does within products.
template <class P>
void measure_conversions(KernelBench& b) {
  using T = typename P::Compute;
  using M = typename P::Master;
  if constexpr (is_narrow<T>) {
    const Part part(b.shard().states);
    const Exec& exec = b.exec();
    const BenchArray<M> wide(exec, part.elements);
    const BenchArray<T> narrow(exec, part.elements);
    const double in = part.bytes(sizeof(M));
    const double out = part.bytes(sizeof(T));
    const bool here = part.elements > 0;
    b.measure({"weights.round", here, part.calls, part.elements, 1, traffic(in, out)},
              [&] { kernels::convert<T, M>(exec, narrow, wide); });
    b.measure({"weights.widen", here, 0, part.elements, 1, traffic(out, in)},
              [&] { kernels::convert<M, T>(exec, wide, narrow); });
  }
}

}  // namespace

template <class P>
void measure_update_kernels(KernelBench& b) {
  using G = typename P::Gradient;
  const Part part(b.shard().parameters);
  const std::int64_t n = part.elements;
  const Exec& exec = b.exec();
  {
    const BenchArray<G> gradient(exec, n);
    const BenchArray<double> partial(exec, kernels::norm_blocks(n));
    const double bytes = part.bytes(sizeof(G));
    b.measure({"gradient.zero", n > 0, part.calls, n, 1, traffic(0, bytes)},
              [&] { kernels::fill<G>(exec, gradient, 0.0); });
    b.measure({"gradient.norm_blocks", n > 0, part.calls, n, 1, traffic(bytes, 0)},
              [&] { kernels::squared_norm_blocks<G>(exec, partial, gradient); });
  }
  measure_optimizer<P>(b);
  measure_conversions<P>(b);
}

template void measure_update_kernels<model::Fp32>(KernelBench&);
template void measure_update_kernels<model::Fp64>(KernelBench&);
template void measure_update_kernels<model::MixedBf16>(KernelBench&);
template void measure_update_kernels<model::MixedFp16>(KernelBench&);

}  // namespace trireme::commands
