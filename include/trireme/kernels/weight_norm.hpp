#pragma once

#include <trireme/tensor/views.hpp>

/// Kernels of weights that consist of a magnitude and a direction for each output (Salimans and
/// Kingma 2016, arXiv 1602.07868; Liu et al. 2024, DoRA, arXiv 2402.09353). Asynchronous on exec;
/// instantiated for float, double, Bf16 and Fp16.
namespace trireme::kernels {

/// squares[n] = Σ_m v[n,m]². squares [N], v [N,M].
template <class T>
void row_squares(const Exec& exec, View1<Accumulate<T>> squares, View2<const T> v);

/// magnitude[n] = √squares[n]. magnitude, squares [N].
template <class T>
void row_magnitudes(const Exec& exec, View1<T> magnitude, View1<const Accumulate<T>> squares);

/// inverse[n] = 1 / √squares[n], or 0 if squares[n] is 0; scale[n] = magnitude[n] inverse[n]. All
/// are [N]; inverse may be squares.
template <class T>
void row_scales(const Exec& exec, View1<Accumulate<T>> scale, View1<Accumulate<T>> inverse,
                View1<const Accumulate<T>> squares, View1<const T> magnitude);

/// y[t,n] = scale[n] x[t,n] + bias[n]. y, x [T,N]; y may be x; scale [N]; bias [N], or empty.
template <class T>
void scale_columns(const Exec& exec, View2<T> y, View2<const T> x, View1<const Accumulate<T>> scale,
                   View1<const T> bias = {});

/// z[t,n] = z[t,n] dy[t,n] inverse[n]. For z = x vᵀ, the sums of the result over t are the
/// gradients of the magnitudes. z, dy [T,N]; inverse [N].
template <class T>
void magnitude_terms(const Exec& exec, View2<T> z, View2<const T> dy,
                     View1<const Accumulate<T>> inverse);

}  // namespace trireme::kernels
