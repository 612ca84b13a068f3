#pragma once

#include <trireme/tensor/views.hpp>

/// Kernels with which Muon orthogonalises matrices (Jordan et al. 2024). Asynchronous on exec;
/// instantiated for float and double.
namespace trireme::kernels {

/// x = x / (root[0] + 1e-7). x [n], root [1].
template <class Real>
void divide_by(const Exec& exec, View1<Real> x, View1<const double> root);

/// y = x, both [N,M] with any row strides.
template <class Real>
void copy_matrix(const Exec& exec, View2<Real> y, View2<const Real> x);

}  // namespace trireme::kernels
