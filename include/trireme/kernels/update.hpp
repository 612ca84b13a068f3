#pragma once

#include <trireme/base/types.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/kernels/update_ranges.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

/// The optimizer's kernels; update_rules.hpp has the passes of its rules. Weights, moments and
/// gradients are fp32 or wider. Asynchronous on exec; instantiated for float and double, and
/// kernels that only read their arrays also for Bf16 and Fp16.
namespace trireme::kernels {

/// Progress of a run's updates, stored in device memory, so that no step waits for a copy. Elements
/// of a View1<double>; all except the norm and the loss scale are whole numbers.
enum UpdateStatus : int {
  status_norm,            ///< norm of the last gradient, before clipping
  status_skipped,         ///< skipped steps since the run began
  status_skipped_in_row,  ///< consecutive skipped steps up to now
  status_skipped_step,    ///< number of the last skipped step; 0: none
  status_skipped_sum,     ///< index of that step's first sum that was not finite; −1: none
  status_loss_scale,      ///< factor of the next step's loss
  status_scale_steps,     ///< updates since the loss scale changed or a step was skipped
  status_size
};

/// Plan of a step's update, computed once for all arrays: elements of a View1<double>.
enum UpdateControl : int {
  control_proceed,            ///< 0: the step is skipped and changes nothing
  control_clip,               ///< factor of the gradient: clips it and removes the loss scale
  control_first_correction,   ///< 1 − beta1^u in update u
  control_second_correction,  ///< 1 − beta2^u
  control_update,             ///< number u of the update
  /// A power of two: times a clipped gradient of the model, at most 1/2. See factored.hpp.
  control_scale,
  control_size
};

/// Dynamic loss scaling (Micikevicius et al. 2018, arXiv 1710.03740, section 3.2): a skipped step
/// halves the loss scale, down to 1; `interval` consecutive updates double it, up to 2^24.
struct LossScaling {
  std::int64_t interval = 0;  ///< 0: the scale is constant

  static constexpr double least = 1;
  static constexpr double most = 16777216;
};

struct UpdatePlan {
  std::int64_t step = 1;  ///< ≥ 1
  double clip_norm = 0;   ///< 0: no clipping
  double beta1 = 0;
  double beta2 = 0;
  std::int64_t most_skips = 1;  ///< consecutive skipped steps after which all steps are skipped
  LossScaling loss_scaling;
};

/// Computes a step's control from status[status_norm], the norm of gradients that have the loss
/// scale s as a factor, and divides the stored norm by s. s is gradient_scale[0] if
/// `gradient_scale` [1] is given, otherwise status[status_loss_scale]. clip = min(1, clip_norm /
/// (norm + 1e-6)) / s (Pascanu et al. 2013, arXiv 1211.5063, algorithm 1), or 1 / s if clip_norm is
/// 0. A step whose norm is not finite is skipped; after `most_skips` consecutive skipped steps, all
/// steps are skipped. This update has the number u = step − status[status_skipped]. Also sets the
/// next step's loss scale. `sums`: the sums of squares in the norm. control [control_size], status
/// [status_size].
void plan_update(const Exec& exec, View1<double> control, View1<double> status,
                 View1<const double> sums, const UpdatePlan& plan,
                 View1<const double> gradient_scale = {});

/// gradient[0] = NaN if loss[0] is not finite, so that the gradient's norm is NaN. loss [1].
template <class Real>
void mark_non_finite(const Exec& exec, View1<Real> gradient, View1<const double> loss);

/// weight += rate sign(mean − count), for ranges that each have the whole array of a layer: weights
/// that balance the use of experts (DeepSeek-AI 2024, arXiv 2412.19437, section 2.1.2). `counts`:
/// numbers of tokens per expert, in the place of gradients; `mean` is theirs. control
/// [control_size]. Each range is at most one chunk.
template <class Real>
void balance_update(const Exec& exec, View1<Real> weight, View1<const Real> counts, double rate,
                    View1<const double> control, const UpdateRanges& parts);

/// weight = count / mean, or 1 if all counts are 0: the load of experts in a batch. Arguments as of
/// balance_update.
template <class Real>
void load_update(const Exec& exec, View1<Real> weight, View1<const Real> counts,
                 View1<const double> control, const UpdateRanges& parts);

/// Rounds the master weights to the weights that the model computes with. Each part has an offset
/// in the rounded weights and an offset in the master weights. T: Bf16 or Fp16; Real: float.
template <class T, class Real>
void round_weights(const Exec& exec, View1<T> weight, View1<const Real> master,
                   const UpdateRanges& parts);

/// Elements of one partial sum of squares: a fixed number, so that no layout changes the norm.
using trireme::norm_block;
inline constexpr std::int64_t norm_blocks(std::int64_t n) {
  return (n + norm_block - 1) / norm_block;
}

/// partial[b] = sum of squares of the elements [b norm_block, (b + 1) norm_block) of x, in double,
/// in a fixed order. partial [norm_blocks(n)], x [n].
template <class Real>
void squared_norm_blocks(const Exec& exec, View1<double> partial, View1<const Real> x);

/// Partial sums of blocks anywhere in x, so that one launch serves many arrays: partial[b] = sum of
/// squares of the elements [begins[b], ends[b]) of x. The order depends only on a block's length.
/// partial, begins, ends [blocks], x [n].
template <class Real>
void squared_norm_blocks(const Exec& exec, View1<double> partial, View1<const Real> x,
                         View1<const std::int64_t> begins, View1<const std::int64_t> ends);

/// sums[k] = sum of the elements [ends[k − 1], ends[k]) of `partial`, where ends[−1] is 0, in an
/// order that depends only on the segment's length: the same bits at any offset. sums, ends
/// [segments], partial [n]. ends must be ascending and at most n; equal ends make an empty segment.
void segment_sums(const Exec& exec, View1<double> sums, View1<const double> partial,
                  View1<const std::int64_t> ends);

/// root[0] = √(Σ values), in a fixed order. root [1], values [n].
void root_of_sum(const Exec& exec, View1<double> root, View1<const double> values);

/// count[0] += number of infinities and NaNs in x. count [1], x [n].
template <class Real>
void count_non_finite(const Exec& exec, View1<std::int64_t> count, View1<const Real> x);

}  // namespace trireme::kernels
