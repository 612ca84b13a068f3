#pragma once

#include <trireme/kernels/handle.hpp>
#include <trireme/tensor/views.hpp>

/// One more score in the softmax of each head, which belongs to no token (OpenAI 2025, arXiv
/// 2508.10925, section 2.2; Xiao et al. 2023, arXiv 2309.17453, section 3.3). The result of
/// attention without it is rescaled: with s, l and o as in attention.hpp, l' = log(e^l + e^sink)
/// and o' = e^(l − l') o. With o' and l' instead of o and l, attention_backward computes the
/// gradients of queries, keys and values. Asynchronous on the handle; instantiated for float,
/// double, Bf16 and Fp16.
namespace trireme::kernels {

/// Replaces o [T, H·K] and logsumexp [B, H, S] by o' and l', with T = B·S. sinks [H].
template <class T>
void attention_sinks_forward(const Handle& handle, View2<T> o, View3<Accumulate<T>> logsumexp,
                             View1<const T> sinks);

/// dsinks[h] −= Σ_t e^(sinks[h] − l'[h, t]) Σ_k grad[t, h·K + k] o'[t, h·K + k], in a fixed order:
/// the gradient of the sinks. grad, o [T, H·K]: gradient and values of o'; logsumexp [B, H, S]: l';
/// work [T, H].
template <class T>
void attention_sinks_backward(const Handle& handle, View1<Accumulate<T>> dsinks,
                              View2<const T> grad, View2<const T> o,
                              View3<const Accumulate<T>> logsumexp, View1<const T> sinks,
                              View2<Accumulate<T>> work);

}  // namespace trireme::kernels
