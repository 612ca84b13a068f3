#pragma once

#include <trireme/kernels/matmul.hpp>

namespace trireme::kernels {

/// matmul of two-byte numbers, which most host libraries have not: blocks of both operands are
/// widened to fp32 and multiplied by the fp32 back end, and the sums are rounded once, when they
/// are complete. C: T, or float to keep them. Blocks are large, so that widening costs a few
/// percent of the product. Uses one workspace of widened_workspace_bytes per process: products must
/// not run on two instances of Exec at a time.
template <class T, class C>
void matmul_widened(const Exec& exec, View2<C> c, View2<const T> a, View2<const T> b, Transpose ta,
                    Transpose tb, double alpha, double beta);

/// Allocates that workspace; the first such product does it otherwise.
void prepare_widened_matmul();

/// Frees it; no such product may be in flight.
void release_widened_matmul();

/// What it has of memory now: widened_workspace_bytes, or 0 before it is made.
Bytes widened_matmul_bytes();

}  // namespace trireme::kernels
