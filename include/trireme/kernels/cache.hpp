#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>

namespace trireme::kernels {

/// Splits one token's rows for generation: q[b] = queries of qkv[b], key_cache[b, position] = its
/// keys, value_cache[b, position] = its values. q [B, H·K]; caches [B, Smax, Hkv·K], position <
/// Smax; qkv [B, (H + 2 Hkv)·K]. Asynchronous on exec; instantiated for float, double, Bf16 and
/// Fp16.
template <class T>
void cache_append(const Exec& exec, View2<T> q, View3<T> key_cache, View3<T> value_cache,
                  View2<const T> qkv, std::int64_t position);

}  // namespace trireme::kernels
