#pragma once

#include <trireme/rules/rule.hpp>

#include <tuple>

namespace trireme::rules {

/// LARS (You et al. 2017, arXiv 1708.03888, algorithm 1): with g = clip gradient + weight_decay
/// weight,
///   b = momentum b + learning_rate ratio g;  weight −= b,
///   ratio = trust_coefficient |weight| / (clip |gradient| + weight_decay |weight|),
/// with the norms of the whole array. Arrays without weight decay (norms and biases) have ratio 1.
struct Lars : Rule {
  static constexpr std::string_view word = "lars";
  static constexpr std::string_view source = "You et al. 2017";
  static constexpr std::string_view keys = "momentum trust_coefficient weight_decay";

  static std::vector<StateArray> states(const Settings& s) {
    if (s.momentum == 0) return {};
    return {{"momentum"}};
  }

  /// The ratio, or 1 if a norm is 0.
  struct Ratio {
    static constexpr const char* label = "kernels/lars_ratios";
    static constexpr int norms = 1;
    TRIREME_BODY static double factor(const Settings& s, const Step& t, const ArrayNorms& n) {
      return n.weight > 0 && n.other > 0
                 ? s.trust_coefficient * n.weight / (t.clip * n.other + s.weight_decay * n.weight)
                 : 1.0;
    }
  };

  /// Constants of both forms.
  template <class Real>
  struct Constants {
    static constexpr const char* label = "kernels/lars_update";
    static constexpr bool of_gradient = false;

    Real clip, decay, rate, momentum;

    TRIREME_BODY Constants(const Settings& s, const Step& t)
        : clip(static_cast<Real>(t.clip)),
          decay(static_cast<Real>(t.decays ? s.weight_decay : 0.0)),
          rate(static_cast<Real>(t.learning_rate * (t.decays ? t.factor : 1.0))),
          momentum(static_cast<Real>(s.momentum)) {}
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
    static bool applies(const Settings& s) { return s.momentum != 0; }
    using Constants<Real>::Constants;

    TRIREME_BODY void operator()(Real& w, const Real& gradient, Real& b) const {
      b = this->momentum * b + this->rate * (this->clip * gradient + this->decay * w);
      w -= b;
    }
  };

  using Passes = std::tuple<Norms<Ratio>, Elements<Plain>, Elements<Momentum>>;
};

}  // namespace trireme::rules
