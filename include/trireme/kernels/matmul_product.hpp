#pragma once

#include <trireme/base/fp8.hpp>
#include <trireme/kernels/matmul.hpp>

namespace trireme::kernels {

/// matmul by the chosen back end, without checks of shapes. C: T, or Accumulate<T> (unrounded).
template <class T, class C>
void product(const Handle& handle, View2<C> c, View2<const T> a, View2<const T> b, Transpose ta,
             Transpose tb, double alpha, double beta);

/// y[t,:] = bias. y [T,N], bias [N].
template <class T, class Y>
void broadcast_rows(const Exec& exec, View2<Y> y, View1<const T> bias);

/// On hosts, calls set_matmul_threads() with exec's concurrency, unless a number has been set.
void set_default_matmul_threads(const Exec& exec);

/// matmul by Trireme's register-tiled Kokkos kernel, without a library (blocking as in Goto and van
/// de Geijn 2008, "Anatomy of high-performance matrix multiplication"). Element (i,j) is summed
/// over k in one fixed order, whatever the numbers of rows, columns and threads.
template <class T>
void matmul_tiled(const Exec& exec, View2<T> c, View2<const T> a, View2<const T> b, Transpose ta,
                  Transpose tb, double alpha, double beta);

/// matmul of two-byte types: the fp32 back end multiplies blocks that are widened to fp32, and sums
/// are rounded once. C: T, or float for unrounded sums. Uses handle.widened_operands().
template <class T, class C>
void matmul_widened(const Handle& handle, View2<C> c, View2<const T> a, View2<const T> b,
                    Transpose ta, Transpose tb, double alpha, double beta);

/// c = op(a) op(b) + bias + c, by the processor's bf16 instructions on hosts (bf16_tiles.hpp);
/// without bias [N] if `bias` is empty, and + c only if `adds`. C: Bf16 or float. Sums are fp32,
/// and are rounded once. Returns false, with nothing done, if MatmulBackend::native is not the back
/// end of bf16 or the depth is 0. Uses handle.widened_operands().
template <class C>
bool matmul_bf16(const Handle& handle, View2<C> c, View2<const Bf16> a, View2<const Bf16> b,
                 Transpose ta, Transpose tb, bool adds, View1<const Bf16> bias);

/// c = a bᵀ · *of_a · *of_b + beta c for one-byte types, widened as in matmul_widened. c [M,N], a
/// [M,K], b [N,K]; of_a and of_b point to device memory.
template <class A, class B, class C>
void widened_fp8_product(const Handle& handle, View2<C> c, View2<const A> a, View2<const B> b,
                         const float* of_a, const float* of_b, double beta);

}  // namespace trireme::kernels
