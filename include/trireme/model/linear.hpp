#pragma once

#include <trireme/kernels/matmul.hpp>
#include <trireme/model/context.hpp>
#include <trireme/model/parameters.hpp>

#include <string>

namespace trireme::model {

/// y = x wᵀ + bias, or y = x wᵀ, with w [N, M]: a matrix product of the model with its three
/// passes. N and M are the sizes of this rank's part.
template <class P>
struct Linear {
  using T = typename P::Compute;
  using G = typename P::Gradient;

  View2<T> w;   // [N, M]
  View1<T> b;   // [N], or empty
  View2<G> dw;  // [N, M]
  View1<G> db;  // [N], or empty

  /// `bias`: name of the bias, or "".
  Linear(const Parameters<P>& parameters, const std::string& weight, const std::string& bias,
         std::int64_t outputs, std::int64_t inputs)
      : w(parameters.weight(weight, outputs, inputs)),
        dw(parameters.gradient(weight, outputs, inputs)) {
    if (bias.empty()) return;
    b = parameters.weight(bias, outputs);
    db = parameters.gradient(bias, outputs);
  }

  /// y [T, N], x [T, M].
  void forward(const Handle& handle, View2<T> y, View2<const T> x, bool add_bias = true) const {
    kernels::linear_forward<T>(handle, y, x, w, add_bias ? b : View1<T>());
  }
  /// dx [T, M] = dy w, dy [T, N].
  void backward_input(const Handle& handle, View2<T> dx, View2<const T> dy) const {
    kernels::linear_backward_input<T>(handle, dx, dy, w);
  }
  /// dh [T, M] = (dy w) gelu'(h), for an input gelu(h).
  void gelu_backward_input(const Handle& handle, View2<T> dh, View2<const T> dy, View2<const T> h,
                           Gelu form) const {
    kernels::linear_gelu_backward_input<T>(handle, dh, dy, w, h, form);
  }
  /// dw += dyᵀ x, db += Σ_t dy; dy [T, N], x [T, M].
  void backward_weight(const Handle& handle, View2<const T> dy, View2<const T> x) const {
    kernels::linear_backward_weight<T>(handle, dw, db, dy, x);
  }
  /// The same in two parts, for products whose bias has its gradient summed over other rows.
  void backward_weight_alone(const Handle& handle, View2<const T> dy, View2<const T> x) const {
    kernels::linear_backward_weight<T>(handle, dw, View1<G>(), dy, x);
  }
  void backward_bias(const Handle& handle, View2<const T> dy) const {
    if (db.extent(0) > 0) kernels::linear_backward_bias<T>(handle, db, dy);
  }
};

}  // namespace trireme::model
