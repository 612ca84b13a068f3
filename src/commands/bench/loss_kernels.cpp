// trireme bench, section kernels: the kernels of the cross entropy. Training runs them between the
// products of the logits, within one operation.
#include <trireme/commands/bench/kernels.hpp>
#include <trireme/kernels/cross_entropy.hpp>
#include <trireme/model/parameters.hpp>

namespace trireme::commands {

template <class P>
void measure_loss_kernels(KernelBench& b) {
  using T = typename P::Compute;
  using A = Accumulate<T>;
  const architecture::RankSizes& n = b.sizes();
  const Exec& exec = b.exec();
  const bool here = b.shard().has_head && n.vocabulary > 0;
  const std::int64_t rows = here ? n.logit_block : 0;
  const auto elements = static_cast<double>(rows * n.vocabulary);
  const BenchArray<A> wide_logits(exec, rows, columns_in_lines<A>(n.vocabulary));
  const BenchArray<T> narrow(exec, is_narrow<T> ? rows : 0, columns_in_lines<T>(n.vocabulary));
  const View2<A> logits = wide_logits.columns(n.vocabulary);
  const BenchArray<double> statistics(exec, rows, 3), merged(exec, rows, 3), losses(exec, rows);
  const BenchIds ids(exec, rows, n.vocabulary);
  const View1<const std::int32_t> targets = ids.list();
  const auto gradient = [&] {  // in the memory of the logits if both have the same type
    if constexpr (is_narrow<T>)
      return narrow.columns(n.vocabulary);
    else
      return logits;
  }();
  const std::int64_t blocks = here ? (n.targets + rows - 1) / rows : 0;
  const auto calls = static_cast<double>(b.shard().micros * blocks);
  const auto kernel = [&](const char* name, BenchCost cost) {
    cost.arithmetic = kernels::Arithmetic::exponential;
    cost.elements = elements;
    return BenchKernel{name, here, calls, rows, n.vocabulary, cost};
  };
  const double wide = elements * sizeof(A);
  b.measure(kernel("cross_entropy.statistics", traffic(wide, 0)),
            [&] { kernels::cross_entropy_statistics<A>(exec, statistics, logits, targets, 0); });
  if (here)
    kernels::cross_entropy_merge(
        exec, losses, merged,
        View3<const double>(statistics.list().data(), 1, static_cast<std::size_t>(rows), 3));
  b.measure(
      kernel("cross_entropy.gradient",
             is_narrow<T> ? traffic(wide, elements * sizeof(T)) : traffic(0, 0, wide)),
      [&] { kernels::cross_entropy_gradient<T>(exec, gradient, logits, merged, targets, 0, 1.0); });
}

template void measure_loss_kernels<model::Fp32>(KernelBench&);
template void measure_loss_kernels<model::Fp64>(KernelBench&);
template void measure_loss_kernels<model::MixedBf16>(KernelBench&);
template void measure_loss_kernels<model::MixedFp16>(KernelBench&);

}  // namespace trireme::commands
