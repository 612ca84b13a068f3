#pragma once

#include <trireme/kernels/matmul.hpp>

namespace trireme::kernels {

/// matmul by Trireme's own register-tiled Kokkos kernel, which needs no library (blocking as in
/// Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication"). Element (i,j)
/// is summed over k in one fixed order, so that its bits do not depend on the number of rows,
/// columns or threads.
template <class T>
void matmul_tiled(const Exec& exec, View2<T> c, View2<const T> a, View2<const T> b, Transpose ta,
                  Transpose tb, double alpha, double beta);

}  // namespace trireme::kernels
