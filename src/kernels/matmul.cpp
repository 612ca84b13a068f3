// Matrix products: checks shapes and calls the back end that the handle's KernelChoice has for the
// operands' type. Empty sums use the tiled kernel. On devices, the tiled kernel also replaces
// Kokkos Kernels for small products aᵀ b.
#include <trireme/base/check.hpp>
#include <trireme/kernels/matmul_cublaslt.hpp>
#include <trireme/kernels/matmul_product.hpp>
#include <trireme/tensor/expect.hpp>
#include <trireme/tensor/region.hpp>

#include <KokkosBlas3_gemm.hpp>

#if defined(TRIREME_HAS_ONEDNN)
#include <oneapi/dnnl/dnnl.h>
#endif

#include <algorithm>
#include <array>
#include <type_traits>

namespace trireme::kernels {
namespace {

template <class T>
void matmul_kokkos_kernels([[maybe_unused]] const Exec& exec, View2<T> c, View2<const T> a,
                           View2<const T> b, Transpose ta, Transpose tb, double alpha,
                           double beta) {
  const char* na = ta == Transpose::yes ? "T" : "N";
  const char* nb = tb == Transpose::yes ? "T" : "N";
#if KOKKOS_VERSION >= 40000
  KokkosBlas::gemm(exec, na, nb, static_cast<T>(alpha), a, b, static_cast<T>(beta), c);
#else  // Kokkos Kernels 3.x supports only the default instance
  KokkosBlas::gemm(na, nb, static_cast<T>(alpha), a, b, static_cast<T>(beta), c);
#endif
}

#if defined(TRIREME_HAS_ONEDNN)
/// dnnl_sgemm is not slower than the matmul primitive for a transformer's products, and needs
/// neither a cache of primitives nor scratch memory.
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

/// Whether c is a small aᵀ b on a device. Kokkos Kernels would split its sums and add the parts
/// with atomics, in varying order.
bool wants_tiled(std::int64_t rows, std::int64_t columns, Transpose ta, Transpose tb) {
  constexpr std::int64_t small = 1600;
  return !exec_on_host && ta == Transpose::yes && tb == Transpose::no && rows * columns < small;
}

/// Product of fp32 or fp64; c must not be empty.
template <class T>
void matmul_wide(const Handle& handle, View2<T> c, View2<const T> a, View2<const T> b, Transpose ta,
                 Transpose tb, double alpha, double beta) {
  set_default_matmul_threads(handle);
  const std::int64_t depth = extent(a, ta == Transpose::yes ? 0 : 1);
  // Libraries differ in their result for an empty sum; the tiled kernel computes c = beta c.
  MatmulBackend backend = depth == 0 ? MatmulBackend::tiled : handle.choice().products(dtype_of<T>);
  if (backend == MatmulBackend::cublaslt) {
    if (matmul_cublaslt<T, T>(handle, c, a, b, ta, tb, alpha, beta)) return;
    backend = MatmulBackend::kokkos_kernels;
  }
  if (backend == MatmulBackend::kokkos_kernels && wants_tiled(extent(c, 0), extent(c, 1), ta, tb))
    backend = MatmulBackend::tiled;
  switch (backend) {
    case MatmulBackend::tiled:
      return matmul_tiled<T>(handle, c, a, b, ta, tb, alpha, beta);
    case MatmulBackend::kokkos_kernels:
      return matmul_kokkos_kernels<T>(handle, c, a, b, ta, tb, alpha, beta);
    case MatmulBackend::onednn:
#if defined(TRIREME_HAS_ONEDNN)
      if constexpr (std::is_same_v<T, float>) return matmul_onednn(c, a, b, ta, tb, alpha, beta);
#endif
      break;
    case MatmulBackend::cublaslt:
    case MatmulBackend::widened:
    case MatmulBackend::native:
      break;
  }
  check(false, name_of(backend), " has no products of ", name_of(dtype_of<T>));
}

}  // namespace

template <class T, class C>
void product(const Handle& handle, View2<C> c, View2<const T> a, View2<const T> b, Transpose ta,
             Transpose tb, double alpha, double beta) {
  if (extent(c, 0) == 0 || extent(c, 1) == 0) return;
  const Region region("kernels/matmul");  // Kokkos does not see a library's product as a kernel
  if constexpr (is_narrow<T>) {
    if (matmul_cublaslt<T, C>(handle, c, a, b, ta, tb, alpha, beta)) return;
    if constexpr (std::is_same_v<T, Bf16>)
      if (alpha == 1 && (beta == 0 || beta == 1) &&
          matmul_bf16<C>(handle, c, a, b, ta, tb, beta == 1, {}))
        return;
    matmul_widened<T, C>(handle, c, a, b, ta, tb, alpha, beta);
  } else {
    matmul_wide<T>(handle, c, a, b, ta, tb, alpha, beta);
  }
}

template <class T>
void matmul(const Handle& handle, View2<T> c, View2<const T> a, View2<const T> b, Transpose ta,
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
  product<T, T>(handle, c, a, b, ta, tb, alpha, beta);
}

#define TRIREME_INSTANTIATE(T, C)                                                                 \
  template void product<T, C>(const Handle&, View2<C>, View2<const T>, View2<const T>, Transpose, \
                              Transpose, double, double)
TRIREME_INSTANTIATE(float, float);
TRIREME_INSTANTIATE(double, double);
TRIREME_INSTANTIATE(Bf16, Bf16);
TRIREME_INSTANTIATE(Bf16, float);
TRIREME_INSTANTIATE(Fp16, Fp16);
TRIREME_INSTANTIATE(Fp16, float);
#undef TRIREME_INSTANTIATE

#define TRIREME_INSTANTIATE(T)                                                                \
  template void matmul<T>(const Handle&, View2<T>, View2<const T>, View2<const T>, Transpose, \
                          Transpose, double, double)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
