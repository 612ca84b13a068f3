#include <trireme/kernels/matmul_peak.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/clock.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/fp8.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/random.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/device.hpp>
#include <trireme/tensor/fence.hpp>

#include <algorithm>

namespace trireme::kernels {
namespace {

/// Rows of the square matrices: 512 on hosts, 8192 on devices, or fewer (at least 1024) if the
/// matrices would take more than half of the free memory. `bytes_of_an_element`: over all matrices.
std::int64_t rows_with(Bytes bytes_of_an_element) {
  std::int64_t n = exec_on_host || as_on_device ? 512 : 8192;
  if (const auto device = device_info())
    while (n > 1024 && n * n * bytes_of_an_element > device->free / 2) n /= 2;
  return n;
}

/// FLOP/s of the fastest call of `product`, which multiplies n × n matrices.
template <class Product>
double best_rate(const Handle& handle, std::int64_t n, const Product& product) {
  constexpr Seconds limit_seconds = exec_on_host ? 0.1 : 0.3;  // devices raise their clock first
  const auto run = [&] {
    const auto start = Clock::now();
    product();
    fence(handle, "matmul peak");
    return seconds_since(start);
  };
  double total = run();  // first touch, and initialization of the library
  double best = total;
  for (int i = 0; i < 3 || total < limit_seconds; ++i) {
    const Seconds once = run();
    total += once;
    best = std::min(best, once);
  }
  return 2.0 * static_cast<double>(n * n * n) / best;
}

template <class T>
double measure_peak(const Handle& handle) {
  const std::int64_t n = rows_with(3 * static_cast<Bytes>(sizeof(T)));
  Arena arena("matmul peak", 3 * aligned(n * n * static_cast<Bytes>(sizeof(T))));
  const View2<T> a = arena.take<T>(n, n);
  const View2<T> b = arena.take<T>(n, n);
  const View2<T> c = arena.take<T>(n, n);
  fill_operand<T>(handle, flat(a), 0);
  fill_operand<T>(handle, flat(b), 1);
  return best_rate(handle, n, [&] { matmul<T>(handle, c, a, b, Transpose::no, Transpose::no); });
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

double measure_fp8_peak(const Handle& handle) {
  const std::int64_t n = rows_with(2 + 2 * sizeof(E4M3));
  Arena arena("fp8 matmul peak",
              aligned(2 * n * n) + 2 * aligned(n * n) + aligned(Bytes{sizeof(float)}));
  const View2<Bf16> c = arena.take<Bf16>(n, n);
  const View2<E4M3> a = arena.take<E4M3>(n, n);
  const View2<E4M3> b = arena.take<E4M3>(n, n);
  const View1<float> one = arena.take<float>(1);
  fill<float>(handle, one, 1.0F);
  const Fp8Scale scale{one.data(), one.data()};
  fill_operand<Bf16>(handle, flat(c), 0);
  fp8_quantize<E4M3>(handle, a, c, scale);
  fill_operand<Bf16>(handle, flat(c), 1);
  fp8_quantize<E4M3>(handle, b, c, scale);
  return best_rate(handle, n,
                   [&] { fp8_product<E4M3, E4M3, Bf16>(handle, c, a, scale, b, scale, 0.0); });
}

}  // namespace trireme::kernels
