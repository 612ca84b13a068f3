#pragma once

#include <trireme/rules/rule.hpp>

#include <tuple>

namespace trireme::rules {

/// LAMB (You et al. 2020, arXiv 1904.00962, algorithm 2 with φ(x) = x): m and v as in AdamW;
///   d = m / (1 − beta1^u) / (√v / √(1 − beta2^u) + epsilon) + weight_decay weight;
///   weight −= learning_rate |weight| / |d| d, with the norms of the whole array.
struct Lamb : Rule {
  static constexpr std::string_view word = "lamb";
  static constexpr std::string_view source = "You et al. 2020";
  static constexpr std::string_view keys = "beta1 beta2 epsilon weight_decay";

  static std::vector<StateArray> states(const Settings&) {
    return {{"first_moment"}, {"second_moment"}};
  }

  /// Replaces the gradient by d.
  template <class Real>
  struct Direction {
    static constexpr const char* label = "kernels/lamb_direction";
    static constexpr bool of_gradient = true;
    static constexpr int states = 2;

    Real clip, correction, root_correction, decay, toward_gradient, beta2, toward_square, epsilon;

    TRIREME_BODY Direction(const Settings& s, const Step& t)
        : clip(static_cast<Real>(t.clip)),
          correction(static_cast<Real>(1.0 / t.first_correction)),
          root_correction(static_cast<Real>(1.0 / std::sqrt(t.second_correction))),
          decay(t.decays ? static_cast<Real>(s.weight_decay) : Real(0)),
          toward_gradient(static_cast<Real>(1.0 - s.beta1)),
          beta2(static_cast<Real>(s.beta2)),
          toward_square(static_cast<Real>(1.0 - s.beta2)),
          epsilon(static_cast<Real>(s.epsilon)) {}

    TRIREME_BODY void operator()(Real& gradient, const Real& w, Real& m, Real& v) const {
      const Real g = clip * gradient;
      m = m + toward_gradient * (g - m);
      v = beta2 * v + toward_square * g * g;
      gradient = correction * m / (std::sqrt(v) * root_correction + epsilon) + decay * w;
    }
  };

  /// |weight| / |d|, or 1 if a norm is 0.
  struct Ratio {
    static constexpr const char* label = "kernels/lamb_ratios";
    static constexpr int norms = 2;
    TRIREME_BODY static double factor(const Settings&, const Step&, const ArrayNorms& n) {
      return n.weight > 0 && n.other > 0 ? n.weight / n.other : 1.0;
    }
  };

  template <class Real>
  struct Update {
    static constexpr const char* label = "kernels/lamb_update";
    static constexpr bool of_gradient = false;
    static constexpr int states = 0;

    Real size;

    TRIREME_BODY Update(const Settings&, const Step& t)
        : size(static_cast<Real>(t.learning_rate * t.factor)) {}

    TRIREME_BODY void operator()(Real& w, const Real& d) const { w -= size * d; }
  };

  using Passes = std::tuple<Elements<Direction>, Norms<Ratio>, Elements<Update>>;
};

}  // namespace trireme::rules
