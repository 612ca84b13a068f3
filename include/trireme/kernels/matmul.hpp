#pragma once

#include <trireme/base/types.hpp>
#include <trireme/kernels/handle.hpp>
#include <trireme/tensor/views.hpp>

/// Matrix products and the passes of linear layers. All products are asynchronous on the handle,
/// and instantiated for float, double, Bf16 and Fp16.
namespace trireme::kernels {

enum class Transpose : std::uint8_t { no, yes };

/// c = alpha op(a) op(b) + beta c. c [M,N], op(a) [M,K], op(b) [K,N]; a or b is stored transposed
/// if `ta` or `tb` is yes. c must not overlap an input; it may be uninitialised if beta = 0.
template <class T>
void matmul(const Handle& handle, View2<T> c, View2<const T> a, View2<const T> b, Transpose ta,
            Transpose tb, double alpha = 1.0, double beta = 0.0);

/// y[t,n] = Σ_m x[t,m] w[n,m] + bias[n]. y [T,N], x [T,M], w [N,M], bias [N] or an empty view.
template <class T>
void linear_forward(const Handle& handle, View2<T> y, View2<const T> x, View2<const T> w,
                    View1<const T> bias);

/// linear_forward with y in the type of the sums: fp32 or wider.
template <class T>
void linear_forward_wide(const Handle& handle, View2<Accumulate<T>> y, View2<const T> x,
                         View2<const T> w, View1<const T> bias);

/// h = x wᵀ + bias and g = gelu(h). g, h [T,N] must not overlap. If one kernel computes both
/// (fuses_gelu()), g is the GELU of the unrounded sums instead of the rounded h.
template <class T>
void linear_gelu_forward(const Handle& handle, View2<T> g, View2<T> h, View2<const T> x,
                         View2<const T> w, View1<const T> bias, Gelu form);

/// dx[t,m] = Σ_n dy[t,n] w[n,m]. dx [T,M], dy [T,N], w [N,M].
template <class T>
void linear_backward_input(const Handle& handle, View2<T> dx, View2<const T> dy, View2<const T> w);

/// dh = (dy w) gelu'(h): linear_backward_input of a layer whose input is gelu(h). dh, h [T,M] must
/// not overlap. If one kernel computes dh (fuses_gelu()), dy w is not rounded.
template <class T>
void linear_gelu_backward_input(const Handle& handle, View2<T> dh, View2<const T> dy,
                                View2<const T> w, View2<const T> h, Gelu form);

/// Whether linear_gelu_forward and linear_gelu_backward_input use one kernel for rows of `columns`
/// elements of `type`, unless cuBLASLt does not support the product: for bf16 and fp16, the tanh
/// form of GELU, cuBLASLt as the back end, Hopper or a newer device, and `columns` a multiple of 8.
bool fuses_gelu(const Handle& handle, DType type, Gelu form, std::int64_t columns);

/// dw[n,m] += Σ_t dy[t,n] x[t,m] and dbias[n] += Σ_t dy[t,n], both summed in a fixed order. dw
/// [N,M] or an empty view, dbias [N] or an empty view, dy [T,N], x [T,M].
template <class T>
void linear_backward_weight(const Handle& handle, View2<Accumulate<T>> dw,
                            View1<Accumulate<T>> dbias, View2<const T> dy, View2<const T> x);

/// dbias[n] += Σ_t dy[t,n], in a fixed order. dbias [N], dy [T,N].
template <class T>
void linear_backward_bias(const Handle& handle, View1<Accumulate<T>> dbias, View2<const T> dy);

/// Sets the number of threads that host libraries use for products on the calling thread, which
/// must be the thread that launches products. Default: Exec's concurrency.
void set_matmul_threads(int threads);

}  // namespace trireme::kernels
