#pragma once

#include <trireme/kernels/column_slices.hpp>
#include <trireme/kernels/handle.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

namespace trireme::kernels {

/// sum[n] += Σ_t x[t,n], in an order that depends on T and N alone. sum [N], x [T,N]. On devices it
/// uses handle.partial_sums().
template <class T>
void add_column_sums(const Handle& handle, View1<Accumulate<T>> sum, View2<const T> x);

/// add_column_sums as devices do it, on two levels: a thread per column of a slice, so that
/// neighbours read neighbours; then a team per column adds the slices. partial: at least
/// column_slices(T, N).partial_elements(N), overwritten.
template <class T>
void add_column_sums_by_slices(const Exec& exec, View1<Accumulate<T>> sum, View2<const T> x,
                               View1<Accumulate<T>> partial);

/// dgain[d] += Σ_t dy[t,d] (x[t,d] − mean_t) scale_t and dbias[d] += Σ_t dy[t,d], what the norms'
/// backward passes sum, as devices do it. mean [T] or an empty view: 0; dbias [D] or an empty view.
/// partial: at least column_slices(T, 2 D).partial_elements(2 D), overwritten.
template <class T>
void add_norm_sums_by_slices(const char* label, const Exec& exec, View1<Accumulate<T>> dgain,
                             View1<Accumulate<T>> dbias, View2<const T> dy, View2<const T> x,
                             View1<const Accumulate<T>> mean, View1<const Accumulate<T>> scale,
                             View1<Accumulate<T>> partial);
/// … with the handle's workspace.
template <class T>
void add_norm_sums(const char* label, const Handle& handle, View1<Accumulate<T>> dgain,
                   View1<Accumulate<T>> dbias, View2<const T> dy, View2<const T> x,
                   View1<const Accumulate<T>> mean, View1<const Accumulate<T>> scale);

}  // namespace trireme::kernels
