#pragma once

#include <trireme/base/philox.hpp>
#include <trireme/base/types.hpp>
#include <trireme/layout/token_places.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Elementwise kernels. Asynchronous on exec; instantiated for float, double, Bf16 and Fp16.
namespace trireme::kernels {

/// g = gelu(h): h/2 (1 + erf(h/√2)) if `form` is exact, the approximation h/2 (1 + tanh(√(2/π) (h +
/// 0.044715 h³))) if it is tanh, or h / (1 + e^(−1.702 h)) if it is quick. g, h [T,F]; g may be h.
/// Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2.
template <class T>
void gelu_forward(const Exec& exec, View2<T> g, View2<const T> h, Gelu form = Gelu::tanh);

/// dh = dg gelu'(h). dh, dg, h [T,F]; dh may be dg or h.
template <class T>
void gelu_backward(const Exec& exec, View2<T> dh, View2<const T> dg, View2<const T> h,
                   Gelu form = Gelu::tanh);

/// g = max(h, 0), and dh = dg where h > 0, otherwise 0. All arrays [rows, columns].
template <class T>
void relu_forward(const Exec& exec, View2<T> g, View2<const T> h);
template <class T>
void relu_backward(const Exec& exec, View2<T> dh, View2<const T> dg, View2<const T> h);

/// y = tanh(x). y, x [T,D]; y may be x.
template <class T>
void tanh_forward(const Exec& exec, View2<T> y, View2<const T> x);

/// dx = dy (1 - y^2) for y = tanh(x). dx, dy, y [T,D]; dx may be dy or y.
template <class T>
void tanh_backward(const Exec& exec, View2<T> dx, View2<const T> dy, View2<const T> y);

/// g = silu(a) b with silu(a) = a / (1 + e^-a), where a is the left and b the right half of the
/// columns of h = [a | b] (Shazeer 2020, arXiv 2002.05202, eq. 6). g [T,F]; h [T,2F]; no overlap.
template <class T>
void swiglu_forward(const Exec& exec, View2<T> g, View2<const T> h);

/// dh = [dg b silu'(a) | dg silu(a)], the gradient of swiglu_forward. dg [T,F]; dh, h [T,2F]; dh
/// may be h.
template <class T>
void swiglu_backward(const Exec& exec, View2<T> dh, View2<const T> dg, View2<const T> h);

/// g = a' σ(1.702 a') (b' + 1) with a' = min(a, limit), b' = min(max(b, −limit), limit) and σ(x) =
/// 1 / (1 + e^-x); h = [a | b] as for swiglu_forward (OpenAI 2025, arXiv 2508.10925, section 2.1).
template <class T>
void clamped_swiglu_forward(const Exec& exec, View2<T> g, View2<const T> h, double limit);
/// Gradient of clamped_swiglu_forward: 0 for clamped elements. Shapes as for swiglu_backward.
template <class T>
void clamped_swiglu_backward(const Exec& exec, View2<T> dh, View2<const T> dg, View2<const T> h,
                             double limit);

/// GeGLU: swiglu_forward and swiglu_backward with GELU instead of SiLU (Shazeer 2020, eq. 5).
template <class T>
void geglu_forward(const Exec& exec, View2<T> g, View2<const T> h, Gelu form = Gelu::tanh);
template <class T>
void geglu_backward(const Exec& exec, View2<T> dh, View2<const T> dg, View2<const T> h,
                    Gelu form = Gelu::tanh);

/// Dropout mask of a [T,D] activation: element (t, d) is dropped if word row(t) D + d of the random
/// array `key` is below rate 2^32. Row numbers are global, so that the mask does not depend on the
/// distribution of rows over ranks. The backward pass recomputes the mask. 0 ≤ rate < 1.
struct Dropout {
  double rate = 0;
  RandomKey key;
  std::int64_t first_row = 0;       ///< global number of the batch's first row
  layout::TokenPlaces places = {};  ///< maps rows of the activation to rows of the batch
  /// 0: the activation has all columns. Otherwise it has the columns [first_column, first_column +
  /// D) of `columns` columns, and element (t, d) has the word row(t) columns + first_column + d;
  /// residual sums do not support this.
  std::int64_t columns = 0;
  std::int64_t first_column = 0;

  TRIREME_FUNCTION std::int64_t row(std::int64_t t) const { return first_row + places.row(t); }
};

/// y = x + keep z / (1 − rate), where keep is 0 for dropped elements, otherwise 1. y, x, z [T,D]; y
/// may be x or z.
template <class T>
void residual_dropout_forward(const Exec& exec, View2<T> y, View2<const T> x, View2<const T> z,
                              const Dropout& dropout);

/// y = keep x / (1 − rate). y, x [T,D]; y may be x.
template <class T>
void dropout_forward(const Exec& exec, View2<T> y, View2<const T> x, const Dropout& dropout);

/// dz = keep dy / (1 − rate): the gradient of residual_dropout_forward with respect to z, or of
/// dropout_forward with respect to x. dz, dy [T,D]; dz may be dy.
template <class T>
void dropout_backward(const Exec& exec, View2<T> dz, View2<const T> dy, const Dropout& dropout);

/// y += x. y, x [n].
template <class T>
void accumulate(const Exec& exec, View1<T> y, View1<const T> x);

/// y *= factor. y [n].
template <class T>
void scale(const Exec& exec, View1<T> y, double factor);

/// y = value. y [n].
template <class T>
void fill(const Exec& exec, View1<T> y, double value);

/// y = x, converted between float and a two-byte type, rounded to nearest. y, x [n].
template <class T, class U>
void convert(const Exec& exec, View1<T> y, View1<const U> x);

/// y = x. y, x [n]; y must not overlap x.
template <class T>
void copy(const Exec& exec, View1<T> y, View1<const T> x);

}  // namespace trireme::kernels
