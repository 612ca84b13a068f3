// Matrix products by the back end that the handle's KernelChoice has for the operands' type, and
// the passes of linear layers. Empty sums use the tiled kernel. On devices, the tiled kernel also
// replaces Kokkos Kernels for small products aᵀ b. Separate kernels compute a layer's bias and GELU
// if the back end does not fuse them with the product.
#include <trireme/kernels/matmul.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/column_sums.hpp>
#include <trireme/kernels/cublaslt.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/kernels/matmul_product.hpp>
#include <trireme/tensor/expect.hpp>
#include <trireme/tensor/region.hpp>

#include <dlfcn.h>
#include <KokkosBlas3_gemm.hpp>

#if defined(TRIREME_HAS_ONEDNN)
#include <oneapi/dnnl/dnnl.h>
#endif

#include <algorithm>
#include <array>
#include <type_traits>

namespace trireme::kernels {
namespace {

int library_threads = 0;  // 0: not set yet

}  // namespace

void set_matmul_threads(int threads) {
  check(threads >= 1, "matrix products need at least 1 thread, got ", threads);
  library_threads = threads;
  // The OpenMP runtime that the libraries loaded, if any, has the function.
  using SetThreads = void (*)(int);
  if (void* symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads"); symbol != nullptr)
    reinterpret_cast<SetThreads>(symbol)(threads);
}

void set_default_matmul_threads(const Exec& exec) {
  if (exec_on_host && library_threads == 0)
    set_matmul_threads(static_cast<int>(exec.concurrency()));
}

namespace {

/// Operations fused with a product: see LtEpilogue.
template <class C>
struct Epilogue {
  LtEpilogue kind = LtEpilogue::none;
  View1<const C> bias;  // [N], or empty
  View2<C> auxiliary;   // [M,N] for GELU, otherwise empty
};

template <class View>
std::int64_t leading_stride(const View& view) {
  return std::max<std::int64_t>(static_cast<std::int64_t>(view.stride(0)), extent(view, 1));
}

/// matmul by cuBLASLt. C: T, or Accumulate<T>. Returns false, with nothing launched, if cuBLASLt is
/// not the back end of T's products or does not support the product, or if a size is 0.
template <class T, class C>
bool matmul_cublaslt(const Handle& handle, View2<C> c, View2<const T> a, View2<const T> b,
                     Transpose ta, Transpose tb, double alpha, double beta,
                     const Epilogue<C>& epilogue = {}) {
  if (handle.choice().products(dtype_of<T>) != MatmulBackend::cublaslt) return false;
  LtProduct p;
  p.input = dtype_of<T>;
  p.output = dtype_of<C>;
  p.tf32 = dtype_of<T> == DType::fp32 && handle.choice().tf32;
  p.transposed_a = ta == Transpose::yes;
  p.transposed_b = tb == Transpose::yes;
  p.rows = extent(c, 0);
  p.columns = extent(c, 1);
  p.depth = extent(a, p.transposed_a ? 0 : 1);
  if (p.rows == 0 || p.columns == 0 || p.depth == 0) return false;
  p.a = a.data();
  p.b = b.data();
  p.c = c.data();
  p.stride_a = leading_stride(a);
  p.stride_b = leading_stride(b);
  p.stride_c = leading_stride(c);
  p.alpha = alpha;
  p.beta = beta;
  p.epilogue = epilogue.kind;
  p.bias = epilogue.bias.data();
  p.auxiliary = epilogue.auxiliary.data();
  p.stride_auxiliary = p.auxiliary == nullptr ? 0 : leading_stride(epilogue.auxiliary);
  return handle.cublaslt().multiply(p, handle.stream());
}

/// Whether cuBLASLt's products with GELU are faster than a product and a separate kernel on exec's
/// device. Before Hopper they are slower (llm.c, pull request 338).
bool cublaslt_fuses_gelu([[maybe_unused]] const Exec& exec) {
#if defined(KOKKOS_ENABLE_CUDA)
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) return exec.cuda_device_prop().major >= 9;
#endif
  return has_cublaslt();  // without CUDA, true only in tests that simulate a device on a host
}

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

template <class T, class Y>
void broadcast_rows(const Exec& exec, View2<Y> y, View1<const T> bias) {
  const std::int64_t columns = extent(y, 1);
  const T* from = bias.data();
  for_rows(
      "kernels/linear_bias", exec, extent(y, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        Y* row = row_of(y, t);
        for_lanes(team, columns, [&](std::int64_t n) { row[n] = static_cast<Y>(from[n]); });
      });
}

namespace {

template <class T>
bool is_given(View1<const T> bias) {
  return bias.data() != nullptr && bias.extent(0) > 0;
}

/// c = epilogue(a op(b)) in one call of cuBLASLt. Returns false, with nothing launched, if cuBLASLt
/// is not the back end or does not support the call.
template <class T>
bool fused_product(const Handle& handle, View2<T> c, View2<const T> a, View2<const T> b,
                   Transpose tb, const Epilogue<T>& epilogue) {
  if (handle.choice().products(dtype_of<T>) != MatmulBackend::cublaslt) return false;
  const Region region("kernels/matmul");
  return matmul_cublaslt<T, T>(handle, c, a, b, Transpose::no, tb, 1.0, 0.0, epilogue);
}

/// y = x wᵀ + bias, y of type T or Accumulate<T>.
template <class T, class Y>
void forward(const Handle& handle, View2<Y> y, View2<const T> x, View2<const T> w,
             View1<const T> bias) {
  expect_shape(y, "y", {extent(x, 0), extent(w, 0)});
  expect_shape(w, "w", {extent(w, 0), extent(x, 1)});
  const bool has_bias = is_given(bias);
  if (has_bias) expect_shape(bias, "bias", {extent(w, 0)});
  if constexpr (std::is_same_v<T, Y>) {  // cuBLASLt's bias has the type of y
    const Epilogue<Y> adds_bias{LtEpilogue::bias, bias, {}};
    if (has_bias && fused_product<T>(handle, y, x, w, Transpose::yes, adds_bias)) return;
  }
  if constexpr (std::is_same_v<T, Bf16>) {
    if (has_bias && handle.choice().products(DType::bf16) == MatmulBackend::native) {
      const Region region("kernels/matmul");
      if (matmul_bf16<Y>(handle, y, x, w, Transpose::no, Transpose::yes, false, bias)) return;
    }
  }
  if (has_bias) broadcast_rows<T, Y>(handle, y, bias);
  product<T, Y>(handle, y, x, w, Transpose::no, Transpose::yes, 1.0, has_bias ? 1.0 : 0.0);
}

}  // namespace

bool fuses_gelu(const Handle& handle, DType type, Gelu form, std::int64_t columns) {
  return (type == DType::bf16 || type == DType::fp16) && form == Gelu::tanh && columns % 8 == 0 &&
         handle.choice().products(type) == MatmulBackend::cublaslt && cublaslt_fuses_gelu(handle);
}

template <class T>
void linear_forward(const Handle& handle, View2<T> y, View2<const T> x, View2<const T> w,
                    View1<const T> bias) {
  forward<T, T>(handle, y, x, w, bias);
}

template <class T>
void linear_forward_wide(const Handle& handle, View2<Accumulate<T>> y, View2<const T> x,
                         View2<const T> w, View1<const T> bias) {
  forward<T, Accumulate<T>>(handle, y, x, w, bias);
}

template <class T>
void linear_gelu_forward(const Handle& handle, View2<T> g, View2<T> h, View2<const T> x,
                         View2<const T> w, View1<const T> bias, Gelu form) {
  expect_shape(g, "g", {extent(h, 0), extent(h, 1)});
  if (fuses_gelu(handle, dtype_of<T>, form, extent(h, 1))) {
    expect_shape(h, "h", {extent(x, 0), extent(w, 0)});
    expect_shape(w, "w", {extent(w, 0), extent(x, 1)});
    if (is_given(bias)) expect_shape(bias, "bias", {extent(w, 0)});
    const Epilogue<T> to_gelu{LtEpilogue::gelu, is_given(bias) ? bias : View1<const T>(), h};
    if (fused_product<T>(handle, g, x, w, Transpose::yes, to_gelu)) return;
  }
  linear_forward<T>(handle, h, x, w, bias);
  gelu_forward<T>(handle, g, h, form);
}

template <class T>
void linear_backward_input(const Handle& handle, View2<T> dx, View2<const T> dy, View2<const T> w) {
  expect_shape(dx, "dx", {extent(dy, 0), extent(w, 1)});
  expect_shape(w, "w", {extent(dy, 1), extent(dx, 1)});
  product<T, T>(handle, dx, dy, w, Transpose::no, Transpose::no, 1.0, 0.0);
}

template <class T>
void linear_gelu_backward_input(const Handle& handle, View2<T> dh, View2<const T> dy,
                                View2<const T> w, View2<const T> h, Gelu form) {
  expect_shape(h, "h", {extent(dh, 0), extent(dh, 1)});
  // the view of h below has no gaps between its rows
  if (fuses_gelu(handle, dtype_of<T>, form, extent(h, 1)) &&
      static_cast<std::int64_t>(h.stride(0)) == extent(h, 1)) {
    expect_shape(dh, "dh", {extent(dy, 0), extent(w, 1)});
    expect_shape(w, "w", {extent(dy, 1), extent(dh, 1)});
    const View2<T> only_read(const_cast<T*>(h.data()), h.extent(0), h.extent(1));
    const Epilogue<T> times_slope{LtEpilogue::gelu_gradient, {}, only_read};
    if (fused_product<T>(handle, dh, dy, w, Transpose::no, times_slope)) return;
  }
  linear_backward_input<T>(handle, dh, dy, w);
  gelu_backward<T>(handle, dh, dh, h, form);
}

template <class T>
void linear_backward_bias(const Handle& handle, View1<Accumulate<T>> dbias, View2<const T> dy) {
  expect_shape(dbias, "dbias", {extent(dy, 1)});
  add_column_sums<T>(handle, dbias, dy);
}

/// cuBLASLt does not compute dbias: its epilogues BGRADA and BGRADB overwrite instead of adding.
template <class T>
void linear_backward_weight(const Handle& handle, View2<Accumulate<T>> dw,
                            View1<Accumulate<T>> dbias, View2<const T> dy, View2<const T> x) {
  if (dw.data() == nullptr) {
    if (dbias.data() != nullptr && dbias.extent(0) > 0) linear_backward_bias<T>(handle, dbias, dy);
    return;
  }
  expect_shape(dw, "dw", {extent(dy, 1), extent(x, 1)});
  expect_shape(x, "x", {extent(dy, 0), extent(dw, 1)});
  if (dbias.data() != nullptr && dbias.extent(0) > 0) linear_backward_bias<T>(handle, dbias, dy);
  product<T, Accumulate<T>>(handle, dw, dy, x, Transpose::yes, Transpose::no, 1.0, 1.0);
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

#define TRIREME_INSTANTIATE(T)                                                                     \
  template void matmul<T>(const Handle&, View2<T>, View2<const T>, View2<const T>, Transpose,      \
                          Transpose, double, double);                                              \
  template void linear_forward<T>(const Handle&, View2<T>, View2<const T>, View2<const T>,         \
                                  View1<const T>);                                                 \
  template void linear_forward_wide<T>(const Handle&, View2<Accumulate<T>>, View2<const T>,        \
                                       View2<const T>, View1<const T>);                            \
  template void linear_gelu_forward<T>(const Handle&, View2<T>, View2<T>, View2<const T>,          \
                                       View2<const T>, View1<const T>, Gelu);                      \
  template void linear_backward_input<T>(const Handle&, View2<T>, View2<const T>, View2<const T>); \
  template void linear_gelu_backward_input<T>(const Handle&, View2<T>, View2<const T>,             \
                                              View2<const T>, View2<const T>, Gelu);               \
  template void linear_backward_weight<T>(const Handle&, View2<Accumulate<T>>,                     \
                                          View1<Accumulate<T>>, View2<const T>, View2<const T>);   \
  template void linear_backward_bias<T>(const Handle&, View1<Accumulate<T>>, View2<const T>)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

template void broadcast_rows<Bf16, Bf16>(const Exec&, View2<Bf16>, View1<const Bf16>);

}  // namespace trireme::kernels
