// bench_attention [--benchmark_filter=...]: rates of blockwise attention, counted causally (half of
// the square), as share of the best matrix product of this machine (`peak_share`).
#include <trireme/base/text.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/matmul_peak.hpp>
#include <trireme/tensor/fence.hpp>

#include <benchmark/benchmark.h>

#include <vector>

#include "support/device_array.hpp"

namespace {

using namespace trireme;
using namespace trireme::kernels;
using testing::DeviceArray;
using testing::uniform;

template <class T>
double peak() {
  static const double rate = measure_matmul_peak(Handle{}, dtype_of<T>);
  return rate;
}

template <class T>
void attention(benchmark::State& state, bool backward, const AttentionShape& shape, double rate) {
  const Handle handle;
  const double best = peak<T>();
  const std::int64_t columns = shape.heads * shape.head_size;
  const DeviceArray<T> qkv(uniform<T>(shape.tokens() * shape.qkv_columns(), 1));
  const DeviceArray<T> grad(uniform<T>(shape.tokens() * columns, 2));
  const DeviceArray<T> o(shape.tokens() * columns), dqkv(shape.tokens() * shape.qkv_columns());
  const DeviceArray<Accumulate<T>> lse(shape.tokens() * shape.heads),
      work(attention_workspace_elements<T>(handle.choice(), shape));
  const View2<T> o_view = o.matrix(shape.tokens(), columns);
  const View2<T> qkv_view = qkv.matrix(shape.tokens(), shape.qkv_columns());
  const View3<Accumulate<T>> lse_view = lse.cube(shape.batch, shape.heads, shape.sequence);
  const AttentionDropout dropout{rate, {1, Purpose::attention_dropout, 0, 0}};
  attention_forward<T>(handle, o_view, lse_view, qkv_view, shape, dropout);
  fence(handle, "benchmark");
  for (auto _ : state) {
    if (backward)
      attention_backward<T>(handle, dqkv.matrix(shape.tokens(), shape.qkv_columns()),
                            grad.matrix(shape.tokens(), columns), o_view, qkv_view, lse_view,
                            work.flat(), shape, dropout);
    else
      attention_forward<T>(handle, o_view, lse_view, qkv_view, shape, dropout);
    fence(handle, "benchmark");
  }
  // Two products forward and four backward; the repeated scores of backward are not counted. A
  // causal half.
  const double products = backward ? 4.0 : 2.0;
  const double flops = products * static_cast<double>(shape.tokens() * shape.sequence * columns);
  using benchmark::Counter;
  state.counters["FLOP/s"] = Counter(flops, Counter::kIsIterationInvariantRate);
  state.counters["peak_share"] = Counter(flops / best, Counter::kIsIterationInvariantRate);
}

/// The head sizes of kernels for tensor cores, otherwise some that are and are not multiples of a
/// register tile.
template <class T>
std::vector<std::int64_t> head_sizes() {
  if (is_narrow<T> && !exec_on_host) return {32, 64, 80, 96, 112, 128, 160, 192, 256};
  return {32, 64, 80, 128};
}

template <class T>
void register_type() {
  for (const bool backward : {false, true})
    for (const std::int64_t head_size : head_sizes<T>())
      for (const std::int64_t sequence : {128, 512, 1024, 2048})
        for (const double rate : {0.0, 0.1}) {
          if (rate > 0.0 && (sequence != 1024 || head_size != 64)) continue;
          const AttentionShape shape{2048 / sequence, sequence, 4, 4, head_size};
          benchmark::RegisterBenchmark(
              text(name_of(dtype_of<T>), backward ? "/backward" : "/forward", "/K", head_size, "/S",
                   sequence, rate > 0.0 ? "/dropout" : "")
                  .c_str(),
              [=](benchmark::State& state) { attention<T>(state, backward, shape, rate); })
              ->Unit(benchmark::kMillisecond);
        }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const Kokkos::ScopeGuard kokkos(argc, argv);
  register_type<float>();
  register_type<double>();
  const bool on_tensor_cores =
      attention_backend_available(DType::bf16, AttentionBackend::tensor_cores);
  if (on_tensor_cores || attention_backend_available(DType::bf16, AttentionBackend::native))
    register_type<Bf16>();
  if (on_tensor_cores) register_type<Fp16>();
  benchmark::AddCustomContext("peak fp32 GFLOP/s", text(peak<float>() * 1e-9));
  benchmark::AddCustomContext("peak fp64 GFLOP/s", text(peak<double>() * 1e-9));
  benchmark::RunSpecifiedBenchmarks();
}
