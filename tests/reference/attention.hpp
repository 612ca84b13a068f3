#pragma once

#include <trireme/base/philox.hpp>
#include <trireme/kernels/attention.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace trireme::reference {

struct AttentionResult {
  std::vector<double> o;          ///< [B, S, H, K]
  std::vector<double> logsumexp;  ///< [B, H, S]
};

/// Dropout factor of probability (b, h, i, j), 0 or 1/(1 − rate), as defined in
/// kernels/attention.hpp.
inline double dropout_factor(const kernels::AttentionShape& s,
                             const kernels::AttentionDropout& dropout, std::int64_t b,
                             std::int64_t h, std::int64_t i, std::int64_t j) {
  if (dropout.rate == 0.0) return 1.0;
  const std::int64_t all_heads = dropout.all_heads == 0 ? s.heads : dropout.all_heads;
  const std::int64_t plane = (dropout.first_sample + b) * all_heads + dropout.first_head + h;
  const auto element =
      static_cast<std::uint64_t>((plane * s.sequence + i) * s.keys_per_sample() + j);
  const std::uint32_t word = philox(dropout.key, element / 4).w[element % 4];
  return static_cast<double>(word) < dropout.rate * 4294967296.0 ? 0.0 : 1.0 / (1.0 - dropout.rate);
}

/// Attention by its definition in double precision: whole rows of scores, their softmax, and
/// weighted sums of values. q [B·S, H·K]; key_value [B·S_k, 2 Hkv·K]; table [buckets, H].
template <class T>
AttentionResult attention(const std::vector<T>& q, const std::vector<T>& key_value,
                          const kernels::AttentionShape& s,
                          const kernels::AttentionDropout& dropout = {},
                          const std::vector<T>& table = {}) {
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const auto host = [](const auto& view) {
    return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view);
  };
  const double scale = s.scale == 0.0 ? 1.0 / std::sqrt(static_cast<double>(s.head_size)) : s.scale;
  AttentionResult result{std::vector<double>(at(s.tokens() * s.heads * s.head_size)),
                         std::vector<double>(at(s.tokens() * s.heads))};
  std::vector<double> p(at(s.keys_per_sample()));
  const auto positions = host(s.positions), key_begin = host(s.key_begin),
             key_end = host(s.key_end);
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t i = 0; i < s.sequence; ++i) {
        const std::int64_t token = b * s.sequence + i;
        const std::int64_t group = s.group == 0 ? s.heads / s.key_value_heads : s.group;
        const std::int64_t kv = (s.heads_before + h) / group;
        const auto element = [&](std::int64_t key, std::int64_t head, std::int64_t d) {
          const std::int64_t row = b * s.keys_per_sample() + key;
          return static_cast<double>(
              key_value[at((row * 2 * s.key_value_heads + head) * s.head_size + d)]);
        };
        std::int64_t first = s.window == 0 ? 0 : std::max<std::int64_t>(0, i + 1 - s.window);
        std::int64_t seen = s.causal ? i + 1 : s.keys_per_sample();
        if (s.has_documents()) first = std::max<std::int64_t>(first, i - positions(at(token)));
        if (s.has_key_ranges()) {
          if (key_begin.size() > 0) first = std::max<std::int64_t>(first, key_begin(at(token)));
          seen = key_end(at(token));
        }
        double largest = std::numeric_limits<Accumulate<T>>::lowest();
        for (std::int64_t j = first; j < seen; ++j) {
          p[at(j)] = 0.0;
          for (std::int64_t d = 0; d < s.head_size; ++d)
            p[at(j)] += scale *
                        static_cast<double>(q[at((token * s.heads + h) * s.head_size + d)]) *
                        element(j, kv, d);
          if (s.cap > 0) p[at(j)] = s.cap * std::tanh(p[at(j)] / s.cap);
          if (s.has_biases())
            p[at(j)] += static_cast<double>(table[at(s.buckets.of(j - i) * s.heads + h)]);
          largest = std::fmax(largest, p[at(j)]);
        }
        double sum = 0.0;
        for (std::int64_t j = first; j < seen; ++j) sum += p[at(j)] = std::exp(p[at(j)] - largest);
        result.logsumexp[at((b * s.heads + h) * s.sequence + i)] =
            largest + (sum > 0 ? std::log(sum) : 0.0);
        for (std::int64_t d = 0; d < s.head_size; ++d) {
          double& o = result.o[at((token * s.heads + h) * s.head_size + d)];
          for (std::int64_t j = first; j < seen; ++j)
            o += p[at(j)] / sum * dropout_factor(s, dropout, b, h, i, j) *
                 element(j, s.key_value_heads + kv, d);
        }
      }
  return result;
}

/// Attention of qkv [T, (H + 2 Hkv)·K].
template <class T>
AttentionResult attention(const std::vector<T>& qkv, const kernels::AttentionShape& s,
                          const kernels::AttentionDropout& dropout = {},
                          const std::vector<T>& table = {}) {
  std::vector<T> q, key_value;
  for (auto row = qkv.begin(); row != qkv.end(); row += s.qkv_columns()) {
    q.insert(q.end(), row, row + s.heads * s.head_size);
    key_value.insert(key_value.end(), row + s.heads * s.head_size, row + s.qkv_columns());
  }
  return attention(q, key_value, s, dropout, table);
}

}  // namespace trireme::reference
