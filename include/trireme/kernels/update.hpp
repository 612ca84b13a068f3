#pragma once

#include <trireme/base/types.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

/// The optimizer's kernels. Weights, moments and gradients are fp32 or wider. Asynchronous on exec;
/// instantiated for float and double.
namespace trireme::kernels {

struct AdamW {
  double learning_rate = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;
  std::int64_t step = 1;  ///< this update's number, from 1: bias correction
};

/// One step of AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101, algorithm 2; eta folded into
/// both terms as in PyTorch): with g = clip[0] gradient,
///   weight *= 1 - learning_rate weight_decay;  m += (1 - beta1) (g - m);  v = beta2 v + (1 -
///   beta2) g^2; weight -= learning_rate / (1 - beta1^step) m / (sqrt(v) / sqrt(1 - beta2^step) +
///   epsilon).
/// All [n]; clip_coefficient [1].
template <class Real>
void adamw_update(const Exec& exec, View1<Real> weight, View1<Real> m, View1<Real> v,
                  View1<const Real> gradient, const AdamW& adamw,
                  View1<const double> clip_coefficient);

/// Elements that go into one partial sum of squares. Fixed: the norm is part of what no layout may
/// change.
using trireme::norm_block;
inline constexpr std::int64_t norm_blocks(std::int64_t n) {
  return (n + norm_block - 1) / norm_block;
}

/// partial[b] = sum of squares of elements [b, b + 1) norm_block, in double; the order depends on
/// the block alone. partial [norm_blocks(n)], x [n].
template <class Real>
void squared_norm_blocks(const Exec& exec, View1<double> partial, View1<const Real> x);

/// The same for blocks that lie anywhere in x, so that one launch serves many arrays: partial[b] =
/// sum of squares of x[begins[b] .. ends[b]). The order depends on a block's length alone.
/// partial, begins, ends [blocks], x [n].
template <class Real>
void squared_norm_blocks(const Exec& exec, View1<double> partial, View1<const Real> x,
                         View1<const std::int64_t> begins, View1<const std::int64_t> ends);

/// sums[k] = sum of partial[ends[k-1] .. ends[k]), from 0 on for k = 0, in an order that depends on
/// that segment's length alone: the same bits wherever it lies. sums, ends [segments], partial [n];
/// ends must not fall nor exceed n. A segment may be empty.
void segment_sums(const Exec& exec, View1<double> sums, View1<const double> partial,
                  View1<const std::int64_t> ends);

/// root[0] = sqrt(sum of values), in an order fixed by n. root [1], values [n].
void root_of_sum(const Exec& exec, View1<double> root, View1<const double> values);

/// coefficient[0] = min(1, maximum / (norm[0] + 1e-6)), or 1 where maximum = 0 (no clipping). A
/// norm that is not finite gives what this arithmetic gives: NaN, or 0. coefficient, norm [1].
/// Pascanu et al. 2013, arXiv 1211.5063, algorithm 1.
void clip_coefficient(const Exec& exec, View1<double> coefficient, View1<const double> norm,
                      double maximum);

/// count[0] += number of infinities and NaNs in x. count [1], x [n].
template <class Real>
void count_non_finite(const Exec& exec, View1<std::int64_t> count, View1<const Real> x);

}  // namespace trireme::kernels
