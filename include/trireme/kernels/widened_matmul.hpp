#pragma once

#include <trireme/base/fp8.hpp>
#include <trireme/kernels/matmul.hpp>

namespace trireme::kernels {

/// matmul of two-byte types, which most host libraries do not support. Blocks of both operands are
/// widened to fp32 and multiplied by the fp32 back end, and complete sums are rounded once. C: T,
/// or float for unrounded sums. Blocks are large, so that widening takes only a few percent of the
/// product's time. Uses handle.widened_operands().
template <class T, class C>
void matmul_widened(const Handle& handle, View2<C> c, View2<const T> a, View2<const T> b,
                    Transpose ta, Transpose tb, double alpha, double beta);

/// c = a bᵀ · of_a · of_b + beta c for one-byte types, in the same way. c [M,N], a [M,K], b [N,K];
/// of_a and of_b are in device memory.
template <class A, class B, class C>
void widened_fp8_product(const Handle& handle, View2<C> c, View2<const A> a, View2<const B> b,
                         const float* of_a, const float* of_b, double beta);

}  // namespace trireme::kernels
