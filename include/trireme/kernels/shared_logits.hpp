#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Gradients of a part of the logits, computed with the part's own maximum and sum before the
/// statistics of the whole row are known, and rescaled afterwards (Yeung et al. 2024, arXiv
/// 2411.05288, algorithm 2). `own` and `merged` [R,3] are the statistics of the part and of the
/// whole row (cross_entropy.hpp). The factor of row r is
///
///   f[r] = own sum · exp(own largest − merged largest) / merged sum.
///
/// The part holds the ids [first_id, first_id + Vl). `scale` is multiplied by loss_scale[0] if
/// loss_scale is given. Asynchronous on exec; instantiated for float, double, Bf16 and Fp16.
namespace trireme::kernels {

/// Statistics, targets and gradient scale of a part of the logits.
struct LogitsPart {
  View2<const double> own;
  View2<const double> merged;
  View1<const std::int32_t> targets;
  std::int64_t first_id = 0;
  double scale = 1;
  View1<const double> loss_scale = {};
  double cap = 0;  ///< soft cap of the logits; 0: none
};

/// dy[r,d] = scale (f[r] dy[r,d] − slope[r] table[targets[r] − first_id, d]), where slope is the
/// derivative of the soft cap at the target's logit, or 1 without a cap. If another part holds the
/// target, no row of the table is subtracted. On entry, dy is the part's softmax times the part's
/// table. dy [R,D], table [Vl,D].
template <class T>
void rescale_output_gradient(const Exec& exec, View2<T> dy, View2<const T> table,
                             const LogitsPart& part);

/// p[r,v] = scale (f[r] p[r,v] − slope[r] (first_id + v == targets[r])), with slope as in
/// rescale_output_gradient: turns the part's softmax into the gradient of its logits. p [R,Vl].
template <class T>
void rescale_softmax(const Exec& exec, View2<T> p, const LogitsPart& part);

}  // namespace trireme::kernels
