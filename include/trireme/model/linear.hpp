#pragma once

#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/fp8.hpp>
#include <trireme/model/context.hpp>
#include <trireme/model/parameters.hpp>

#include <optional>
#include <string>
#include <type_traits>

namespace trireme::model {

/// y = x wᵀ + bias, or y = x wᵀ without a bias, with w [N, M]: a matrix product of the model with
/// its three passes. N and M are sizes of this rank's part. Asynchronous on the handle.
template <class P>
struct Linear {
  using T = typename P::Compute;
  using G = typename P::Gradient;

  View2<T> w;   // [N, M]
  View1<T> b;   // [N]; empty without a bias
  View2<G> dw;  // [N, M]; empty if frozen
  View1<G> db;  // [N]; empty if frozen or without a bias

  /// `bias`: name of the bias, or "".
  Linear(const Parameters<P>& parameters, const std::string& weight, const std::string& bias,
         std::int64_t outputs, std::int64_t inputs)
      : w(parameters.weight(weight, outputs, inputs)),
        dw(parameters.gradient(weight, outputs, inputs)) {
    if (bias.empty()) return;
    b = parameters.weight(bias, outputs);
    db = parameters.gradient(bias, outputs);
  }

  /// Scales and memory for operands that are rounded to fp8; empty: no fp8. Only with bf16.
  using Fp8 = std::optional<kernels::Fp8Linear>;

  /// y [T, N] = x wᵀ, plus the bias if `add_bias`; x [T, M].
  void forward(const Handle& handle, View2<T> y, View2<const T> x, const Fp8& fp8 = {},
               bool add_bias = true) const {
    const View1<T> bias = add_bias ? b : View1<T>();
    if constexpr (has_fp8)
      if (fp8) return kernels::fp8_linear_forward(handle, y, x, w, bias, *fp8);
    kernels::linear_forward<T>(handle, y, x, w, bias);
  }
  /// dx [T, M] = dy w, dy [T, N].
  void backward_input(const Handle& handle, View2<T> dx, View2<const T> dy,
                      const Fp8& fp8 = {}) const {
    if constexpr (has_fp8)
      if (fp8) return kernels::fp8_linear_backward_input(handle, dx, dy, w, *fp8);
    kernels::linear_backward_input<T>(handle, dx, dy, w);
  }
  /// dh [T, M] = (dy w) gelu'(h), for a product whose input is gelu(h).
  void gelu_backward_input(const Handle& handle, View2<T> dh, View2<const T> dy, View2<const T> h,
                           Gelu form, const Fp8& fp8 = {}) const {
    if (!fp8) return kernels::linear_gelu_backward_input<T>(handle, dh, dy, w, h, form);
    backward_input(handle, dh, dy, fp8);
    kernels::gelu_backward<T>(handle, dh, dh, h, form);
  }
  /// dw += dyᵀ x, db += Σ_t dy; dy [T, N], x [T, M].
  void backward_weight(const Handle& handle, View2<const T> dy, View2<const T> x,
                       const Fp8& fp8 = {}) const {
    backward_weight(handle, db, dy, x, fp8);
  }
  /// dw += dyᵀ x alone, for products whose bias gradient is summed over other rows.
  void backward_weight_alone(const Handle& handle, View2<const T> dy, View2<const T> x,
                             const Fp8& fp8 = {}) const {
    backward_weight(handle, View1<G>(), dy, x, fp8);
  }
  /// db += Σ_t dy alone; nothing if the bias is frozen or absent.
  void backward_bias(const Handle& handle, View2<const T> dy) const {
    if (db.extent(0) > 0) kernels::linear_backward_bias<T>(handle, db, dy);
  }

 private:
  static constexpr bool has_fp8 = std::is_same_v<T, Bf16>;

  void backward_weight(const Handle& handle, View1<G> dbias, View2<const T> dy, View2<const T> x,
                       const Fp8& fp8) const {
    if constexpr (has_fp8)
      if (fp8 && dw.data() != nullptr)
        return kernels::fp8_linear_backward_weight(handle, dw, dbias, dy, x, *fp8);
    kernels::linear_backward_weight<T>(handle, dw, dbias, dy, x);
  }
};

}  // namespace trireme::model
