// Counts of the tokens of experts by chunk, and the routes above a limit.
#include <trireme/kernels/expert_capacity.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/experts.hpp>
#include <trireme/kernels/math.hpp>
#include <trireme/kernels/packs.hpp>
#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {
namespace {

template <class View>
void expect_chunks(const View& routes,
                   const View2<const typename View::non_const_value_type>& counts,
                   const SampleChunks& chunks) {
  const std::int64_t tokens = extent(routes, 0), columns = extent(routes, 1);
  check(columns >= 2 && columns % 2 == 0, "routes have ", columns,
        " columns, expected a weight and a number for each active expert");
  check(chunks.tokens > 0 && tokens % chunks.tokens == 0 && chunks.head <= chunks.tokens &&
            chunks.first < chunks.count && chunks.second < chunks.count,
        tokens, " rows in samples of ", chunks.tokens, " with chunks ", chunks.first, " and ",
        chunks.second, " of ", chunks.count, ", expected whole samples and chunks of theirs");
  expect_shape(counts, "counts", {tokens / chunks.tokens * chunks.count, extent(counts, 1)});
}

/// Row of `counts` for token t.
KOKKOS_FORCEINLINE_FUNCTION std::int64_t chunk_of(const SampleChunks& chunks, std::int64_t t) {
  return t / chunks.tokens * chunks.count +
         (t % chunks.tokens < chunks.head ? chunks.first : chunks.second);
}

/// TokenLimit in a kernel.
template <class A>
struct LimitOf {
  A most;
  double capacity;
  View1<const std::int32_t> tokens;
  std::int64_t active, experts;

  /// Limit of the sample of token t, by the same operations as ExpertsConfig::tokens_per_sample().
  KOKKOS_FORCEINLINE_FUNCTION A operator()(std::int64_t t) const {
    if (tokens.extent(0) == 0) return most;
    const auto all = static_cast<double>(tokens(t));
    const double mean = all * static_cast<double>(active) / static_cast<double>(experts);
    const double limit = math::ceil(capacity * mean);
    return static_cast<A>(limit < all ? limit : all);
  }
};

/// Host: one thread counts the routes of each expert in the order of the tokens.
template <class A>
void drop_in_order(const Exec& exec, View2<A> routes, View2<A> counts, const SampleChunks& chunks,
                   const LimitOf<A>& limit) {
  const std::int64_t tokens = extent(routes, 0), active = extent(routes, 1) / 2;
  for_rows(
      "kernels/drop_routes", exec, tokens / chunks.tokens,
      KOKKOS_LAMBDA(const Team&, std::int64_t b) {
        for (std::int64_t t = b * chunks.tokens; t < (b + 1) * chunks.tokens; ++t) {
          A* before = row_of(counts, chunk_of(chunks, t));
          A* numbers = row_of(routes, t) + active;
          const A most = limit(t);
          for (std::int64_t j = 0; j < active; ++j) {
            const auto expert = static_cast<std::int64_t>(numbers[j]);
            if (expert == no_expert) continue;
            if (before[expert] >= most) numbers[j] = -1 - numbers[j];
            before[expert] += 1;
          }
        }
      });
}

/// Devices: a team for each sample and expert, which counts the routes of a chunk in a scan.
template <class A>
struct DropRoutes {
  using Member = DevicePolicy::member_type;

  View2<A> routes, counts;
  SampleChunks chunks;
  LimitOf<A> limit;

  KOKKOS_FUNCTION void in_chunk(const Member& team, std::int64_t expert, std::int64_t first,
                                std::int64_t tokens) const {
    if (tokens == 0) return;
    const std::int64_t active = extent(routes, 1) / 2;
    const A number = static_cast<A>(expert), before = counts(chunk_of(chunks, first), expert);
    Kokkos::parallel_scan(Kokkos::TeamThreadRange(team, tokens),
                          [&](const std::int64_t t, int& routed, const bool final) {
                            A* numbers = row_of(routes, first + t) + active;
                            std::int64_t j = 0;
                            while (j < active && numbers[j] != number) ++j;
                            if (j == active) return;
                            if (final && before + static_cast<A>(routed) >= limit(first + t))
                              numbers[j] = -1 - number;
                            ++routed;
                          });
  }

  KOKKOS_FUNCTION void operator()(const Member& team) const {
    const std::int64_t experts = extent(counts, 1);
    const std::int64_t sample = team.league_rank() / experts;
    const std::int64_t expert = team.league_rank() % experts, first = sample * chunks.tokens;
    in_chunk(team, expert, first, chunks.head);
    in_chunk(team, expert, first + chunks.head, chunks.tokens - chunks.head);
  }
};

}  // namespace

