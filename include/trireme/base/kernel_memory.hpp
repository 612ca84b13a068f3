#pragma once

#include <trireme/base/types.hpp>

#include <algorithm>

/// Sizes of the workspaces of attention's gradient, matrix products and column sums.
namespace trireme {

/// B samples of S tokens; H query heads, which share Hkv heads of keys and values; head size K.
struct AttentionSizes {
  std::int64_t batch, sequence, heads, key_value_heads, head_size;
};

/// Parts of the workspace of attention's gradient on tensor cores, in elements of four bytes: sums
/// of the queries' gradients [B, H, S padded to largest_block, K], deltas [B, H, S], and counters:
/// for each sample and head, one ticket, and one turn per smallest block of queries.
struct FlashWorkspace {
  static constexpr std::int64_t largest_block = 64;   ///< queries per block
  static constexpr std::int64_t smallest_block = 32;  ///< queries per block

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

/// Workspace of cuDNN's gradient with sums in a fixed order, in bytes, as in the plans of cuDNN
/// 9.19 for compute capability 9.0. For each sample and query head: deltas in fp32; the gradient of
/// the scores in a two-byte type; for grouped heads, also the gradients of keys and values.
constexpr Bytes cudnn_gradient_bytes(const AttentionSizes& s) {
  const auto padded = [&](std::int64_t to) { return (s.sequence + to - 1) / to * to; };
  const Bytes plane = 4 * s.sequence + 2 * padded(64) * padded(128);
  const Bytes grouped = s.heads > s.key_value_heads ? 4 * s.sequence * s.head_size : 0;
  return s.batch * s.heads * (plane + grouped) + 256;
}

/// Workspace of attention's gradient with two-byte types, in elements of four bytes.
constexpr std::int64_t narrow_attention_workspace(const AttentionSizes& s, bool cudnn_gradient) {
  const std::int64_t own = FlashWorkspace(s).elements();
  return cudnn_gradient ? std::max(own, (cudnn_gradient_bytes(s) + 3) / 4) : own;
}

/// Partial sums of the gradient of a table of relative biases: one row [buckets, H] per sample and
/// block of queries, of which kernels use as many as their blocks' size needs.
constexpr std::int64_t relative_bias_workspace(const AttentionSizes& s, std::int64_t buckets) {
  constexpr std::int64_t smallest_block = 32;
  return s.batch * ((s.sequence + smallest_block - 1) / smallest_block) * buckets * s.heads;
}

/// Rows, columns and depth of the operand blocks that are widened to fp32 at a time, where no
/// library multiplies two-byte types.
inline constexpr std::int64_t widened_block = 1024;
inline constexpr Bytes widened_workspace_bytes = 3 * widened_block * widened_block * 4;

/// Number of threads among which a device divides the column sums of a matrix. It is a constant, so
/// that the order of the sums is the same on all devices.
inline constexpr std::int64_t column_sum_threads = std::int64_t{1} << 17;
/// Bytes of the threads' partial sums, stored as doubles.
inline constexpr Bytes column_sum_bytes = column_sum_threads * 8;

/// Workspace size that NVIDIA recommends for Hopper and Blackwell, used on all devices.
inline constexpr Bytes cublaslt_workspace_bytes = Bytes{32} << 20;

}  // namespace trireme
