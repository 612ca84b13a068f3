#pragma once

#include <trireme/base/types.hpp>

#include <algorithm>

/// Memory that attention's gradient takes beside its operands: plan/ counts with it, kernels/ asks
/// for it.
namespace trireme {

/// B samples of S tokens, H heads over Hkv heads of keys and values, each of K numbers.
struct AttentionSizes {
  std::int64_t batch, sequence, heads, key_value_heads, head_size;
};

/// Parts of the workspace of attention's gradient on tensor cores, in elements of four bytes: the
/// sums of the queries' gradients [B, H, S padded, K], deltas [B, H, S], and counters: turns of
/// blocks of queries and one ticket.
struct FlashWorkspace {
  static constexpr std::int64_t largest_block = 64;   ///< of queries
  static constexpr std::int64_t smallest_block = 32;  ///< of queries

  std::int64_t sums, deltas, counters;

  explicit constexpr FlashWorkspace(const AttentionSizes& s) {
    const auto blocks = [&](std::int64_t size) { return (s.sequence + size - 1) / size; };
    const std::int64_t planes = s.batch * s.heads;
    sums = planes * blocks(largest_block) * largest_block * s.head_size;
    deltas = planes * s.sequence;
    counters = planes * (blocks(smallest_block) + 1);
  }
  constexpr std::int64_t elements() const { return sums + deltas + counters; }
};

/// What cuDNN's gradient takes where its sums are to be in a fixed order: deltas in fp32, the
/// gradient of the scores in two bytes, S padded to 64 and to 128, and for groups of heads those of
/// each head's keys and values. Found by asking cuDNN 9.19 for its plans on compute capability 9.0,
/// and held against them by a test; a plan that wants more is not taken.
constexpr Bytes cudnn_gradient_bytes(const AttentionSizes& s) {
  const auto padded = [&](std::int64_t to) { return (s.sequence + to - 1) / to * to; };
  const Bytes plane = 4 * s.sequence + 2 * padded(64) * padded(128);
  const Bytes grouped = s.heads > s.key_value_heads ? 4 * s.sequence * s.head_size : 0;
  return s.batch * s.heads * (plane + grouped) + 256;
}

/// What is set aside for one gradient of narrow numbers, in elements of four bytes: enough for all
/// that may compute it.
constexpr std::int64_t narrow_attention_workspace(const AttentionSizes& s, bool cudnn_gradient) {
  const std::int64_t own = FlashWorkspace(s).elements();
  return cudnn_gradient ? std::max(own, (cudnn_gradient_bytes(s) + 3) / 4) : own;
}

}  // namespace trireme
