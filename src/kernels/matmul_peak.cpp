#include <trireme/base/check.hpp>
#include <trireme/base/clock.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/random.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/device.hpp>
#include <trireme/tensor/fence.hpp>

#include <algorithm>

namespace trireme::kernels {
namespace {

template <class T>
double measure_peak(const Handle& handle) {
  constexpr double limit_seconds = 0.3;
  const auto bytes_of = [](std::int64_t n) {
    return aligned(n * n * static_cast<Bytes>(sizeof(T)));
  };
  std::int64_t n = exec_on_host || as_on_device ? 512 : 8192;
  // The arrays live only here and are not in the memory plan: a nearly full device has smaller
  // ones.
  if (const auto device = device_info())
    while (n > 1024 && 3 * bytes_of(n) > device->free / 2) n /= 2;
  Arena arena("matmul peak", 3 * bytes_of(n));
  const View2<T> a = arena.take<T>(n, n);
  const View2<T> b = arena.take<T>(n, n);
  const View2<T> c = arena.take<T>(n, n);
  fill_operand<T>(handle, flat(a), 0);
  fill_operand<T>(handle, flat(b), 1);
  const auto run = [&] {
    const auto start = Clock::now();
    matmul<T>(handle, c, a, b, Transpose::no, Transpose::no);
    fence(handle, "matmul peak");
    return seconds_since(start);
  };
  double total = run();  // first touch and start of the library
  double best = total;
  for (int i = 0; i < 3 || total < limit_seconds; ++i) {
    const Seconds once = run();
    total += once;
    best = std::min(best, once);
  }
  return 2.0 * static_cast<double>(n * n * n) / best;
}

}  // namespace

double measure_matmul_peak(const Handle& handle, DType type) {
  if (type == DType::fp64) return measure_peak<double>(handle);
  if (type == DType::fp32) return measure_peak<float>(handle);
  if (type == DType::bf16) return measure_peak<Bf16>(handle);
  check(type == DType::fp16, "there are no matrix products of ", name_of(type),
        "; expected fp64, fp32, bf16 or fp16");
  return measure_peak<Fp16>(handle);
}

}  // namespace trireme::kernels
