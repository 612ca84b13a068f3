#pragma once

#include <trireme/kernels/update_rules.hpp>

#include <stdexcept>
#include <string>

namespace trireme::testing {

/// Settings of the tests.
inline rules::Settings adam_settings(double epsilon = 1e-8, double weight_decay = 0.1) {
  rules::Settings s;
  s.beta1 = 0.9;
  s.beta2 = 0.95;
  s.epsilon = epsilon;
  s.weight_decay = weight_decay;
  return s;
}
inline rules::Settings momentum_settings(double momentum, bool nesterov, double weight_decay) {
  rules::Settings s;
  s.momentum = momentum;
  s.nesterov = nesterov;
  s.weight_decay = weight_decay;
  return s;
}

/// Views of a pass: one array each, or arenas.
template <class T>
struct PassViews {
  View1<T> weight, gradient;
  View1<T> first = {}, second = {};  ///< state
  View1<const double> factors = {};
};

/// Runs the pass with the label "kernels/<rule>_<name>", which applies with these settings.
template <class T>
void run_pass(const std::string& name, const PassViews<T>& x, const rules::Settings& settings,
              double learning_rate, View1<const double> control,
              const kernels::UpdateRanges& parts) {
  const auto kind = parse<OptimizerKind>(name.substr(0, name.find('_'))).value();
  for (const rules::Pass& pass : rules::rule_of(kind).passes(settings))
    if (pass.kind == rules::PassKind::elements && pass.label == "kernels/" + name)
      return kernels::element_pass<T>(
          Exec{}, pass.number, {x.weight, x.gradient, {{{x.first, {}}, {x.second, {}}}}},
          {kind, settings, learning_rate, control, x.factors, {}}, parts);
  throw std::invalid_argument(name);
}
template <class T>
void run_pass(const std::string& name, const PassViews<T>& x, const rules::Settings& settings,
              double learning_rate, View1<const double> control) {
  run_pass<T>(name, x, settings, learning_rate, control,
              kernels::whole_update(extent(x.weight, 0)));
}

}  // namespace trireme::testing
