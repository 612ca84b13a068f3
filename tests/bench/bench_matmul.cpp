// bench_matmul [--benchmark_filter=...]: rates of the matrix products of a transformer, by back
// end, as share of the best product of this machine (`peak_share`).
#include <trireme/base/text.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/matmul_peak.hpp>
#include <trireme/kernels/random.hpp>
#include <trireme/tensor/fence.hpp>

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "support/device_array.hpp"

namespace {

using namespace trireme;
using namespace trireme::kernels;
using testing::DeviceArray;

enum class Pass { forward, backward_input, backward_weight };
constexpr const char* pass_names[] = {"forward", "backward_input", "backward_weight"};

template <class T>
double peak() {
  static const double rate = measure_matmul_peak(Handle{}, dtype_of<T>);
  return rate;
}

template <class T>
void linear(benchmark::State& state, MatmulBackend backend, Pass pass, std::int64_t tokens,
            std::int64_t outputs, std::int64_t inputs) {
  const Handle handle(KernelChoice().set_products(dtype_of<T>, backend));
  const double best = peak<T>();
  const DeviceArray<T> x(tokens * inputs), w(outputs * inputs), bias(outputs), y(tokens * outputs);
  std::uint32_t number = 0;
  for (const auto* operand : {&x, &w, &bias, &y})
    fill_operand<T>(handle, operand->flat(), number++);
  const bool sums = pass == Pass::backward_weight;
  const DeviceArray<Accumulate<T>> dw(sums ? outputs * inputs : 0), dbias(sums ? outputs : 0);
  for (auto _ : state) {
    switch (pass) {
      case Pass::forward:
        linear_forward<T>(handle, y.matrix(tokens, outputs), x.matrix(tokens, inputs),
                          w.matrix(outputs, inputs), bias.flat());
        break;
      case Pass::backward_input:
        linear_backward_input<T>(handle, x.matrix(tokens, inputs), y.matrix(tokens, outputs),
                                 w.matrix(outputs, inputs));
        break;
      case Pass::backward_weight:
        linear_backward_weight<T>(handle, dw.matrix(outputs, inputs), dbias.flat(),
                                  y.matrix(tokens, outputs), x.matrix(tokens, inputs));
        break;
    }
    fence(handle, "benchmark");
  }
  const double flops = 2.0 * static_cast<double>(tokens * outputs * inputs);
  using benchmark::Counter;
  state.counters["FLOP/s"] = Counter(flops, Counter::kIsIterationInvariantRate);
  state.counters["peak_share"] = Counter(flops / best, Counter::kIsIterationInvariantRate);
}

template <class T>
void register_type() {
  struct Shape {
    std::int64_t tokens, outputs, inputs;
  };
  std::vector<Shape> shapes{{2048, 128, 128}, {2048, 384, 128}, {2048, 1024, 256}};
  if (dtype_of<T> != DType::fp64)
    for (const Shape& s : {Shape{1024, 2304, 768},
                           {1024, 768, 768},
                           {1024, 3072, 768},
                           {1024, 768, 3072},
                           {256, 50304, 768}})
      shapes.push_back(s);
  for (const auto backend :
       {MatmulBackend::tiled, MatmulBackend::kokkos_kernels, MatmulBackend::onednn,
        MatmulBackend::cublaslt, MatmulBackend::native, MatmulBackend::widened}) {
    if (!matmul_backend_available(dtype_of<T>, backend)) continue;
    for (const Shape& s : shapes)
      for (const Pass pass : {Pass::forward, Pass::backward_input, Pass::backward_weight})
        benchmark::RegisterBenchmark(text(name_of(dtype_of<T>), '/', name_of(backend), '/',
                                          pass_names[static_cast<int>(pass)], "/T", s.tokens, "/N",
                                          s.outputs, "/M", s.inputs)
                                         .c_str(),
                                     [=](benchmark::State& state) {
                                       linear<T>(state, backend, pass, s.tokens, s.outputs,
                                                 s.inputs);
                                     })
            ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const Kokkos::ScopeGuard kokkos(argc, argv);
  register_type<float>();
  register_type<double>();
  register_type<Bf16>();
  benchmark::AddCustomContext("peak fp32 GFLOP/s", text(peak<float>() * 1e-9));
  benchmark::AddCustomContext("peak fp64 GFLOP/s", text(peak<double>() * 1e-9));
  benchmark::AddCustomContext("peak bf16 GFLOP/s", text(peak<Bf16>() * 1e-9));
  benchmark::RunSpecifiedBenchmarks();
}
