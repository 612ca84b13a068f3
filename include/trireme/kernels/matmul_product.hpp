#pragma once

#include <trireme/kernels/matmul.hpp>

namespace trireme::kernels {

/// matmul by the chosen back end, into c of type T, or of Accumulate<T> for unrounded sums. Shapes
/// are not checked.
template <class T, class C>
void product(const Handle& handle, View2<C> c, View2<const T> a, View2<const T> b, Transpose ta,
             Transpose tb, double alpha, double beta);

/// y[t,:] = bias. y [T,N], bias [N].
template <class T, class Y>
void broadcast_rows(const Exec& exec, View2<Y> y, View1<const T> bias);

/// Sets Exec's number of threads, unless set_matmul_threads was called.
void set_default_matmul_threads(const Exec& exec);

}  // namespace trireme::kernels
