#pragma once

#include <trireme/kernels/matmul.hpp>

namespace trireme::kernels {

/// matmul by the chosen back end, into c of T or of Accumulate<T>, which keeps the sums.
/// Shapes are not looked at.
template <class T, class C>
void product(const Handle& handle, View2<C> c, View2<const T> a, View2<const T> b, Transpose ta,
             Transpose tb, double alpha, double beta);

/// Unless set_matmul_threads was called: as many as Exec has.
void set_default_matmul_threads(const Exec& exec);

}  // namespace trireme::kernels
