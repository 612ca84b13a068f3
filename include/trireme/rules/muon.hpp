#pragma once

#include <trireme/rules/adamw.hpp>
#include <trireme/rules/rule.hpp>

#include <algorithm>
#include <tuple>

namespace trireme::rules {

/// Muon (Jordan et al. 2024; weight decay and scale of Liu et al. 2025, arXiv 2502.16982) for the
/// weights of products in the layers, AdamW for other arrays: with g = clip gradient,
///   m = momentum m + g;  d = nesterov ? g + momentum m : m;  O = orthogonalise(d);
///   weight = (1 − learning_rate weight_decay) weight − learning_rate factor O.
struct Muon : Rule {
  static constexpr std::string_view word = "muon";
  static constexpr std::string_view source = "Jordan et al. 2024";
  static constexpr std::string_view keys =
      "beta1 beta2 epsilon momentum nesterov newton_schulz_steps muon_scale muon_rate_factor "
      "weight_decay";
  static constexpr Matrices matrices = Matrices::hidden;
  static constexpr double default_momentum = 0.95;
  static constexpr bool has_nesterov = true;
  static constexpr bool nesterov_by_default = true;
  static constexpr std::string_view needs_whole_replicas =
      "which divides matrices among whole replicas";

  static std::vector<StateArray> states(const Settings&) {
    return {{"momentum"}, {"second_moment", Arrays::others}};
  }

  /// Factor of the update of a matrix with `rows` outputs and `columns` inputs.
  static double factor(const Settings& s, double rows, double columns) {
    const double of_shape = s.muon_scale == MuonScale::match_adamw
                                ? 0.2 * std::sqrt(std::max(rows, columns))
                                : std::sqrt(std::max(1.0, rows / columns));
    return s.muon_rate_factor * of_shape;
  }

  /// Replaces the gradient by d.
  template <class Real>
  struct Direction {
    static constexpr const char* label = "kernels/muon_direction";
    static constexpr bool of_gradient = true;
    static constexpr int states = 1;

    Real clip, momentum;
    bool nesterov;

    TRIREME_BODY Direction(const Settings& s, const Step& t)
        : clip(static_cast<Real>(t.clip)),
          momentum(static_cast<Real>(s.momentum)),
          nesterov(s.nesterov) {}

    TRIREME_BODY void operator()(Real& gradient, const Real&, Real& m) const {
      const Real g = clip * gradient;
      m = momentum * m + g;
      gradient = nesterov ? g + momentum * m : m;
    }
  };

  template <class Real>
  struct Update {
    static constexpr const char* label = "kernels/muon_update";
    static constexpr bool of_gradient = false;
    static constexpr int states = 0;

    Real keep, rate;

    TRIREME_BODY Update(const Settings& s, const Step& t)
        : keep(static_cast<Real>(t.decays ? 1.0 - t.learning_rate * s.weight_decay : 1.0)),
          rate(static_cast<Real>(t.learning_rate * t.factor)) {}

    TRIREME_BODY void operator()(Real& w, const Real& o) const { w = keep * w - rate * o; }
  };

  using Passes =
      std::tuple<Elements<Direction, Arrays::matrices>, WholeMatrices,
                 Elements<Update, Arrays::matrices>, Elements<AdamW::Update, Arrays::others>>;
};

}  // namespace trireme::rules
