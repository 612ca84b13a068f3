#pragma once

#include <trireme/kernels/matmul.hpp>
#include <trireme/model/parameters.hpp>

#include <string>

namespace trireme::model {

/// y = x wᵀ + bias with w [N, M]: one matrix product of the model with its three passes.
template <class P>
struct Linear {
  using T = typename P::Compute;
  using G = typename P::Gradient;

  View2<T> w;   // [N, M]
  View1<T> b;   // [N]
  View2<G> dw;  // [N, M]
  View1<G> db;  // [N]

  Linear(const Parameters<P>& parameters, const std::string& weight, const std::string& bias,
         std::int64_t outputs, std::int64_t inputs)
      : w(parameters.weight(weight, outputs, inputs)),
        b(parameters.weight(bias, outputs)),
        dw(parameters.gradient(weight, outputs, inputs)),
        db(parameters.gradient(bias, outputs)) {}

  /// y [T, N], x [T, M].
  void forward(const Exec& exec, View2<T> y, View2<const T> x) const {
    kernels::linear_forward<T>(exec, y, x, w, b);
  }
  /// dx [T, M] = dy w, dy [T, N].
  void backward_input(const Exec& exec, View2<T> dx, View2<const T> dy) const {
    kernels::linear_backward_input<T>(exec, dx, dy, w);
  }
  /// dw += dyᵀ x, db += Σ_t dy.
  void backward_weight(const Exec& exec, View2<const T> dy, View2<const T> x) const {
    kernels::linear_backward_weight<T>(exec, dw, db, dy, x);
  }
};

}  // namespace trireme::model
