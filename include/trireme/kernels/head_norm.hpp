#pragma once

#include <trireme/kernels/handle.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Root mean square normalisation (norm.hpp) of each head of queries and keys separately, as in
/// Qwen3: all heads of queries share one gain, and all heads of keys share another gain. Statistics
/// and sums are in Accumulate<T>. Asynchronous on exec; instantiated for float, double, Bf16 and
/// Fp16.
namespace trireme::kernels {

/// Rows are [queries of all heads | keys | columns left unchanged]. A rank may have no heads.
struct HeadNorm {
  std::int64_t heads = 0;            ///< H, heads of this rank
  std::int64_t key_value_heads = 0;  ///< Hkv
  std::int64_t head_size = 0;        ///< K
  double epsilon = 1e-6;
  double gain_offset = 0;  ///< added to the gains; 1 if gains are stored minus 1

  std::int64_t normed() const { return heads + key_value_heads; }
  std::int64_t columns() const { return normed() * head_size; }
};

/// x[t, h·K + d] = (offset + gain[d]) x[t, h·K + d] inverse_rms[t,h], in place, with x = qkv,
/// inverse_rms = 1 / sqrt(<x²> + epsilon) and <.> the mean over a head. gain is the queries' gain
/// for h < H, otherwise the keys' gain. qkv [T, N], N ≥ (H + Hkv)·K; gains [K]. For the backward
/// pass, raw [T, (H + Hkv)·K] receives a copy of the original columns, and inverse_rms [T, H + Hkv]
/// the factors; both may be empty, as in generation.
template <class T>
void head_norm_forward(const Exec& exec, View2<T> qkv, View2<T> raw,
                       View2<Accumulate<T>> inverse_rms, View1<const T> gain_query,
                       View1<const T> gain_key, const HeadNorm& norm);

/// dx = inverse_rms (g − xhat <g xhat>) with g = (offset + gain) dy and xhat = raw inverse_rms, in
/// place: dqkv [T, N] contains dy and receives dx.
template <class T>
void head_norm_backward_input(const Exec& exec, View2<T> dqkv, View2<const T> raw,
                              View2<const Accumulate<T>> inverse_rms, View1<const T> gain_query,
                              View1<const T> gain_key, const HeadNorm& norm);

/// dgain[d] += Σ dy[t, h·K + d] xhat[t, h·K + d] over t and the heads h that share the gain, in a
/// fixed order. dqkv [T, N] contains dy; call this function before head_norm_backward_input, which
/// overwrites dy. dgain [K].
template <class T>
void head_norm_backward_weight(const Handle& handle, View1<Accumulate<T>> dgain_query,
                               View1<Accumulate<T>> dgain_key, View2<const T> dqkv,
                               View2<const T> raw, View2<const Accumulate<T>> inverse_rms,
                               const HeadNorm& norm);

}  // namespace trireme::kernels
