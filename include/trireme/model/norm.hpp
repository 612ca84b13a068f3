#pragma once

#include <trireme/kernels/norm.hpp>
#include <trireme/model/parameters.hpp>

#include <string>

namespace trireme::model {

/// LayerNorm with its three passes and the statistics that its backward passes need.
template <class P>
struct Norm {
  using T = typename P::Compute;
  using G = typename P::Gradient;

  struct Saved {
    View1<Accumulate<T>> mean;               // [T]
    View1<Accumulate<T>> inverse_deviation;  // [T]
    static Saved cut(Arena& arena, std::int64_t tokens) {
      auto mean = arena.take<Accumulate<T>>(tokens);
      auto inverse = arena.take<Accumulate<T>>(tokens);
      return {mean, inverse};
    }
  };

  View1<T> gain;   // [D]
  View1<T> bias;   // [D]
  View1<G> dgain;  // [D]
  View1<G> dbias;  // [D]

  Norm(const Parameters<P>& parameters, const std::string& name, std::int64_t hidden)
      : gain(parameters.weight(name + ".gain", hidden)),
        bias(parameters.weight(name + ".bias", hidden)),
        dgain(parameters.gradient(name + ".gain", hidden)),
        dbias(parameters.gradient(name + ".bias", hidden)) {}

  void forward(const Exec& exec, View2<T> y, const Saved& saved, View2<const T> x) const {
    kernels::layer_norm_forward<T>(exec, y, saved.mean, saved.inverse_deviation, x, gain, bias,
                                   architecture::norm_epsilon);
  }
  /// dx = or += the gradient of x.
  void backward_input(const Exec& exec, View2<T> dx, View2<const T> dy, const Saved& saved,
                      View2<const T> x, bool accumulate) const {
    kernels::layer_norm_backward_input<T>(exec, dx, dy, x, saved.mean, saved.inverse_deviation,
                                          gain, accumulate);
  }
  void backward_weight(const Exec& exec, View2<const T> dy, const Saved& saved,
                       View2<const T> x) const {
    kernels::layer_norm_backward_weight<T>(exec, dgain, dbias, dy, x, saved.mean,
                                           saved.inverse_deviation);
  }
};

}  // namespace trireme::model
