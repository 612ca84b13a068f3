#pragma once

#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/handle.hpp>
#include <trireme/tensor/views.hpp>

/// Layer normalisation (Ba et al. 2016, arXiv 1607.06450, eq. 4) and root mean square normalisation
/// (Zhang and Sennrich 2019, arXiv 1910.07467, eq. 4), which has no mean and no bias. Statistics
/// and sums are in Accumulate<T>. Asynchronous on exec; instantiated for float, double, Bf16 and
/// Fp16.
namespace trireme::kernels {

/// y[t,d] = gain[d] (x[t,d] - mean[t]) inverse_std[t] + bias[d], with inverse_std = 1 /
/// sqrt(variance + epsilon) and the biased variance. y, x [T,D]; mean, inverse_std [T] (kept for
/// the backward pass); gain, bias [D]. y may be x.
template <class T>
void layer_norm_forward(const Exec& exec, View2<T> y, View1<Accumulate<T>> mean,
                        View1<Accumulate<T>> inverse_std, View2<const T> x, View1<const T> gain,
                        View1<const T> bias, double epsilon);

/// sum = x + keep z / (1 − rate) (residual_dropout_forward) and y = layer_norm_forward of sum, in
/// one pass; the same bits as two calls. y, sum, x, z [T,D]; sum may be x or z.
template <class T>
void residual_layer_norm_forward(const Exec& exec, View2<T> y, View1<Accumulate<T>> mean,
                                 View1<Accumulate<T>> inverse_std, View2<T> sum, View2<const T> x,
                                 View2<const T> z, const Dropout& dropout, View1<const T> gain,
                                 View1<const T> bias, double epsilon);

/// dx = inverse_std (g − <g> − xhat <g xhat>) with g = gain dy, xhat = (x − mean) inverse_std and
/// <.> the mean over a row; dx += this value if `accumulate`. dx, dy, x [T,D]; mean, inverse_std
/// [T]; gain [D]. dx may be dy or x.
template <class T>
void layer_norm_backward_input(const Exec& exec, View2<T> dx, View2<const T> dy, View2<const T> x,
                               View1<const Accumulate<T>> mean,
                               View1<const Accumulate<T>> inverse_std, View1<const T> gain,
                               bool accumulate);

/// dgain[d] += Σ_t dy[t,d] xhat[t,d] with xhat as in layer_norm_backward_input, and dbias[d] += Σ_t
/// dy[t,d], in a fixed order. dgain, dbias [D]; dy, x [T,D]; mean, inverse_std [T].
template <class T>
void layer_norm_backward_weight(const Handle& handle, View1<Accumulate<T>> dgain,
                                View1<Accumulate<T>> dbias, View2<const T> dy, View2<const T> x,
                                View1<const Accumulate<T>> mean,
                                View1<const Accumulate<T>> inverse_std);

/// y[t,d] = (offset + gain[d]) x[t,d] inverse_rms[t] with inverse_rms = 1 / sqrt(<x^2> + epsilon)
/// and <.> the mean over a row. y, x [T,D]; inverse_rms [T] (kept for the backward pass); gain [D].
/// offset is 0, or 1 for gains that are stored minus 1. y may be x.
template <class T>
void rms_norm_forward(const Exec& exec, View2<T> y, View1<Accumulate<T>> inverse_rms,
                      View2<const T> x, View1<const T> gain, double offset, double epsilon);

/// sum = x + keep z / (1 − rate) (residual_dropout_forward) and y = rms_norm_forward of sum, in one
/// pass; the same bits as two calls. y, sum, x, z [T,D]; sum may be x or z.
template <class T>
void residual_rms_norm_forward(const Exec& exec, View2<T> y, View1<Accumulate<T>> inverse_rms,
                               View2<T> sum, View2<const T> x, View2<const T> z,
                               const Dropout& dropout, View1<const T> gain, double offset,
                               double epsilon);

/// dx = inverse_rms (g − xhat <g xhat>) with g = (offset + gain) dy and xhat = x inverse_rms; dx +=
/// this value if `accumulate`. dx, dy, x [T,D]; inverse_rms [T]; gain [D]. dx may be dy or x.
template <class T>
void rms_norm_backward_input(const Exec& exec, View2<T> dx, View2<const T> dy, View2<const T> x,
                             View1<const Accumulate<T>> inverse_rms, View1<const T> gain,
                             double offset, bool accumulate);

/// dgain[d] += Σ_t dy[t,d] xhat[t,d] with xhat as in rms_norm_backward_input, in a fixed order.
/// dgain [D]; dy, x [T,D]; inverse_rms [T].
template <class T>
void rms_norm_backward_weight(const Handle& handle, View1<Accumulate<T>> dgain, View2<const T> dy,
                              View2<const T> x, View1<const Accumulate<T>> inverse_rms);

}  // namespace trireme::kernels
