#pragma once

#include <trireme/kernels/matmul.hpp>

namespace trireme::kernels {

/// matmul of two-byte numbers, which most host libraries do not support. Blocks of both operands
/// are widened to fp32 and multiplied by the fp32 back end, and complete sums are rounded once. C:
/// T, or float for unrounded sums. Blocks are large, so that widening takes only a few percent of
/// the product's time. Uses handle.widened_operands().
template <class T, class C>
void matmul_widened(const Handle& handle, View2<C> c, View2<const T> a, View2<const T> b,
                    Transpose ta, Transpose tb, double alpha, double beta);

}  // namespace trireme::kernels
