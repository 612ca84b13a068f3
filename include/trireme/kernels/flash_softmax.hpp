#pragma once

#include <trireme/kernels/flash_problem.hpp>
#include <trireme/kernels/warp_tiles.hpp>

#include <cstdint>

namespace trireme::kernels {

/// The online softmax of a warp's rows over blocks of 8·key_tiles keys. Scores are fragments of
/// 16×8 tiles; row tile m has the queries first_query + 16 m … first_query + 16 m + 15.
template <int row_tiles, int key_tiles>
struct FlashSoftmax {
  using Scores = float[row_tiles][key_tiles][4];
  using Factors = float[row_tiles][2];  // values of rows g and g + 8

  Factors reference;
  Factors sum;  // this lane's part of the sums of exponentials

  TRIREME_DEVICE_FUNCTION void clear() {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        reference[m][half] = -__builtin_inff();
        sum[m][half] = 0.0F;
      }
  }

  /// Sets scores to −∞ for keys beyond the sequence or that a query of sample b does not see.
  template <bool with_documents = false, class Block>
  TRIREME_DEVICE_FUNCTION static void hide(Block& block, Scores& scores, const FlashShape& s,
                                           int first_query, int k0, int b = 0) {
    if (k0 + 8 * key_tiles <= s.end_key(first_query) &&
        k0 + s.back >= first_query + 16 * row_tiles - 1 &&
        (!with_documents || k0 >= s.document_start(b, first_query + 16 * row_tiles - 1)))
      return;
    const int lane = unknown(block, block.thread()) % warp_lanes;
    const int query = first_query + lane / 4;
    const int key = k0 + 2 * (lane % 4);
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = query + 16 * m + 8 * half;
        const int first = s.first_key<with_documents>(b, row), end = s.end_key(row);
        const auto count = static_cast<unsigned>(first < end ? end - first : 0);
#pragma unroll
        for (int n = 0; n < key_tiles; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& score = scores[m][n][2 * half + i];
            const bool sees = static_cast<unsigned>(key + 8 * n + i - first) < count;
            score = sees ? score : -__builtin_inff();
          }
      }
  }

  /// One step of the online softmax: scores become 2^(c (score − reference)), c = scale log2 e. A
  /// row's reference is a score that no score so far exceeds by more than 8 / c, so that the
  /// reference rarely changes after the first block; −∞ if the query has seen no key yet. Calls
  /// rescale(factors) before the exponentials if a reference of the warp changes.
  template <class Block, class Rescale>
  TRIREME_DEVICE_FUNCTION void add_keys(Block& block, Scores& scores, float scale,
                                        const Rescale& rescale) {
    const float c = scale * 1.44269504F;
    Factors factors;
    bool changes = false;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = scores[m][0][2 * half];
#pragma unroll
        for (int n = 0; n < key_tiles; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) largest = block.larger(largest, scores[m][n][2 * half + i]);
        largest = block.larger(largest, block.shuffle_xor(largest, 1));
        largest = block.larger(largest, block.shuffle_xor(largest, 2));
        const float before = reference[m][half];
        const bool exceeds = (largest - before) * c > 8.0F;
        factors[m][half] = exceeds ? block.exp2((before - largest) * c) : 1.0F;
        reference[m][half] = exceeds ? largest : before;
        changes = changes || exceeds;
      }
    if (block.any(changes)) {
#pragma unroll
      for (int m = 0; m < row_tiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) sum[m][half] *= factors[m][half];
      rescale(factors);
    }
    add_powers(block, scores, c);
  }

  /// Sets dropped probabilities to zero.
  template <class Block>
  TRIREME_DEVICE_FUNCTION static void drop(Block& block, Scores& scores, const FlashShape& s,
                                           const FlashDropout& dropout, int b, int h,
                                           int first_query, int k0) {
    const int g = block.thread() % warp_lanes / 4;
    const std::uint64_t plane = dropout.first_element(s, b, h);
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
      const std::uint64_t row = plane + static_cast<std::uint64_t>(first_query + 16 * m + g) *
                                            static_cast<std::uint64_t>(s.sequence);
#pragma unroll
      for (int n = 0; n < key_tiles; ++n) {
        bool dropped[4];
        dropout.drops_of_queries(block, dropped, row + static_cast<std::uint64_t>(k0 + 8 * n),
                                 s.sequence);
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[m][n][i] = dropped[i] ? 0.0F : scores[m][n][i];
      }
    }
  }

  /// Completes row tile m, whose row g is `query`: for rows g and g + 8, sets factor[half] = kept /
  /// sum, and writes logsumexp if the row is valid. `logsumexp` points to the value of query 0.
  template <class Block>
  TRIREME_DEVICE_FUNCTION void finish(Block& block, int m, float (&factor)[2],
                                      const bool (&valid)[2], float scale, float kept, int query,
                                      float* logsumexp) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float all = sum[m][half];
      all += block.shuffle_xor(all, 1);
      all += block.shuffle_xor(all, 2);
      factor[half] = kept / all;
      if (block.thread() % 4 == 0 && valid[half])
        logsumexp[query + 8 * half] = reference[m][half] * scale + block.log(all);
    }
  }

  /// Multiplies each row of `o` by the row's factor.
  template <int tiles>
  TRIREME_DEVICE_FUNCTION static void multiply(float (&o)[row_tiles][tiles][4],
                                               const Factors& factors) {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int n = 0; n < tiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) o[m][n][i] *= factors[m][i / 2];
  }

 private:
  template <class Block>
  TRIREME_DEVICE_FUNCTION void add_powers(Block& block, Scores& scores, float c) {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float shift = reference[m][half] > -__builtin_inff() ? reference[m][half] * c : 0.0F;
        float all = sum[m][half];
#pragma unroll
        for (int n = 0; n < key_tiles; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& score = scores[m][n][2 * half + i];
            score = block.exp2(score * c - shift);
            all += score;
          }
        sum[m][half] = all;
      }
  }
};

}  // namespace trireme::kernels
