// trireme bench, section kernels: the kernels before and after the layers: embedding, picked rows
// and cross entropy.
#include <trireme/commands/bench/kernels.hpp>
#include <trireme/kernels/cross_entropy.hpp>
#include <trireme/kernels/embedding.hpp>
#include <trireme/kernels/rows.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/tensor/copy.hpp>

#include <algorithm>

namespace trireme::commands {
namespace {

/// n scattered integers in [0, below).
class Ids {
 public:
  Ids(const Exec& exec, std::int64_t n, std::int64_t below)
      : arena_("bench", aligned(n * 4)), view_(arena_.take<std::int32_t>(n)) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < n; ++i)
      ids.push_back(static_cast<std::int32_t>(i * 48271 % std::max<std::int64_t>(below, 1)));
    copy_to_device<std::int32_t>(exec, view_, ids);
    fence(exec, "a measurement's token ids");
  }
  View1<const std::int32_t> view() const { return view_; }

 private:
  Arena arena_;
  View1<std::int32_t> view_;
};

template <class P>
void measure_embedding(KernelBench& b) {
  using T = typename P::Compute;
  using G = typename P::Gradient;
  const architecture::RankSizes& n = b.sizes();
  const Exec& exec = b.exec();
  const bool here = b.shard().has_embedding && n.vocabulary > 0;
  const std::int64_t vocabulary = here ? n.vocabulary : 0;
  const std::int64_t tokens = here ? n.tokens : 0;
  const std::int64_t rows = here ? n.rows : 0;
  const std::int64_t positions = here ? n.sequence : 0;
  const double calls = static_cast<double>(b.shard().micros);
  const BenchArray<T> x(exec, tokens, n.hidden), table(exec, vocabulary, n.hidden);
  const BenchArray<G> dtable(exec, vocabulary, n.hidden);
  const Ids ids(exec, tokens, vocabulary);
  const auto of = [&](std::int64_t count, std::size_t bytes) {
    return static_cast<double>(count * n.hidden) * static_cast<double>(bytes);
  };
  b.measure({"embedding.forward", here, calls, tokens, n.hidden,
             traffic(of(std::min(tokens, vocabulary), sizeof(T)), of(tokens, sizeof(T)))},
            [&] { kernels::embedding_lookup<T>(exec, x, ids.view(), table, 0); });
  b.measure({"embedding.backward", here, calls, tokens, n.hidden,
             traffic(of(tokens, sizeof(T)), 0, of(std::min(tokens, vocabulary), sizeof(G)))},
            [&] { kernels::embedding_lookup_backward<T>(exec, dtable, x, ids.view(), 0); });
  if (b.model().positions != Positions::learned) return;
  const BenchArray<T> r(exec, rows, n.hidden), at(exec, positions, n.hidden);
  const BenchArray<G> dat(exec, positions, n.hidden);
  b.measure({"positions.forward", here, calls, rows, n.hidden,
             traffic(of(std::min(rows, positions), sizeof(T)), 0, of(rows, sizeof(T)))},
            [&] { kernels::add_positions<T>(exec, r, at, n.sequence, 0); });
  b.measure({"positions.backward", here, calls, rows, n.hidden,
             traffic(of(rows, sizeof(T)), 0, of(std::min(rows, positions), sizeof(G)))},
            [&] { kernels::positions_backward<T>(exec, dat, r, n.sequence, 0); });
  if (!b.model().predicts_masked_tokens()) return;
  const BenchArray<T> segments(exec, 2, n.hidden);
  const BenchArray<G> dsegments(exec, 2, n.hidden);
  const Ids kinds(exec, tokens, 2);
  b.measure({"segments.forward", here, calls, rows, n.hidden, traffic(0, 0, of(rows, sizeof(T)))},
            [&] { kernels::add_segments<T>(exec, r, segments, kinds.view(), 0); });
  b.measure({"segments.backward", here, calls, rows, n.hidden, traffic(of(rows, sizeof(T)), 0)},
            [&] { kernels::segments_backward<T>(exec, dsegments, r, kinds.view(), 0); });
}

