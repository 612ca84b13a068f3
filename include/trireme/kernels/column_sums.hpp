#pragma once

#include <trireme/kernels/column_slices.hpp>
#include <trireme/kernels/handle.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

namespace trireme::kernels {

/// sum[n] += Σ_t x[t,n], in an order that depends only on T and N. sum [N], x [T,N]. Uses
/// handle.partial_sums() on devices.
template <class T>
void add_column_sums(const Handle& handle, View1<Accumulate<T>> sum, View2<const T> x);

/// add_column_sums by the algorithm for devices: sum_by_slices. partial: at least column_slices(T,
/// N).partial_elements(N) elements, overwritten.
template <class T>
void add_column_sums_by_slices(const Exec& exec, View1<Accumulate<T>> sum, View2<const T> x,
                               View1<Accumulate<T>> partial);

/// Sums of the norms' backward passes by the algorithm for devices: dgain[d] += Σ_t dy[t,d] (x[t,d]
/// − mean[t]) scale[t], dbias[d] += Σ_t dy[t,d]. dy, x [T,D]; scale [T]; mean [T], or empty: 0;
/// dgain [D]; dbias [D], or empty: not computed. partial: at least column_slices(T,
/// 2 D).partial_elements(2 D) elements, overwritten.
template <class T>
void add_norm_sums_by_slices(const char* label, const Exec& exec, View1<Accumulate<T>> dgain,
                             View1<Accumulate<T>> dbias, View2<const T> dy, View2<const T> x,
                             View1<const Accumulate<T>> mean, View1<const Accumulate<T>> scale,
                             View1<Accumulate<T>> partial);
/// add_norm_sums_by_slices with handle.partial_sums() as `partial`.
template <class T>
void add_norm_sums(const char* label, const Handle& handle, View1<Accumulate<T>> dgain,
                   View1<Accumulate<T>> dbias, View2<const T> dy, View2<const T> x,
                   View1<const Accumulate<T>> mean, View1<const Accumulate<T>> scale);

}  // namespace trireme::kernels
