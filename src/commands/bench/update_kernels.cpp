// trireme bench, section kernels: zeroing and norm of the gradient, the optimizer's update, and the
// conversions of weights.
#include <trireme/commands/bench/kernels.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/update_rules.hpp>
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

/// Name of a pass in the table: "adamw.update" for the label "kernels/adamw_update".
std::string name_of_pass(const rules::Pass& pass) {
  std::string name = pass.label;
  name.erase(0, name.find('/') + 1);
  if (const std::size_t at = name.find('_'); at != std::string::npos) name[at] = '.';
  return name;
}

/// The passes over elements, each with the bytes of its input, and of its target and its state,
/// which it reads and writes.
template <class P>
void measure_optimizer(KernelBench& b) {
  using M = typename P::Master;
  const Part part(b.shard().states);
  const std::int64_t n = part.elements;
  const deck::OptimizerConfig& o = b.config().optimizer;
  const Exec& exec = b.exec();
  const bool narrow = o.moments == Moments::bf16;
  const std::int64_t wide_states = narrow ? 0 : n, narrow_states = narrow ? n : 0;
  const BenchArray<M> weight(exec, n), gradient(exec, n), m(exec, wide_states),
      v(exec, wide_states);
  const BenchArray<Bf16> narrow_m(exec, narrow_states), narrow_v(exec, narrow_states);
  const BenchArray<double> control(exec, kernels::control_size);
  kernels::fill<double>(exec, control, 0.5);
  kernels::fill<M>(exec, v, 0.5);  // second moments are not negative
  kernels::fill<Bf16>(exec, narrow_v, 0.5);
  constexpr double rate = 1e-9;  // small, so that weights hardly change
  const auto state = [&](const BenchArray<M>& full, const BenchArray<Bf16>& rounded) {
    kernels::StateView<M> view;  // one of the two is empty
    if (narrow)
      view.narrow = rounded.list();
    else
      view.full = full.list();
    return view;
  };
  const kernels::UpdateArenas<M> arenas{weight, gradient, {state(m, narrow_m), state(v, narrow_v)}};
  const kernels::UpdateStep step{o.kind, o, rate, control, {}, {}};
  kernels::UpdateRanges all = kernels::whole_update(n);
  all.only.run = all.only.stride = n;
  const double bytes = part.bytes(sizeof(M)), moment = part.bytes(narrow ? 2 : sizeof(M));
  for (const rules::Pass& pass : o.rule().passes(o))
    if (pass.kind == rules::PassKind::elements && pass.of != rules::Arrays::others)
      b.measure({name_of_pass(pass), n > 0, part.calls, n, 1,
                 traffic(bytes, 0, bytes + pass.states * moment)},
                [&] { kernels::element_pass<M>(exec, pass.number, arenas, step, all); });
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
