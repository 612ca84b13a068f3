#pragma once

#include <trireme/kernels/update.hpp>
#include <trireme/kernels/update_ranges.hpp>
#include <trireme/tensor/views.hpp>

/// Kernels of Muon (Jordan et al. 2024; Liu et al. 2025, arXiv 2502.16982). Asynchronous on exec;
/// instantiated for float and double.
namespace trireme::kernels {

/// m = momentum m + g with g = clip gradient; then gradient = g + momentum m if `nesterov`,
/// otherwise m. gradient and m are arenas; control [control_size].
template <class Real>
void muon_direction(const Exec& exec, View1<Real> gradient, View1<Real> m, double momentum,
                    bool nesterov, View1<const double> control, const UpdateRanges& parts);

/// weight = (1 − learning_rate weight_decay) weight − learning_rate factor[array] direction, where
/// weight_decay is 0 for parts without weight decay. weight and direction are arenas; factor
/// [arrays], control [control_size].
template <class Real>
void muon_update(const Exec& exec, View1<Real> weight, View1<const Real> direction,
                 double learning_rate, double weight_decay, View1<const double> factor,
                 View1<const double> control, const UpdateRanges& parts);

/// x = x / (root[0] + 1e-7). x [n], root [1].
template <class Real>
void divide_by(const Exec& exec, View1<Real> x, View1<const double> root);

/// y = x, both [N,M] with any row strides.
template <class Real>
void copy_matrix(const Exec& exec, View2<Real> y, View2<const Real> x);

}  // namespace trireme::kernels
