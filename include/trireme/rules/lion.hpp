#pragma once

#include <trireme/rules/rule.hpp>

#include <tuple>

namespace trireme::rules {

/// Lion (Chen et al. 2023, arXiv 2302.06675, algorithm 2; as there, the learning rate is also a
/// factor of the weight decay): with g = clip gradient,
///   weight = (1 − learning_rate weight_decay) weight − learning_rate sign(beta1 m + (1 − beta1)
///   g); m = beta2 m + (1 − beta2) g.
struct Lion : Rule {
  static constexpr std::string_view word = "lion";
  static constexpr std::string_view source = "Chen et al. 2023";
  static constexpr std::string_view keys = "beta1 beta2 weight_decay";

  static std::vector<StateArray> states(const Settings&) { return {{"momentum"}}; }

  template <class Real>
  struct Update {
    static constexpr const char* label = "kernels/lion_update";
    static constexpr bool of_gradient = false;
    static constexpr int states = 1;

    Real clip, rate, keep, beta1, toward_sign, beta2, toward_gradient;

    TRIREME_BODY Update(const Settings& s, const Step& t)
        : clip(static_cast<Real>(t.clip)),
          rate(static_cast<Real>(t.learning_rate)),
          keep(t.decays ? static_cast<Real>(1.0 - t.learning_rate * s.weight_decay) : Real(1)),
          beta1(static_cast<Real>(s.beta1)),
          toward_sign(static_cast<Real>(1.0 - s.beta1)),
          beta2(static_cast<Real>(s.beta2)),
          toward_gradient(static_cast<Real>(1.0 - s.beta2)) {}

    TRIREME_BODY void operator()(Real& w, const Real& gradient, Real& m) const {
      const Real g = clip * gradient;
      const Real c = beta1 * m + toward_sign * g;
      const Real sign = c > 0 ? Real(1) : c < 0 ? Real(-1) : Real(0);
      w = keep * w - rate * sign;
      m = beta2 * m + toward_gradient * g;
    }
  };

  using Passes = std::tuple<Elements<Update>>;
};

}  // namespace trireme::rules
