#include <trireme/base/check.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/tiled_matmul.hpp>
#include <trireme/kernels/widened_matmul.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/expect.hpp>
#include <trireme/tensor/fence.hpp>
#include <trireme/tensor/region.hpp>

#include <KokkosBlas3_gemm.hpp>

#if defined(TRIREME_HAS_ONEDNN)
#include <oneapi/dnnl/dnnl.h>
#endif

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <type_traits>

namespace trireme::kernels {
namespace {

#if defined(TRIREME_HAS_ONEDNN)
constexpr bool has_onednn = exec_on_host;
#else
constexpr bool has_onednn = false;
#endif

constexpr MatmulBackend default_backend(DType type) {
  if (!exec_on_host) return MatmulBackend::kokkos_kernels;
  return type == DType::fp32 && has_onednn ? MatmulBackend::onednn : MatmulBackend::tiled;
}

bool is_float(DType type) {
  return type == DType::fp64 || type == DType::fp32 || type == DType::bf16 || type == DType::fp16;
}

/// Products of two-byte numbers are those of fp32.
std::size_t slot(DType type) {
  check(is_float(type), "no matrix products of ", name_of(type),
        "; expected fp64, fp32, bf16 or fp16");
  return type == DType::fp64 ? 0 : 1;
}

std::array<MatmulBackend, 2> backends{default_backend(DType::fp64), default_backend(DType::fp32)};
int library_threads = 0;  // not yet set

template <class T>
void matmul_kokkos_kernels([[maybe_unused]] const Exec& exec, View2<T> c, View2<const T> a,
                           View2<const T> b, Transpose ta, Transpose tb, double alpha,
                           double beta) {
  const char* na = ta == Transpose::yes ? "T" : "N";
  const char* nb = tb == Transpose::yes ? "T" : "N";
#if KOKKOS_VERSION >= 40000
  KokkosBlas::gemm(exec, na, nb, static_cast<T>(alpha), a, b, static_cast<T>(beta), c);
#else  // Kokkos Kernels 3.x knows the default instance only
  KokkosBlas::gemm(na, nb, static_cast<T>(alpha), a, b, static_cast<T>(beta), c);
#endif
}

#if defined(TRIREME_HAS_ONEDNN)
/// dnnl_sgemm and not the matmul primitive: on the products of a transformer it is as fast forward
/// and up to 1.6 times faster backward, and needs neither a cache of primitives nor scratch memory.
void matmul_onednn(View2<float> c, View2<const float> a, View2<const float> b, Transpose ta,
                   Transpose tb, double alpha, double beta) {
  const auto leading = [](const auto& view) {
    return std::max<dnnl_dim_t>(static_cast<dnnl_dim_t>(view.stride(0)), 1);
  };
  const auto status = dnnl_sgemm(
      ta == Transpose::yes ? 'T' : 'N', tb == Transpose::yes ? 'T' : 'N', extent(c, 0),
      extent(c, 1), extent(a, ta == Transpose::yes ? 0 : 1), static_cast<float>(alpha), a.data(),
      leading(a), b.data(), leading(b), static_cast<float>(beta), c.data(), leading(c));
  check(status == dnnl_success, "dnnl_sgemm returned status ", static_cast<int>(status));
}
#endif

/// y[t,:] = bias.
template <class T, class Y>
void broadcast_rows(const Exec& exec, View2<Y> y, View1<const T> bias) {
  const std::int64_t columns = extent(y, 1);
  Kokkos::parallel_for(
      "kernels/linear_bias", Kokkos::RangePolicy<Exec>(exec, 0, extent(y, 0)),
      KOKKOS_LAMBDA(std::int64_t t) {
        Y* __restrict row = &y(t, 0);
        const T* __restrict from = bias.data();
#pragma omp simd
        for (std::int64_t n = 0; n < columns; ++n) row[n] = static_cast<Y>(from[n]);
      });
}

/// sum[n] += Σ_t x[t,n]: rows are added in groups of 64, and then the groups, so that rounding
/// grows with T/64 + 64.
template <class T>
void add_column_sums(const Exec& exec, View1<Accumulate<T>> sum, View2<const T> x) {
  using Sum = Accumulate<T>;
  constexpr int width = exec_on_host ? 64 : 1;
  constexpr std::int64_t group = 64;
  const std::int64_t rows = extent(x, 0);
  const std::int64_t columns = extent(x, 1);
  Kokkos::parallel_for(
      "kernels/linear_backward_bias",
      Kokkos::RangePolicy<Exec>(exec, 0, (columns + width - 1) / width),
      KOKKOS_LAMBDA(std::int64_t chunk) {
        const std::int64_t first = chunk * width;
        const auto count = static_cast<int>(columns - first < width ? columns - first : width);
        Sum total[width] = {};
        for (std::int64_t t0 = 0; t0 < rows; t0 += group) {
          const std::int64_t t1 = t0 + group < rows ? t0 + group : rows;
          Sum part[width] = {};
          for (std::int64_t t = t0; t < t1; ++t) {
            const T* __restrict row = &x(t, first);
            if (count == width) {
#pragma omp simd
              for (int n = 0; n < width; ++n) part[n] += static_cast<Sum>(row[n]);
            } else {
              for (int n = 0; n < count; ++n) part[n] += static_cast<Sum>(row[n]);
            }
          }
#pragma omp simd
          for (int n = 0; n < width; ++n) total[n] += part[n];
        }
        for (int n = 0; n < count; ++n) sum(first + n) += total[n];
      });
}

/// Where libraries will not do. An empty sum: they differ in what it does to c, and ours is the
/// definition. And a small aᵀ b on devices, whose parts Kokkos Kernels adds with atomics (below 100
/// elements in 4.6): in another order every time.
bool wants_tiled(std::int64_t rows, std::int64_t columns, std::int64_t depth, Transpose ta,
                 Transpose tb) {
  constexpr std::int64_t small = 1600;
  if (depth == 0) return true;
  return !exec_on_host && ta == Transpose::yes && tb == Transpose::no && rows * columns < small;
}

/// By the library of a type that has one; c is not empty.
template <class T>
void matmul_wide(const Exec& exec, View2<T> c, View2<const T> a, View2<const T> b, Transpose ta,
                 Transpose tb, double alpha, double beta) {
  if (exec_on_host && library_threads == 0)
    set_matmul_threads(static_cast<int>(exec.concurrency()));

  const std::int64_t depth = extent(a, ta == Transpose::yes ? 0 : 1);
  const MatmulBackend backend = wants_tiled(extent(c, 0), extent(c, 1), depth, ta, tb)
                                    ? MatmulBackend::tiled
                                    : matmul_backend(dtype_of<T>);
  switch (backend) {
    case MatmulBackend::tiled:
      return matmul_tiled<T>(exec, c, a, b, ta, tb, alpha, beta);
    case MatmulBackend::kokkos_kernels:
      return matmul_kokkos_kernels<T>(exec, c, a, b, ta, tb, alpha, beta);
    case MatmulBackend::onednn:
#if defined(TRIREME_HAS_ONEDNN)
      if constexpr (std::is_same_v<T, float>) return matmul_onednn(c, a, b, ta, tb, alpha, beta);
#endif
      break;
  }
  check(false, name_of(backend), " has no products of ", name_of(dtype_of<T>));
}

}  // namespace

template <class T>
void matmul(const Exec& exec, View2<T> c, View2<const T> a, View2<const T> b, Transpose ta,
            Transpose tb, double alpha, double beta) {
  const std::int64_t rows = extent(c, 0);
  const std::int64_t columns = extent(c, 1);
  const std::int64_t depth = extent(a, ta == Transpose::yes ? 0 : 1);
  const auto shape = [](Transpose t, std::int64_t m, std::int64_t n) {
    return t == Transpose::yes ? std::array{n, m} : std::array{m, n};
  };
  const auto a_shape = shape(ta, rows, depth);
  const auto b_shape = shape(tb, depth, columns);
  expect_shape(a, "a", {a_shape[0], a_shape[1]});
  expect_shape(b, "b", {b_shape[0], b_shape[1]});
  if (rows == 0 || columns == 0) return;
  const Region region("kernels/matmul");  // a library's product is no kernel to Kokkos
  if constexpr (is_narrow<T>) {
    matmul_widened<T, T>(exec, c, a, b, ta, tb, alpha, beta);
  } else {
    matmul_wide<T>(exec, c, a, b, ta, tb, alpha, beta);
  }
}

template <class T>
void linear_forward_wide(const Exec& exec, View2<Accumulate<T>> y, View2<const T> x,
                         View2<const T> w, View1<const T> bias) {
  if constexpr (is_narrow<T>) {
    expect_shape(y, "y", {extent(x, 0), extent(w, 0)});
    expect_shape(w, "w", {extent(w, 0), extent(x, 1)});
    const bool has_bias = bias.data() != nullptr && bias.extent(0) > 0;
    if (has_bias) {
      expect_shape(bias, "bias", {extent(w, 0)});
      broadcast_rows<T, Accumulate<T>>(exec, y, bias);
    }
    matmul_widened<T, Accumulate<T>>(exec, y, x, w, Transpose::no, Transpose::yes, 1.0,
                                     has_bias ? 1.0 : 0.0);
  } else {
    linear_forward<T>(exec, y, x, w, bias);
  }
}

template <class T>
void linear_forward(const Exec& exec, View2<T> y, View2<const T> x, View2<const T> w,
                    View1<const T> bias) {
  const std::int64_t tokens = extent(x, 0);
  const std::int64_t outputs = extent(w, 0);
  expect_shape(y, "y", {tokens, outputs});
  expect_shape(w, "w", {outputs, extent(x, 1)});
  const bool has_bias = bias.data() != nullptr && bias.extent(0) > 0;
  if (has_bias) {
    expect_shape(bias, "bias", {outputs});
    broadcast_rows<T, T>(exec, y, bias);
  }
  matmul<T>(exec, y, x, w, Transpose::no, Transpose::yes, 1.0, has_bias ? 1.0 : 0.0);
}

template <class T>
void linear_backward_input(const Exec& exec, View2<T> dx, View2<const T> dy, View2<const T> w) {
  expect_shape(dx, "dx", {extent(dy, 0), extent(w, 1)});
  expect_shape(w, "w", {extent(dy, 1), extent(dx, 1)});
  matmul<T>(exec, dx, dy, w, Transpose::no, Transpose::no);
}

template <class T>
void linear_backward_bias(const Exec& exec, View1<Accumulate<T>> dbias, View2<const T> dy) {
  expect_shape(dbias, "dbias", {extent(dy, 1)});
  add_column_sums<T>(exec, dbias, dy);
}

template <class T>
void linear_backward_weight(const Exec& exec, View2<Accumulate<T>> dw, View1<Accumulate<T>> dbias,
                            View2<const T> dy, View2<const T> x) {
  expect_shape(dw, "dw", {extent(dy, 1), extent(x, 1)});
  expect_shape(x, "x", {extent(dy, 0), extent(dw, 1)});
  if (dbias.data() != nullptr && dbias.extent(0) > 0) linear_backward_bias<T>(exec, dbias, dy);
  if constexpr (is_narrow<T>)
    matmul_widened<T, Accumulate<T>>(exec, dw, dy, x, Transpose::yes, Transpose::no, 1.0, 1.0);
  else
    matmul<T>(exec, dw, dy, x, Transpose::yes, Transpose::no, 1.0, 1.0);
}

std::string_view name_of(MatmulBackend backend) {
  switch (backend) {
    case MatmulBackend::tiled:
      return "tiled";
    case MatmulBackend::kokkos_kernels:
      return "Kokkos Kernels";
    case MatmulBackend::onednn:
      return "oneDNN";
  }
  return "";
}

bool matmul_backend_available(DType type, MatmulBackend backend) {
  if (type != DType::fp32 && type != DType::fp64) return false;
  return backend != MatmulBackend::onednn || (has_onednn && type == DType::fp32);
}

MatmulBackend matmul_backend(DType type) {
  return backends[slot(type)];
}

void set_matmul_backend(DType type, MatmulBackend backend) {
  check(matmul_backend_available(type, backend), "matrix products of ", name_of(type),
        " are not available from ", name_of(backend));
  backends[slot(type)] = backend;
}

std::string matmul_backend_name(DType type) {
  const MatmulBackend backend = matmul_backend(type);
  std::string name(name_of(backend));
#if defined(TRIREME_HAS_ONEDNN)
  if (backend == MatmulBackend::onednn) {
    const dnnl_version_t* version = dnnl_version();
    name = text(name, ' ', version->major, '.', version->minor, '.', version->patch);
  }
#endif
  return type == DType::bf16 || type == DType::fp16 ? name + " in fp32" : name;
}

void set_matmul_threads(int threads) {
  check(threads >= 1, "matrix products need at least 1 thread, got ", threads);
  library_threads = threads;
  // Found at run time: whichever OpenMP the libraries brought along is the one to tell, and a
  // library built without it needs no telling.
  using SetThreads = void (*)(int);
  if (void* symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads"); symbol != nullptr)
    reinterpret_cast<SetThreads>(symbol)(threads);
}

namespace {
template <class T>
double measure_peak(const Exec& exec) {
  constexpr std::int64_t n = exec_on_host || as_on_device ? 512 : 8192;
  constexpr double limit_seconds = 0.3;
  const auto bytes = aligned(n * n * static_cast<std::int64_t>(sizeof(T)));
  Arena arena("matmul peak", 3 * bytes);
  const View2<T> a = arena.take<T>(n, n);
  const View2<T> b = arena.take<T>(n, n);
  const View2<T> c = arena.take<T>(n, n);
  Kokkos::deep_copy(exec, a, T(0.5));
  Kokkos::deep_copy(exec, b, T(0.25));
  const auto run = [&] {
    const auto start = std::chrono::steady_clock::now();
    matmul<T>(exec, c, a, b, Transpose::no, Transpose::no);
    fence(exec, "matmul peak");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  double total = run();  // first touch and start of the library
  double best = total;
  for (int i = 0; i < 3 || total < limit_seconds; ++i) {
    const double seconds = run();
    total += seconds;
    best = std::min(best, seconds);
  }
  return 2.0 * static_cast<double>(n * n * n) / best;
}
}  // namespace

double measure_matmul_peak(const Exec& exec, DType type) {
  if (type == DType::bf16) return measure_peak<Bf16>(exec);
  if (type == DType::fp16) return measure_peak<Fp16>(exec);
  return slot(type) == slot(DType::fp64) ? measure_peak<double>(exec) : measure_peak<float>(exec);
}

#define TRIREME_INSTANTIATE(T)                                                                     \
  template void matmul<T>(const Exec&, View2<T>, View2<const T>, View2<const T>, Transpose,        \
                          Transpose, double, double);                                              \
  template void linear_forward<T>(const Exec&, View2<T>, View2<const T>, View2<const T>,           \
                                  View1<const T>);                                                 \
  template void linear_forward_wide<T>(const Exec&, View2<Accumulate<T>>, View2<const T>,          \
                                       View2<const T>, View1<const T>);                            \
  template void linear_backward_input<T>(const Exec&, View2<T>, View2<const T>, View2<const T>);   \
  template void linear_backward_weight<T>(const Exec&, View2<Accumulate<T>>, View1<Accumulate<T>>, \
                                          View2<const T>, View2<const T>);                         \
  template void linear_backward_bias<T>(const Exec&, View1<Accumulate<T>>, View2<const T>)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
