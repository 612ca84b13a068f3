#pragma once

#include <trireme/rules/rule.hpp>

#include <tuple>

namespace trireme::rules {

/// AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101, algorithm 2; as in PyTorch, the learning
/// rate is also a factor of the weight decay): with g = clip gradient, in update u,
///   weight *= 1 − learning_rate weight_decay;  m += (1 − beta1) (g − m);
///   v = beta2 v + (1 − beta2) g²;
///   weight −= learning_rate / (1 − beta1^u) m / (√v / √(1 − beta2^u) + epsilon).
struct AdamW : Rule {
  static constexpr std::string_view word = "adamw";
  static constexpr std::string_view source = "Loshchilov and Hutter 2019";
  static constexpr std::string_view keys = "beta1 beta2 epsilon weight_decay";

  static std::vector<StateArray> states(const Settings&) {
    return {{"first_moment"}, {"second_moment"}};
  }

  template <class Real>
  struct Update {
    static constexpr const char* label = "kernels/adamw_update";
    static constexpr bool of_gradient = false;
    static constexpr int states = 2;

    Real clip, step_size, root_correction, keep, toward_gradient, beta2, toward_square, epsilon;

    TRIREME_BODY Update(const Settings& s, const Step& t)
        : clip(static_cast<Real>(t.clip)),
          step_size(static_cast<Real>(t.learning_rate / t.first_correction)),
          root_correction(static_cast<Real>(1.0 / std::sqrt(t.second_correction))),
          keep(t.decays ? static_cast<Real>(1.0 - t.learning_rate * s.weight_decay) : Real(1)),
          toward_gradient(static_cast<Real>(1.0 - s.beta1)),
          beta2(static_cast<Real>(s.beta2)),
          toward_square(static_cast<Real>(1.0 - s.beta2)),
          epsilon(static_cast<Real>(s.epsilon)) {}

    TRIREME_BODY void operator()(Real& w, const Real& gradient, Real& m, Real& v) const {
      const Real g = clip * gradient;
      m = m + toward_gradient * (g - m);
      v = beta2 * v + toward_square * g * g;
      w = keep * w - step_size * (m / (std::sqrt(v) * root_correction + epsilon));
    }
  };

  using Passes = std::tuple<Elements<Update>>;
};

}  // namespace trireme::rules
