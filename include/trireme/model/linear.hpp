#pragma once

#include <trireme/kernels/matmul.hpp>
#include <trireme/model/parameters.hpp>

#include <string>

namespace trireme::model {

/// y = x wᵀ + bias, or without one, with w [N, M]: a matrix product of the model with its three
/// passes. What this rank holds of it is either some of the outputs (column-parallel) or some of
/// the inputs (row-parallel): Shoeybi et al. 2019, arXiv 1909.08053, section 3.
template <class P>
struct Linear {
  using T = typename P::Compute;
  using G = typename P::Gradient;

  View2<T> w;   // [N, M]
  View1<T> b;   // [N], or empty
  View2<G> dw;  // [N, M]
  View1<G> db;  // [N], or empty

  Linear(const Parameters<P>& parameters, const std::string& weight, const std::string& bias,
         std::int64_t outputs, std::int64_t inputs)
      : w(parameters.weight(weight, outputs, inputs)),
        b(parameters.weight(bias, outputs)),
        dw(parameters.gradient(weight, outputs, inputs)),
        db(parameters.gradient(bias, outputs)) {}
  /// Without a bias.
  Linear(const Parameters<P>& parameters, const std::string& weight, std::int64_t outputs,
         std::int64_t inputs)
      : w(parameters.weight(weight, outputs, inputs)),
        dw(parameters.gradient(weight, outputs, inputs)) {}

  /// dx [T, M] = dy w, dy [T, N].
  void backward_input(const Exec& exec, View2<T> dx, View2<const T> dy) const {
    kernels::linear_backward_input<T>(exec, dx, dy, w);
  }
  /// dh [T, M] = (dy w) gelu'(h), where the input was gelu(h).
  void gelu_backward_input(const Exec& exec, View2<T> dh, View2<const T> dy, View2<const T> h,
                           Gelu form) const {
    kernels::linear_gelu_backward_input<T>(exec, dh, dy, w, h, form);
  }
};

/// N is this rank's part of the outputs, x is whole; dx is a partial sum over the tensor axis.
template <class P>
struct ColumnParallelLinear : Linear<P> {
  using typename Linear<P>::T;
  using Linear<P>::Linear;

  /// y [T, N], x [T, M].
  void forward(const Exec& exec, View2<T> y, View2<const T> x) const {
    kernels::linear_forward<T>(exec, y, x, this->w, this->b);
  }
  /// dw += dyᵀ x, db += Σ_t dy.
  void backward_weight(const Exec& exec, View2<const T> dy, View2<const T> x) const {
    kernels::linear_backward_weight<T>(exec, this->dw, this->db, dy, x);
  }
};

/// M is this rank's part of the inputs; y is a partial sum over the tensor axis, to which rank 0
/// adds the bias, which all ranks hold.
template <class P>
struct RowParallelLinear : Linear<P> {
  using typename Linear<P>::T;
  using typename Linear<P>::G;
  using Linear<P>::Linear;

  /// y [T, N], x [T, M].
  void forward(const Exec& exec, View2<T> y, View2<const T> x, int tensor_rank) const {
    kernels::linear_forward<T>(exec, y, x, this->w, tensor_rank == 0 ? this->b : View1<T>());
  }
  /// dw += dyᵀ x; dy [T, N], x [T, M].
  void backward_weight(const Exec& exec, View2<const T> dy, View2<const T> x) const {
    kernels::linear_backward_weight<T>(exec, this->dw, View1<G>(), dy, x);
  }
  /// db += Σ_r dy over this rank's rows [R, N].
  void backward_bias(const Exec& exec, View2<const T> dy) const {
    kernels::linear_backward_bias<T>(exec, this->db, dy);
  }
};

}  // namespace trireme::model
