#pragma once

#include <trireme/kernels/norm.hpp>
#include <trireme/model/context.hpp>
#include <trireme/model/parameters.hpp>

#include <string>
#include <variant>

namespace trireme::model {

/// Statistics that the backward passes of a norm need.
template <class P>
struct NormSaved {
  using T = typename P::Compute;

  View1<Accumulate<T>> mean;     // [R], only for LayerNorm
  View1<Accumulate<T>> inverse;  // [R] 1 / standard deviation, or 1 / root mean square
};

/// LayerNorm with its three passes.
template <class P>
struct LayerNorm {
  using T = typename P::Compute;
  using G = typename P::Gradient;
  using Saved = NormSaved<P>;

  View1<T> gain;   // [D]
  View1<T> bias;   // [D]
  View1<G> dgain;  // [D]; empty if frozen
  View1<G> dbias;  // [D]; empty if frozen
  double epsilon;

  LayerNorm(const Parameters<P>& parameters, const std::string& name, std::int64_t columns,
            double of_norm)
      : gain(parameters.weight(name + ".gain", columns)),
        bias(parameters.weight(name + ".bias", columns)),
        dgain(parameters.gradient(name + ".gain", columns)),
        dbias(parameters.gradient(name + ".bias", columns)),
        epsilon(of_norm) {}

  void forward(const Handle& handle, View2<T> y, const Saved& saved, View2<const T> x) const {
    kernels::layer_norm_forward<T>(handle, y, saved.mean, saved.inverse, x, gain, bias, epsilon);
  }
  /// sum = x + dropout(z), y = norm(sum), in one kernel.
  void forward_residual(const Handle& handle, View2<T> y, const Saved& saved, View2<T> sum,
                        View2<const T> x, View2<const T> z, const kernels::Dropout& site) const {
    kernels::residual_layer_norm_forward<T>(handle, y, saved.mean, saved.inverse, sum, x, z, site,
                                            gain, bias, epsilon);
  }
  /// dx = the gradient of x, or dx += the gradient of x if `accumulate`.
  void backward_input(const Handle& handle, View2<T> dx, View2<const T> dy, const Saved& saved,
                      View2<const T> x, bool accumulate) const {
    kernels::layer_norm_backward_input<T>(handle, dx, dy, x, saved.mean, saved.inverse, gain,
                                          accumulate);
  }
  void backward_weight(const Handle& handle, View2<const T> dy, const Saved& saved,
                       View2<const T> x) const {
    if (dgain.data() == nullptr) return;  // frozen norm
    kernels::layer_norm_backward_weight<T>(handle, dgain, dbias, dy, x, saved.mean, saved.inverse);
  }
};

/// RMSNorm with its three passes.
template <class P>
struct RmsNorm {
  using T = typename P::Compute;
  using G = typename P::Gradient;
  using Saved = NormSaved<P>;

  View1<T> gain;   // [D]
  View1<G> dgain;  // [D]; empty if frozen
  double offset;   // added to the gain
  double epsilon;

  RmsNorm(const Parameters<P>& parameters, const std::string& name, std::int64_t columns,
          double of_norm, double gain_offset)
      : gain(parameters.weight(name + ".gain", columns)),
        dgain(parameters.gradient(name + ".gain", columns)),
        offset(gain_offset),
        epsilon(of_norm) {}

  void forward(const Handle& handle, View2<T> y, const Saved& saved, View2<const T> x) const {
    kernels::rms_norm_forward<T>(handle, y, saved.inverse, x, gain, offset, epsilon);
  }
  /// sum = x + dropout(z), y = norm(sum), in one kernel.
  void forward_residual(const Handle& handle, View2<T> y, const Saved& saved, View2<T> sum,
                        View2<const T> x, View2<const T> z, const kernels::Dropout& site) const {
    kernels::residual_rms_norm_forward<T>(handle, y, saved.inverse, sum, x, z, site, gain, offset,
                                          epsilon);
  }
  /// dx = the gradient of x, or dx += the gradient of x if `accumulate`.
  void backward_input(const Handle& handle, View2<T> dx, View2<const T> dy, const Saved& saved,
                      View2<const T> x, bool accumulate) const {
    kernels::rms_norm_backward_input<T>(handle, dx, dy, x, saved.inverse, gain, offset, accumulate);
  }
  void backward_weight(const Handle& handle, View2<const T> dy, const Saved& saved,
                       View2<const T> x) const {
    if (dgain.data() == nullptr) return;  // frozen norm
    kernels::rms_norm_backward_weight<T>(handle, dgain, dy, x, saved.inverse);
  }
};

/// Either kind of norm.
template <class P>
using Norm = std::variant<LayerNorm<P>, RmsNorm<P>>;

}  // namespace trireme::model
