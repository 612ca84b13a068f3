/// Kernels that move memory, against the bandwidth that this program measures first: time, GB/s of
/// what must be read and written, and `roofline`: the time that those bytes take at the measured
/// bandwidth, over the time taken.
///   bench_rows [--benchmark_filter=...]

#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/norm.hpp>
#include <trireme/kernels/random.hpp>
#include <trireme/kernels/update.hpp>
#include <trireme/kernels/vocabulary.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/fence.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>

namespace {

using namespace trireme;
using namespace trireme::kernels;

constexpr std::int64_t tokens = 1024;
constexpr std::int64_t hidden = 768;
constexpr std::int64_t feed_forward = 4 * hidden;
constexpr std::int64_t vocabulary = 50304;
constexpr std::int64_t logit_rows = 512;
constexpr std::int64_t parameters = 1 << 24;

double seconds_of(const Exec& exec, const std::function<void()>& call) {
  fence(exec, "benchmark begins");
  const auto start = std::chrono::steady_clock::now();
  call();
  fence(exec, "benchmark ends");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Best of several, in bytes per second, of y += x over arrays of `n` floats: two reads and a
/// write.
double triad_bandwidth(const Exec& exec, std::int64_t n) {
  Arena arena("triad", 2 * aligned(n * 4));
  const auto y = arena.take<float>(n);
  const auto x = arena.take<float>(n);
  double best = 1e30;
  const auto repetitions = std::max<std::int64_t>(1, 4'000'000 / n);
  for (int i = 0; i < 20; ++i)
    best = std::min(best, seconds_of(exec, [&] {
                      for (std::int64_t r = 0; r < repetitions; ++r) accumulate<float>(exec, y, x);
                    }));
  return 12.0 * static_cast<double>(n * repetitions) / best;
}

/// What all calls work on.
struct Fixture {
  Exec exec;
  Arena arena;
  View2<float> x, y, z, h, g, dh, logits, table, positions, dtable, dpositions;
  View1<float> mean, inverse, gain, bias, dgain, dbias, weight, m, v, gradient;
  View1<double> loss, partial, one;
  View1<std::int32_t> ids;
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
    partial = a.take<double>(norm_blocks(parameters));
    one = a.take<double>(1);
    ids = a.take<std::int32_t>(tokens);
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
    fill<double>(exec, one, 1.0);
    layer_norm_forward<float>(exec, y, mean, inverse, x, gain, bias, 1e-5);
    auto host = Kokkos::create_mirror_view(Kokkos::HostSpace(), ids);
    for (std::int64_t t = 0; t < tokens; ++t)
      host(static_cast<std::size_t>(t)) = static_cast<std::int32_t>(t * 48271 % vocabulary);
    Kokkos::deep_copy(ids, host);
    fence(exec, "arrays are filled");
  }
};

struct Case {
  const char* name;
  double bytes;  // that must be read and written once, in memory
  std::function<void()> call;
};

std::vector<Case> cases(Fixture& f) {
  constexpr double rows =
      4.0 * tokens * hidden;  // bytes of [T,D], of [T,F], of the logits, of the parameters
  constexpr double wide = 4.0 * tokens * feed_forward;
  constexpr double logits = 4.0 * logit_rows * vocabulary;
  constexpr double weights = 4.0 * parameters;
  const Dropout dropout{0.1, {1, Purpose::dropout, 2, 3}, 0};
  const View1<const std::int32_t> targets(f.ids.data(), logit_rows);
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
      {"gelu_forward", 2 * wide, [&] { gelu_forward<float>(e, f.g, f.h); }},
      {"gelu_backward", 3 * wide, [&] { gelu_backward<float>(e, f.dh, f.g, f.h); }},
      {"residual_no_dropout", 3 * rows,
       [&] { residual_dropout_forward<float>(e, f.z, f.x, f.y, {}); }},
      {"residual_dropout", 3 * rows,
       [&, dropout] { residual_dropout_forward<float>(e, f.z, f.x, f.y, dropout); }},
      {"dropout_backward", 2 * rows,
       [&, dropout] { dropout_backward<float>(e, f.z, f.y, dropout); }},
      {"embedding_forward", 3 * rows,
       [&] { embedding_forward<float>(e, f.z, f.ids, f.table, f.positions, tokens); }},
      {"embedding_backward", 6 * rows,
       [&] { embedding_backward<float>(e, f.dtable, f.dpositions, f.x, f.ids, tokens); }},
      {"cross_entropy_forward", logits,
       [&, targets] { cross_entropy_forward<float>(e, f.loss, f.logits, targets); }},
      {"cross_entropy_forward_backward", 2 * logits,
       [&, targets] { cross_entropy_forward_backward<float>(e, f.loss, f.logits, targets, 1.0); }},
      {"adamw_update", 7 * weights,
       [&] {
         adamw_update<float>(e, f.weight, f.m, f.v, f.gradient, {1e-9, 0.9, 0.95, 1e-8, 0.1, 10},
                             f.one);
       }},
      {"squared_norm_blocks", weights,
       [&] { squared_norm_blocks<float>(e, f.partial, f.gradient); }},
      {"count_non_finite", weights, [&] { count_non_finite<float>(e, f.count, f.gradient); }},
      {"copy", 2 * weights, [&] { copy<float>(e, f.m, f.gradient); }},
      {"fill", weights, [&] { fill<float>(e, f.m, 0.0); }},
      {"normal_fill", weights,
       [&] {
         normal_fill<float>(e, f.m, {1, Purpose::initialisation, 0, 0}, 0.02, 0);
       }},
  };
}

void run(benchmark::State& state, const Exec& exec, const Case& kernel, double near, double far) {
  // Arrays of up to 16 MB in all stay in a last-level cache between calls, and so does what they
  // are compared with.
  const double bandwidth = kernel.bytes <= 16e6 ? near : far;
  double best = 1e30;
  for (auto _ : state) {
    const double seconds = seconds_of(exec, kernel.call);
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
  }
  state.counters["GB/s"] = kernel.bytes / best * 1e-9;
  state.counters["roofline"] = kernel.bytes / bandwidth / best;
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const Kokkos::ScopeGuard kokkos(argc, argv);
  Fixture fixture;
  const double near = triad_bandwidth(fixture.exec, 3 * tokens * hidden / 2);
  const double far = triad_bandwidth(fixture.exec, parameters);
  std::printf("y += x: %.1f GB/s in arrays of %.1f MB, %.1f GB/s in arrays of %.1f MB\n",
              near * 1e-9, 3 * tokens * hidden / 2 * 4e-6, far * 1e-9, parameters * 4e-6);
  const auto all = cases(fixture);
  for (const Case& kernel : all)
    benchmark::RegisterBenchmark(
        kernel.name, [&](benchmark::State& state) { run(state, fixture.exec, kernel, near, far); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
