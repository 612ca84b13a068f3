// Passes of a linear layer as matrix products. Separate kernels compute bias and GELU if the back
// end does not fuse them with the product.
#include <trireme/kernels/column_sums.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/kernels/matmul_cublaslt.hpp>
#include <trireme/kernels/matmul_product.hpp>
#include <trireme/tensor/expect.hpp>
#include <trireme/tensor/region.hpp>

namespace trireme::kernels {

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
  if (fuses_gelu(handle, dtype_of<T>, form, extent(h, 1))) {
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

#define TRIREME_INSTANTIATE(T)                                                                     \
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