/// Measures the selection of the predicted rows in bert's head, and the placement of their
/// gradients.
template <class P>
void measure_rows(KernelBench& b) {
  using T = typename P::Compute;
  const architecture::RankSizes& n = b.sizes();
  if (!b.model().predicts_masked_tokens()) return;
  const Exec& exec = b.exec();
  const bool here = b.shard().has_head;
  const std::int64_t rows = here ? n.head_rows : 0;
  const double calls = static_cast<double>(b.shard().micros);
  const BenchArray<T> x(exec, here ? n.rows : 0, n.hidden), y(exec, rows, n.hidden);
  const Ids places(exec, rows, n.rows);
  const double bytes = static_cast<double>(rows * n.hidden) * sizeof(T);
  b.measure({"rows.pick", here, calls, rows, n.hidden, traffic(bytes, bytes)},
            [&] { kernels::pick_rows<T>(exec, y, x, places.view(), 0); });
  b.measure({"rows.place", here, calls, rows, n.hidden, traffic(bytes, bytes)},
            [&] { kernels::place_rows<T>(exec, x, y, places.view(), 0); });
}

template <class P>
void measure_loss(KernelBench& b) {
  using T = typename P::Compute;
  using A = Accumulate<T>;
  const architecture::RankSizes& n = b.sizes();
  const Exec& exec = b.exec();
  const bool here = b.shard().has_head && n.vocabulary > 0;
  const std::int64_t rows = here ? n.logit_block : 0;
  const std::int64_t elements = rows * n.vocabulary;
  const BenchArray<A> wide_logits(exec, rows, columns_in_lines<A>(n.vocabulary));
  const BenchArray<T> narrow(exec, is_narrow<T> ? rows : 0, columns_in_lines<T>(n.vocabulary));
  const View2<A> logits = wide_logits.columns(n.vocabulary);
  const BenchArray<double> statistics(exec, rows, 3), merged(exec, rows, 3), losses(exec, rows);
  const Ids targets(exec, rows, n.vocabulary);
  const auto gradient = [&] {  // in the memory of the logits if both have the same type
    if constexpr (is_narrow<T>)
      return narrow.columns(n.vocabulary);
    else
      return logits;
  }();
  const double wide = static_cast<double>(elements) * sizeof(A);
  const auto exponentials = [&](BenchCost cost) {
    cost.arithmetic = kernels::Arithmetic::exponential;
    cost.elements = static_cast<double>(elements);
    return cost;
  };
  const std::int64_t blocks = here ? (n.targets + rows - 1) / rows : 0;
  const auto calls = static_cast<double>(b.shard().micros * blocks);
  b.measure(
      {"cross_entropy.statistics", here, calls, rows, n.vocabulary, exponentials(traffic(wide, 0))},
      [&] { kernels::cross_entropy_statistics<A>(exec, statistics, logits, targets.view(), 0); });
  if (here)
    kernels::cross_entropy_merge(
        exec, losses, merged,
        View3<const double>(statistics.list().data(), 1, static_cast<std::size_t>(rows), 3));
  b.measure({"cross_entropy.gradient", here, calls, rows, n.vocabulary,
             exponentials(is_narrow<T> ? traffic(wide, static_cast<double>(elements) * sizeof(T))
                                       : traffic(0, 0, wide))},
            [&] {
              kernels::cross_entropy_gradient<T>(exec, gradient, logits, merged, targets.view(), 0,
                                                 1.0);
            });
}

}  // namespace

template <class P>
void measure_end_kernels(KernelBench& b) {
  measure_embedding<P>(b);
  measure_rows<P>(b);
  measure_loss<P>(b);
}

template void measure_end_kernels<model::Fp32>(KernelBench&);
template void measure_end_kernels<model::Fp64>(KernelBench&);
template void measure_end_kernels<model::MixedBf16>(KernelBench&);
template void measure_end_kernels<model::MixedFp16>(KernelBench&);

}  // namespace trireme::commands
