/// Kernels that move memory, against what this program measures first: the bandwidth of y += x and
/// the rates of exp, tanh and random words in the cache. GB/s counts what must be read and written
/// once; `predicted` is the longer of the time of those bytes and of that arithmetic, in
/// microseconds; `slower` is the best time over the predicted one.
///   bench_rows [--benchmark_filter=...]

#include <trireme/kernels/cross_entropy.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/embedding.hpp>
#include <trireme/kernels/norm.hpp>
#include <trireme/kernels/random.hpp>
#include <trireme/kernels/update.hpp>
#include <trireme/kernels/words.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/fence.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <vector>

namespace {

using namespace trireme;
using namespace trireme::kernels;

constexpr std::int64_t tokens = 1024;
constexpr std::int64_t hidden = 768;
constexpr std::int64_t feed_forward = 4 * hidden;
constexpr std::int64_t vocabulary = 50304;
constexpr std::int64_t logit_rows = 512;
constexpr std::int64_t parameters = 1 << 24;

/// Of this process on one host thread, so that other programs on the machine do not count; else of
/// the wall clock.
double now(const Exec& exec) {
  if (exec_on_host && exec.concurrency() == 1) {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds_of(const Exec& exec, const std::function<void()>& call) {
  fence(exec, "benchmark begins");
  const double start = now(exec);
  call();
  fence(exec, "benchmark ends");
  return now(exec) - start;
}

double best_of(const Exec& exec, int times, const std::function<void()>& call) {
  double best = 1e30;
  for (int i = 0; i < times; ++i) best = std::min(best, seconds_of(exec, call));
  return best;
}

/// Bytes per second of y += x over arrays of `n` floats: two reads and a write.
double add_bandwidth(const Exec& exec, std::int64_t n) {
  Arena arena("bandwidth", 2 * aligned(n * 4));
  const auto y = arena.take<float>(n);
  const auto x = arena.take<float>(n);
  const auto repetitions = std::max<std::int64_t>(1, 4'000'000 / n);
  const double best = best_of(exec, 20, [&] {
    for (std::int64_t r = 0; r < repetitions; ++r) accumulate<float>(exec, y, x);
  });
  return 12.0 * static_cast<double>(n * repetitions) / best;
}

enum class Work { none, exponential, hyperbolic_tangent, random_words, log_and_cos };

/// Seconds per element of such work, on arrays that stay in the cache and over many teams.
double seconds_per_element(const Exec& exec, Work work) {
  constexpr std::int64_t teams = 4096;
  constexpr std::int64_t n = 2048;
  Arena arena("work", 2 * aligned(n * 4));
  const auto x = arena.take<float>(n);
  const auto y = arena.take<float>(n);
  normal_fill<float>(exec, x, {1, Purpose::initialisation, 0, 0}, 1.0, 0);
  const float* from = x.data();
  float* to = y.data();
  const RandomKey key{1, Purpose::dropout, 0, 0};
  const double best = best_of(exec, 10, [&] {
    for_rows(
        "kernels/bench_work", exec, teams, KOKKOS_LAMBDA(const Team& team, std::int64_t) {
          if (work == Work::exponential)
            for_lanes(team, n, [&](std::int64_t i) { to[i] = fast_exp(from[i]); });
          else if (work == Work::hyperbolic_tangent)
            for_lanes(team, n, [&](std::int64_t i) { to[i] = fast_tanh(from[i]); });
          else if (work == Work::log_and_cos)
            for_lanes(team, n, [&](std::int64_t i) {
              const double u = 1e-9 + math::fabs(static_cast<double>(from[i]));
              to[i] = static_cast<float>(math::log(u) * math::cos(u));
            });
          else
            for_words(team, key, 0, n, [&](std::int64_t i, std::uint32_t word) {
              to[i] = static_cast<float>(word & 1U);
            });
        });
  });
  return best / static_cast<double>(teams * n);
}

/// What all calls work on.
struct Fixture {
  Exec exec;
  Arena arena;
  View2<float> x, y, z, h, g, dh, logits, table, positions, dtable, dpositions;
  View1<float> mean, inverse, gain, bias, dgain, dbias, weight, m, v, gradient;
  View1<double> loss, partial, control;
  View2<double> statistics, merged;
  View3<const double> parts;
  View1<std::int32_t> ids, targets;
  View1<std::int64_t> count;

  Fixture() {
    Arena plan;
    place(plan);
    arena = Arena("benchmark", plan.used());
    place(arena);
    fill_arrays();
  }

  void place(Arena& a) {
    for (auto* view : {&x, &y, &z}) *view = a.take<float>(tokens, hidden);
    for (auto* view : {&h, &g, &dh}) *view = a.take<float>(tokens, feed_forward);
    for (auto* view : {&table, &dtable}) *view = a.take<float>(vocabulary, hidden);
    for (auto* view : {&positions, &dpositions}) *view = a.take<float>(tokens, hidden);
    for (auto* view : {&mean, &inverse}) *view = a.take<float>(tokens);
    for (auto* view : {&gain, &bias, &dgain, &dbias}) *view = a.take<float>(hidden);
    for (auto* view : {&weight, &m, &v, &gradient}) *view = a.take<float>(parameters);
    logits = a.take<float>(logit_rows, vocabulary);
    loss = a.take<double>(logit_rows);
    for (auto* view : {&statistics, &merged}) *view = a.take<double>(logit_rows, 3);
    partial = a.take<double>(norm_blocks(parameters));
    control = a.take<double>(control_size);
    ids = a.take<std::int32_t>(tokens);
    targets = View1<std::int32_t>(ids.data(), logit_rows);
    parts = View3<const double>(statistics.data(), 1, logit_rows, 3);
    count = a.take<std::int64_t>(1);
  }

  void fill_arrays() {
    std::uint32_t stream = 0;
    const auto random = [&](auto view) {
      normal_fill<float>(exec, View1<float>(view.data(), view.size()),
                         {1, Purpose::initialisation, stream++}, 1.0, 0);
    };
    random(x), random(y), random(z), random(h), random(g), random(table), random(positions),
        random(logits);
    random(gain), random(bias), random(weight), random(gradient);
    fill<double>(exec, control, 0.5);
    layer_norm_forward<float>(exec, y, mean, inverse, x, gain, bias, 1e-5);
    auto host = Kokkos::create_mirror_view(Kokkos::HostSpace(), ids);
    for (std::int64_t t = 0; t < tokens; ++t)
      host(static_cast<std::size_t>(t)) = static_cast<std::int32_t>(t * 48271 % vocabulary);
    Kokkos::deep_copy(ids, host);
    cross_entropy_statistics<float>(exec, statistics, logits, targets, 0);
    cross_entropy_merge(exec, loss, merged, parts);
    fence(exec, "arrays are filled");
  }
};

struct Case {
  const char* name;
  double bytes;  // that must be read and written once, in memory
  std::function<void()> call;
  Work work = Work::none;
  double elements = 0;  // of that work
};

std::vector<Case> cases(Fixture& f) {
  constexpr double rows =
      4.0 * tokens * hidden;  // bytes of [T,D], of [T,F], of the logits, of the parameters
  constexpr double wide = 4.0 * tokens * feed_forward;
  constexpr double logits = 4.0 * logit_rows * vocabulary;
  constexpr double weights = 4.0 * parameters;
  const Dropout dropout{0.1, {1, Purpose::dropout, 2, 3}, 0};
  const auto& e = f.exec;
  return {
      {"layer_norm_forward", 2 * rows,
       [&] { layer_norm_forward<float>(e, f.y, f.mean, f.inverse, f.x, f.gain, f.bias, 1e-5); }},
      {"layer_norm_backward_input", 4 * rows,
       [&] {
         layer_norm_backward_input<float>(e, f.z, f.y, f.x, f.mean, f.inverse, f.gain, true);
       }},
      {"layer_norm_backward_weight", 2 * rows,
       [&] {
         layer_norm_backward_weight<float>(e, f.dgain, f.dbias, f.y, f.x, f.mean, f.inverse);
       }},
      {"gelu_forward", 2 * wide, [&] { gelu_forward<float>(e, f.g, f.h); },
       Work::hyperbolic_tangent, wide / 4},
      {"gelu_backward", 3 * wide, [&] { gelu_backward<float>(e, f.dh, f.g, f.h); },
       Work::hyperbolic_tangent, wide / 4},
      {"residual_no_dropout", 3 * rows,
       [&] { residual_dropout_forward<float>(e, f.z, f.x, f.y, {}); }},
      {"residual_dropout", 3 * rows,
       [&, dropout] { residual_dropout_forward<float>(e, f.z, f.x, f.y, dropout); },
       Work::random_words, rows / 4},
      {"dropout_backward", 2 * rows,
       [&, dropout] { dropout_backward<float>(e, f.z, f.y, dropout); }, Work::random_words,
       rows / 4},
      {"embedding_lookup", 2 * rows, [&] { embedding_lookup<float>(e, f.z, f.ids, f.table, 0); }},
      {"add_positions", 3 * rows, [&] { add_positions<float>(e, f.z, f.positions, tokens, 0); }},
      {"embedding_lookup_backward", 3 * rows,
       [&] { embedding_lookup_backward<float>(e, f.dtable, f.x, f.ids, 0); }},
      {"positions_backward", 3 * rows,
       [&] { positions_backward<float>(e, f.dpositions, f.x, tokens, 0); }},
      {"cross_entropy_statistics", logits,
       [&] { cross_entropy_statistics<float>(e, f.statistics, f.logits, f.targets, 0); },
       Work::exponential, logits / 4},
      {"cross_entropy_gradient", 2 * logits,
       [&] { cross_entropy_gradient<float>(e, f.logits, f.logits, f.merged, f.targets, 0, 1.0); },
       Work::exponential, logits / 4},
      {"cross_entropy", 3 * logits,
       [&] {
         cross_entropy_statistics<float>(e, f.statistics, f.logits, f.targets, 0);
         cross_entropy_merge(e, f.loss, f.merged, f.parts);
         cross_entropy_gradient<float>(e, f.logits, f.logits, f.merged, f.targets, 0, 1.0);
       },
       Work::exponential, logits / 2},
      {"adamw_update", 7 * weights,
       [&] {
         adamw_update<float>(e, f.weight, f.m, f.v, f.gradient, {1e-9, 0.9, 0.95, 1e-8, 0.1},
                             f.control);
       }},
      {"squared_norm_blocks", weights,
       [&] { squared_norm_blocks<float>(e, f.partial, f.gradient); }},
      {"count_non_finite", weights, [&] { count_non_finite<float>(e, f.count, f.gradient); }},
      {"copy", 2 * weights, [&] { copy<float>(e, f.m, f.gradient); }},
      {"fill", weights, [&] { fill<float>(e, f.m, 0.0); }},
      {"normal_fill", weights,
       [&] {
         normal_fill<float>(e, f.m, {1, Purpose::initialisation, 0, 0}, 0.02, 0);
       },
       Work::log_and_cos, weights / 4},
  };
}

struct Rates {
  double near, far;  // bytes per second in and beyond the last-level cache
  double work[5];    // seconds per element, by Work
};

void run(benchmark::State& state, const Exec& exec, const Case& kernel, const Rates& rates) {
  // Arrays of up to 24 MB in all stay in a last-level cache between calls, and so does what they
  // are compared with.
  const double bandwidth = kernel.bytes <= 24e6 ? rates.near : rates.far;
  const double predicted = std::max(kernel.bytes / bandwidth,
                                    kernel.elements * rates.work[static_cast<int>(kernel.work)]);
  double best = 1e30;
  for (auto _ : state) {
    const double seconds = seconds_of(exec, kernel.call);
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
  }
  state.counters["GB/s"] = kernel.bytes / best * 1e-9;
  state.counters["predicted"] = predicted * 1e6;
  state.counters["slower"] = best / predicted;
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const Kokkos::ScopeGuard kokkos(argc, argv);
  Fixture fixture;
  const std::int64_t cached = 3 * tokens * hidden / 2;
  Rates rates{add_bandwidth(fixture.exec, cached), add_bandwidth(fixture.exec, parameters), {}};
  for (const Work work :
       {Work::exponential, Work::hyperbolic_tangent, Work::random_words, Work::log_and_cos})
    rates.work[static_cast<int>(work)] = seconds_per_element(fixture.exec, work);
  std::printf("y += x: %.1f GB/s in arrays of %.1f MB, %.1f GB/s in arrays of %.1f MB\n",
              rates.near * 1e-9, static_cast<double>(cached) * 4e-6, rates.far * 1e-9,
              parameters * 4e-6);
  std::printf("exp %.3f ns, tanh %.3f ns, random word %.3f ns, log and cos in double %.1f ns\n",
              rates.work[1] * 1e9, rates.work[2] * 1e9, rates.work[3] * 1e9, rates.work[4] * 1e9);
  const auto all = cases(fixture);
  for (const Case& kernel : all)
    benchmark::RegisterBenchmark(
        kernel.name, [&](benchmark::State& state) { run(state, fixture.exec, kernel, rates); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
