#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Heads of latent attention (DeepSeek-AI 2024, arXiv 2405.04434, section 2.1): the last columns of
/// a head's key are the same for all heads, and values may be narrower than keys. Attention's
/// kernels get queries, keys and values of K columns each, where values end with zeros.
/// Asynchronous on exec; instantiated for float, double, Bf16 and Fp16.
namespace trireme::kernels {

struct LatentHeads {
  std::int64_t heads = 0;   ///< H
  std::int64_t size = 0;    ///< K, columns of a query or key
  std::int64_t common = 0;  ///< C, last columns of a key, which all heads share; ≤ K
  std::int64_t value = 0;   ///< V, columns of a value; ≤ K

  KOKKOS_FUNCTION std::int64_t own() const { return size - common; }  ///< of a head's key alone
};

/// qkv [T, 3 H·K] = [queries | keys | values] of all heads, from q [T, H·K], kv [T, H·(K − C + V)]
/// with a head's own part of its key and then its value, and k [T, C].
template <class T>
void join_heads(const Exec& exec, View2<T> qkv, View2<const T> q, View2<const T> kv,
                View2<const T> k, const LatentHeads& of);

/// Gradients of join_heads: dk is the sum over the heads, ascending. Shapes as there.
template <class T>
void join_heads_backward(const Exec& exec, View2<T> dq, View2<T> dkv, View2<T> dk,
                         View2<const T> dqkv, const LatentHeads& of);

/// v [T, H·V] = the first V columns of each head of o [T, H·K].
template <class T>
void take_values(const Exec& exec, View2<T> v, View2<const T> o, const LatentHeads& of);

/// Gradient of take_values: dout [T, H·K] = dv [T, H·V], and zeros after each head's V columns.
template <class T>
void take_values_backward(const Exec& exec, View2<T> dout, View2<const T> dv,
                          const LatentHeads& of);

}  // namespace trireme::kernels
