#pragma once

#include <trireme/rules/rule.hpp>

#include <tuple>

namespace trireme::rules {

/// Adafactor (Shazeer and Stern 2018, arXiv 1804.04235, algorithms 4 and 5), as in
/// torch.optim.Adafactor: with g = clip gradient, in update u, with s = 1 − u^−decay_exponent,
///   matrices: R = s R + (1 − s) mean over columns of g²,  C = s C + (1 − s) mean over rows of g²,
///             V = R C / max(mean R, epsilon);
///   others:   V = s V + (1 − s) g²;
///   d = g / max(√V, epsilon);
///   weight = (1 − learning_rate weight_decay) weight − ρ scale d / max(1, rms d / threshold),
///   ρ = min(learning_rate, 1 / √u),  scale = max(minimum_scale, rms weight),
/// with the root mean squares (rms) of the whole array.
struct Adafactor : Rule {
  static constexpr std::string_view word = "adafactor";
  static constexpr std::string_view source = "Shazeer and Stern 2018";
  static constexpr std::string_view keys =
      "epsilon decay_exponent update_threshold minimum_scale weight_decay";
  static constexpr Matrices matrices = Matrices::all;
  static constexpr std::string_view needs_whole_replicas =
      "which sums rows and columns over whole replicas";

  static std::vector<StateArray> states(const Settings&) {
    return {{"second_moment", Arrays::others},
            {"row_mean", Arrays::matrices, Shape::rows},
            {"column_mean", Arrays::matrices, Shape::columns}};
  }

  /// 1 − s.
  struct Moving {
    static constexpr const char* label = "kernels/adafactor_means";
    TRIREME_BODY static double share(const Settings& s, const Step& t) {
      return std::pow(t.update, -s.decay_exponent);
    }
  };

  /// Replaces the gradient of a matrix by d.
  template <class Real>
  struct MatrixDirection {
    static constexpr const char* label = "kernels/adafactor_direction";

    Real clip, epsilon;

    TRIREME_BODY MatrixDirection(const Settings& s, const Step& t)
        : clip(static_cast<Real>(t.clip)), epsilon(static_cast<Real>(s.epsilon)) {}
    TRIREME_BODY static double least(const Settings& s) { return s.epsilon; }

    TRIREME_BODY void operator()(Real& gradient, Real row, Real column) const {
      const Real root = std::sqrt(row * column);
      gradient = clip * gradient / (root > epsilon ? root : epsilon);
    }
  };

  /// Replaces the gradient of another array by d.
  template <class Real>
  struct Direction {
    static constexpr const char* label = "kernels/adafactor_direction";
    static constexpr bool of_gradient = true;
    static constexpr int states = 1;

    Real clip, epsilon, share;

    TRIREME_BODY Direction(const Settings& s, const Step& t)
        : clip(static_cast<Real>(t.clip)),
          epsilon(static_cast<Real>(s.epsilon)),
          share(static_cast<Real>(Moving::share(s, t))) {}

    TRIREME_BODY void operator()(Real& gradient, const Real&, Real& v) const {
      const Real g = clip * gradient;
      v = v + share * (g * g - v);
      const Real root = std::sqrt(v);
      gradient = g / (root > epsilon ? root : epsilon);
    }
  };

  /// ρ scale / max(1, rms d / threshold).
  struct Ratio {
    static constexpr const char* label = "kernels/adafactor_ratios";
    static constexpr int norms = 2;
    TRIREME_BODY static double factor(const Settings& s, const Step& t, const ArrayNorms& n) {
      const double roots = std::sqrt(n.elements), most = 1.0 / std::sqrt(t.update);
      const double weight = n.weight / roots, direction = n.other / roots / s.update_threshold;
      const double rate = t.learning_rate < most ? t.learning_rate : most;
      const double scale = weight > s.minimum_scale ? weight : s.minimum_scale;
      return rate * scale / (direction > 1 ? direction : 1);
    }
  };

  template <class Real>
  struct Update {
    static constexpr const char* label = "kernels/adafactor_update";
    static constexpr bool of_gradient = false;
    static constexpr int states = 0;

    Real keep, size;

    TRIREME_BODY Update(const Settings& s, const Step& t)
        : keep(static_cast<Real>(t.decays ? 1.0 - t.learning_rate * s.weight_decay : 1.0)),
          size(static_cast<Real>(t.factor)) {}

    TRIREME_BODY void operator()(Real& w, const Real& d) const { w = keep * w - size * d; }
  };

  using Passes = std::tuple<Means<Moving>, Factored<MatrixDirection>,
                            Elements<Direction, Arrays::others>, Norms<Ratio>, Elements<Update>>;
};

}  // namespace trireme::rules
