#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Gradients of a part of the logits that was computed before the statistics of the whole row were
/// known: the softmax and its products use the part's own maximum and sum, and are scaled
/// afterwards (Yeung et al. 2024, arXiv 2411.05288, algorithm 2). `own` and `merged` [R,3] are the
/// statistics of the part and of the whole row (cross_entropy.hpp); their ratio in row r is
///
///   f[r] = own sum · exp(own largest - largest) / sum.
///
/// The part holds the ids [first_id, first_id + Vl). `scale` is multiplied by loss_scale[0] if
/// given. Asynchronous on exec; instantiated for float, double, Bf16 and Fp16.
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

/// dy[r,d] = scale (f[r] dy[r,d] - slope[r] table[targets[r] - first_id, d]). slope is the
/// derivative of the soft cap at the target's logit, or 1 without a cap; no row is subtracted if
/// another part holds the target. On entry, dy is the part's softmax times its table. dy [R,D],
/// table [Vl,D].
template <class T>
void rescale_output_gradient(const Exec& exec, View2<T> dy, View2<const T> table,
                             const LogitsPart& part);

/// p[r,v] = scale (f[r] p[r,v] - slope[r] (first_id + v == targets[r])): turns the part's softmax
/// into the gradient of its logits. p [R,Vl].
template <class T>
void rescale_softmax(const Exec& exec, View2<T> p, const LogitsPart& part);

}  // namespace trireme::kernels