template <class A>
void leave_out_padding(const Exec& exec, View2<A> routes, View2<A> scores, View1<A> sums,
                       View1<const std::int32_t> tokens) {
  const std::int64_t rows = extent(routes, 0), columns = extent(routes, 1);
  const std::int64_t experts = extent(scores, 1), active = columns / 2;
  expect_shape(scores, "scores", {rows, experts});
  expect_shape(tokens, "tokens", {rows});
  const bool has_sums = sums.extent(0) > 0;
  if (has_sums) expect_shape(sums, "sums", {rows});
  for_rows(
      "kernels/leave_out_padding", exec, rows, KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        if (tokens(t) != 0) return;
        A* route = row_of(routes, t);
        for_lanes(team, columns,
                  [&](std::int64_t j) { route[j] = j < active ? A(0) : A(no_expert); });
        A* score = row_of(scores, t);
        for_lanes(team, experts, [&](std::int64_t e) { score[e] = 0; });
        if (has_sums) once(team, [&]() { sums(t) = 0; });
      });
}

template <class A>
void count_chunks(const Exec& exec, View2<A> counts, View2<const A> routes,
                  const SampleChunks& chunks) {
  expect_chunks(routes, counts, chunks);
  fill<A>(exec, flat(counts), 0);
  const std::int64_t active = extent(routes, 1) / 2;
  // Sums of whole numbers do not depend on their order.
  Kokkos::parallel_for(
      "kernels/count_chunks",
      Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, extent(routes, 0)),
      KOKKOS_LAMBDA(const std::int64_t t) {
        for (std::int64_t j = active; j < 2 * active; ++j)
          if (const std::int64_t e = chosen_expert(routes(t, j)); e >= 0)
            Kokkos::atomic_add(&counts(chunk_of(chunks, t), e), A(1));
      });
}

template <class A>
void drop_routes(const Exec& exec, View2<A> routes, View2<A> counts, const SampleChunks& chunks,
                 const TokenLimit& limit) {
  expect_chunks(routes, counts, chunks);
  if (limit.tokens.extent(0) > 0) expect_shape(limit.tokens, "tokens", {extent(routes, 0)});
  const LimitOf<A> limit_of{static_cast<A>(limit.most), limit.capacity, limit.tokens,
                            extent(routes, 1) / 2, extent(counts, 1)};
  const std::int64_t samples = extent(routes, 0) / chunks.tokens, experts = extent(counts, 1);
  // Each count becomes the number of routes in the earlier chunks of the sample.
  Kokkos::parallel_for(
      "kernels/sum_chunks",
      Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, samples * experts),
      KOKKOS_LAMBDA(const std::int64_t i) {
        A before = 0;
        for (std::int64_t n = 0; n < chunks.count; ++n) {
          A& count = counts(i / experts * chunks.count + n, i % experts);
          const A mine = count;
          count = before;
          before += mine;
        }
      });
  if constexpr (exec_on_host) {
    drop_in_order<A>(exec, routes, counts, chunks, limit_of);
  } else {
    // Each step of a scan synchronises the team: more threads take fewer steps.
    const int threads = as_on_device ? row_threads(exec) : 512;
    Kokkos::parallel_for("kernels/drop_routes",
                         DevicePolicy(exec, static_cast<int>(samples * experts), threads),
                         DropRoutes<A>{routes, counts, chunks, limit_of});
  }
}

template <class A>
void count_dropped(const Exec& exec, View1<double> sum, View2<const A> routes) {
  const std::int64_t active = extent(routes, 1) / 2;
  // Sums of whole numbers do not depend on their order.
  Kokkos::parallel_for(
      "kernels/count_dropped",
      Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, extent(routes, 0)),
      KOKKOS_LAMBDA(const std::int64_t t) {
        int dropped = 0;
        for (std::int64_t j = active; j < 2 * active; ++j)
          dropped += routes(t, j) < 0 && routes(t, j) != A(no_expert) ? 1 : 0;
        if (dropped > 0) Kokkos::atomic_add(&sum(0), static_cast<double>(dropped));
      });
}

#define TRIREME_INSTANTIATE(A)                                                               \
  template void leave_out_padding<A>(const Exec&, View2<A>, View2<A>, View1<A>,              \
                                     View1<const std::int32_t>);                             \
  template void count_chunks<A>(const Exec&, View2<A>, View2<const A>, const SampleChunks&); \
  template void drop_routes<A>(const Exec&, View2<A>, View2<A>, const SampleChunks&,         \
                               const TokenLimit&);                                           \
  template void count_dropped<A>(const Exec&, View1<double>, View2<const A>);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
