#pragma once

#include <trireme/base/types.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/kernels/update_parts.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

/// The optimizer's kernels. Weights, moments and gradients are fp32 or wider. Asynchronous on exec;
/// instantiated for float and double, and kernels that only read also for Bf16 and Fp16.
namespace trireme::kernels {

/// Progress of a run's updates, stored in the memory of the updates so that no step waits for it.
/// Elements of a View1<double>: whole numbers except for the norm and the loss scale.
enum UpdateStatus : int {
  status_norm,            ///< norm of the last gradient, before clipping
  status_skipped,         ///< skipped steps since the run began
  status_skipped_in_row,  ///< consecutive skipped steps up to now
  status_skipped_step,    ///< the last skipped step; 0: none
  status_skipped_sum,     ///< its first sum of squares that was not finite; −1: none
  status_loss_scale,      ///< factor of the next step's loss
  status_scale_steps,     ///< updates since the scale changed or a step was skipped
  status_size
};

/// Plan of a step's update, computed once for all arrays: elements of a View1<double>.
enum UpdateControl : int {
  control_proceed,           ///< 0: the step is skipped and changes nothing
  control_clip,              ///< factor of the gradient: clips it and removes the loss scale
  control_first_correction,  ///< 1 − beta1^u in update u
  control_second_correction,
  control_size
};

/// Dynamic loss scaling (Micikevicius et al. 2018, arXiv 1710.03740, section 3.2): a skipped step
/// halves the scale, down to 1; `interval` consecutive updates double it, up to 2^24.
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
  std::int64_t most_skips = 1;  ///< consecutive skipped steps after which no step is taken
  LossScaling loss_scaling;
};

/// Computes a step's control from the norm of its gradients, which is summed from `sums` and stored
/// in status[status_norm]. The gradients contain the loss scale s = status[status_loss_scale] as a
/// factor; the norm is divided by it. If the norm is finite, clip = min(1, clip_norm / (norm +
/// 1e-6)) / s (Pascanu et al. 2013, arXiv 1211.5063, algorithm 1). Otherwise the step is skipped
/// and counted in status; after `most_skips` consecutive skipped steps all steps are skipped.
/// Skipped steps are not updates: u = step − status[status_skipped]. Then s becomes the scale of
/// the next step. control [control_size], status [status_size]. With `gradient_scale` [1] the
/// gradients contain that factor instead of s, which may have changed since they were computed.
void plan_update(const Exec& exec, View1<double> control, View1<double> status,
                 View1<const double> sums, const UpdatePlan& plan,
                 View1<const double> gradient_scale = {});

/// gradient[0] = NaN if loss[0] is not finite, so that the gradient's norm shows it. loss [1].
template <class Real>
void mark_non_finite(const Exec& exec, View1<Real> gradient, View1<const double> loss);

struct AdamW {
  double learning_rate = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;
};

/// One step of AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101, algorithm 2; eta folded into
/// both terms as in PyTorch): with g = clip gradient, in update u,
///   weight *= 1 - learning_rate weight_decay;  m += (1 - beta1) (g - m);
///   v = beta2 v + (1 - beta2) g^2;
///   weight -= learning_rate / (1 - beta1^u) m / (sqrt(v) / sqrt(1 - beta2^u) + epsilon).
/// All [n]; control [control_size]. Like the rules below it updates many arrays at once if given
/// `parts`: the arrays are then arenas, and each part gives its offsets in them.
template <class Real>
void adamw_update(const Exec& exec, View1<Real> weight, View1<Real> m, View1<Real> v,
                  View1<const Real> gradient, const AdamW& adamw, View1<const double> control);
template <class Real>
void adamw_update(const Exec& exec, View1<Real> weight, View1<Real> m, View1<Real> v,
                  View1<const Real> gradient, const AdamW& adamw, View1<const double> control,
                  const UpdateParts& parts);

struct Sgd {
  double learning_rate = 0;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
};

/// One step of SGD with momentum (Polyak 1964; in Nesterov's form Sutskever et al. 2013), as
/// torch.optim.SGD: with g = clip gradient + weight_decay weight,
///   b = momentum b + g;  weight -= learning_rate (nesterov ? g + momentum b : b).
/// All [n]; b may be empty if momentum = 0. control [control_size].
template <class Real>
void sgd_update(const Exec& exec, View1<Real> weight, View1<Real> b, View1<const Real> gradient,
                const Sgd& sgd, View1<const double> control);
template <class Real>
void sgd_update(const Exec& exec, View1<Real> weight, View1<Real> b, View1<const Real> gradient,
                const Sgd& sgd, View1<const double> control, const UpdateParts& parts);

