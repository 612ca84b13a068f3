#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>

namespace trireme::kernels {

/// Positions of rows in the caches of keys and values: row r is the token at positions[r] of text
/// texts[r], or no token if texts[r] is negative. The keys and values of a row must be in the
/// caches before any row attends to them. Kernels do not check texts and positions.
struct CacheRows {
  View1<const std::int32_t> texts;      // [R]
  View1<const std::int32_t> positions;  // [R]
  /// [R] one past the last position that a row attends to; empty: positions[r] + 1.
  View1<const std::int32_t> ends = {};
};

/// Copies the queries of qkv[r] to q[r], its keys to key_cache[texts[r], positions[r]], and its
/// values to value_cache[texts[r], positions[r]]; only the queries if the row has no token. q [R,
/// H·K]; caches [B, Smax, Hkv·K]; qkv [R, (H + 2 Hkv)·K]. Asynchronous on exec; instantiated for
/// float, double, Bf16 and Fp16.
template <class T>
void cache_append(const Exec& exec, View2<T> q, View3<T> key_cache, View3<T> value_cache,
                  View2<const T> qkv, const CacheRows& rows);

}  // namespace trireme::kernels
