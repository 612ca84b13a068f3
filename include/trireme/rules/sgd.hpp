#pragma once

#include <trireme/rules/rule.hpp>

#include <tuple>

namespace trireme::rules {

/// SGD with momentum (Polyak 1964; Nesterov's form: Sutskever et al. 2013), as in torch.optim.SGD:
/// with g = clip gradient + weight_decay weight,
///   b = momentum b + g;  weight −= learning_rate (nesterov ? g + momentum b : b).
struct Sgd : Rule {
  static constexpr std::string_view word = "sgd";
  static constexpr std::string_view source = "Sutskever et al. 2013";
  static constexpr std::string_view keys = "momentum nesterov weight_decay";
  static constexpr bool has_nesterov = true;

  static std::vector<StateArray> states(const Settings& s) {
    if (s.momentum == 0) return {};
    return {{"momentum"}};
  }

  /// Constants of all forms.
  template <class Real>
  struct Constants {
    static constexpr const char* label = "kernels/sgd_update";
    static constexpr bool of_gradient = false;

    Real clip, decay, rate, keep;

    TRIREME_BODY Constants(const Settings& s, const Step& t)
        : clip(static_cast<Real>(t.clip)),
          decay(t.decays ? static_cast<Real>(s.weight_decay) : Real(0)),
          rate(static_cast<Real>(t.learning_rate)),
          keep(static_cast<Real>(s.momentum)) {}
  };

  template <class Real>
  struct Plain : Constants<Real> {
    static constexpr int states = 0;
    static bool applies(const Settings& s) { return s.momentum == 0; }
    using Constants<Real>::Constants;

    TRIREME_BODY void operator()(Real& w, const Real& gradient) const {
      w -= this->rate * (this->clip * gradient + this->decay * w);
    }
  };

  template <class Real>
  struct Momentum : Constants<Real> {
    static constexpr int states = 1;
    static bool applies(const Settings& s) { return s.momentum != 0 && !s.nesterov; }
    using Constants<Real>::Constants;

    TRIREME_BODY void operator()(Real& w, const Real& gradient, Real& b) const {
      const Real g = this->clip * gradient + this->decay * w;
      b = this->keep * b + g;
      w -= this->rate * b;
    }
  };

  template <class Real>
  struct Nesterov : Constants<Real> {
    static constexpr int states = 1;
    static bool applies(const Settings& s) { return s.momentum != 0 && s.nesterov; }
    using Constants<Real>::Constants;

    TRIREME_BODY void operator()(Real& w, const Real& gradient, Real& b) const {
      const Real g = this->clip * gradient + this->decay * w;
      b = this->keep * b + g;
      w -= this->rate * (g + this->keep * b);
    }
  };

  using Passes = std::tuple<Elements<Plain>, Elements<Momentum>, Elements<Nesterov>>;
};

}  // namespace trireme::rules