/// The direction of a step of LAMB (You et al. 2020, arXiv 1904.00962, algorithm 2): AdamW's
/// moments m and v, and
///   gradient = m / (1 - beta1^u) / (sqrt(v) / sqrt(1 - beta2^u) + epsilon) + weight_decay weight.
/// All [n]; the gradient is replaced. control [control_size].
template <class Real>
void lamb_direction(const Exec& exec, View1<Real> gradient, View1<Real> m, View1<Real> v,
                    View1<const Real> weight, const AdamW& lamb, View1<const double> control);
template <class Real>
void lamb_direction(const Exec& exec, View1<Real> gradient, View1<Real> m, View1<Real> v,
                    View1<const Real> weight, const AdamW& lamb, View1<const double> control,
                    const UpdateParts& parts);

/// ratios[a] = |weight| / |direction| of array a, 1 if one of them is 0, from the sums of squares
/// of each array's parts [arrays · parts], added in order. ratios [arrays].
void trust_ratios(const Exec& exec, View1<double> ratios, View1<const double> weight_sums,
                  View1<const double> direction_sums, std::int64_t parts);

/// weight -= learning_rate ratio[array] direction. weight, direction [n]; ratio [1], or [arrays];
/// control [control_size].
template <class Real>
void lamb_update(const Exec& exec, View1<Real> weight, View1<const Real> direction,
                 double learning_rate, View1<const double> ratio, View1<const double> control);
template <class Real>
void lamb_update(const Exec& exec, View1<Real> weight, View1<const Real> direction,
                 double learning_rate, View1<const double> ratios, View1<const double> control,
                 const UpdateParts& parts);

struct Lars {
  double learning_rate = 0;
  double momentum = 0;
  double weight_decay = 0;
  double trust_coefficient = 0;
};

/// ratios[a] = trust_coefficient |weight| / (clip |gradient| + weight_decay |weight|) of array a, 1
/// if a norm is 0. Sums as in trust_ratios; the gradient's sums are taken before clipping. control
/// [control_size].
void lars_ratios(const Exec& exec, View1<double> ratios, View1<const double> weight_sums,
                 View1<const double> gradient_sums, std::int64_t parts, const Lars& lars,
                 View1<const double> control);

/// One step of LARS (You et al. 2017, arXiv 1708.03888, algorithm 1): with g = clip gradient +
/// weight_decay weight,
///   b = momentum b + learning_rate ratio[array] g;  weight -= b.
/// Parts without weight decay (norms and biases) have the ratio 1. b may be empty if momentum = 0.
/// All [n]; ratios [1], or [arrays]; control [control_size].
template <class Real>
void lars_update(const Exec& exec, View1<Real> weight, View1<Real> b, View1<const Real> gradient,
                 const Lars& lars, View1<const double> ratio, View1<const double> control);
template <class Real>
void lars_update(const Exec& exec, View1<Real> weight, View1<Real> b, View1<const Real> gradient,
                 const Lars& lars, View1<const double> ratios, View1<const double> control,
                 const UpdateParts& parts);

/// The weights that the model computes with, rounded from the master weights: each part has one
/// offset in the rounded weights and one in the master weights. T: Bf16 or Fp16.
template <class T, class Real>
void round_weights(const Exec& exec, View1<T> weight, View1<const Real> master,
                   const UpdateParts& parts);

/// Elements of one partial sum of squares. The size is fixed, because no layout may change the
/// norm.
using trireme::norm_block;
inline constexpr std::int64_t norm_blocks(std::int64_t n) {
  return (n + norm_block - 1) / norm_block;
}

/// partial[b] = sum of squares of elements [b, b + 1) norm_block, in double; the order depends only
/// on the block. partial [norm_blocks(n)], x [n].
template <class Real>
void squared_norm_blocks(const Exec& exec, View1<double> partial, View1<const Real> x);

/// Partial sums of blocks anywhere in x, so that one launch serves many arrays: partial[b] = sum of
/// squares of x[begins[b] .. ends[b]). The order depends only on a block's length. partial, begins,
/// ends [blocks], x [n].
template <class Real>
void squared_norm_blocks(const Exec& exec, View1<double> partial, View1<const Real> x,
                         View1<const std::int64_t> begins, View1<const std::int64_t> ends);

/// sums[k] = sum of partial[ends[k-1] .. ends[k]), from 0 on for k = 0, in an order that depends
/// only on the segment's length: the same bits at any offset. sums, ends [segments], partial [n].
/// ends must be ascending and at most n; equal ends make an empty segment.
void segment_sums(const Exec& exec, View1<double> sums, View1<const double> partial,
                  View1<const std::int64_t> ends);

/// root[0] = sqrt(sum of values), in an order fixed by n. root [1], values [n].
void root_of_sum(const Exec& exec, View1<double> root, View1<const double> values);

/// count[0] += number of infinities and NaNs in x. count [1], x [n].
template <class Real>
void count_non_finite(const Exec& exec, View1<std::int64_t> count, View1<const Real> x);

}  // namespace trireme::kernels
