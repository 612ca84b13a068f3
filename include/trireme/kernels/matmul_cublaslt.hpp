#pragma once

#include <trireme/kernels/cublaslt.hpp>
#include <trireme/kernels/matmul.hpp>

namespace trireme::kernels {

/// Operations fused with a product: see LtEpilogue.
template <class C>
struct Epilogue {
  LtEpilogue kind = LtEpilogue::none;
  View1<const C> bias;  // [N], or empty
  View2<C> auxiliary;   // [M,N] for GELU, otherwise empty
};

/// matmul by cuBLASLt, if cuBLASLt is the back end of T's products. C: T, or Accumulate<T>. Returns
/// false, with nothing launched, if cuBLASLt is not the back end or does not support the product,
/// or if one of the sizes is 0.
template <class T, class C>
bool matmul_cublaslt(const Handle& handle, View2<C> c, View2<const T> a, View2<const T> b,
                     Transpose ta, Transpose tb, double alpha, double beta,
                     const Epilogue<C>& epilogue = {});

/// Whether cuBLASLt's products with GELU are faster than a product and a separate kernel on exec's
/// device. Before Hopper they are slower (llm.c, pull request 338).
bool cublaslt_fuses_gelu(const Exec& exec);

}  // namespace trireme::kernels
