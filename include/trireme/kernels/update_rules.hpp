#pragma once

#include <trireme/base/philox.hpp>
#include <trireme/base/types.hpp>
#include <trireme/kernels/update.hpp>
#include <trireme/rules/kinds.hpp>
#include <trireme/tensor/views.hpp>

#include <array>
#include <cstdint>
#include <vector>

/// The passes of update rules (rules/table.hpp) on the arenas of a rank. Asynchronous on exec;
/// instantiated for float and double. A skipped step changes nothing.
namespace trireme::kernels {

/// Largest number of state arrays that a function of elements changes.
inline constexpr int most_states = 2;

/// A state array: one of the views has data. With `narrow`, a value is rounded stochastically: up
/// with a probability that is the distance from the lower neighbour, so that its mean is exact.
template <class Real>
struct StateView {
  View1<Real> full;
  View1<Bf16> narrow;
};

template <class Real>
struct UpdateArenas {
  View1<Real> weight, gradient;
  std::array<StateView<Real>, most_states> states;
};

/// Arguments of all passes of a step.
struct UpdateStep {
  OptimizerKind kind = OptimizerKind::adamw;
  rules::Settings settings;
  double learning_rate = 0;
  View1<const double> control;  // [control_size]
  View1<const double> factors;  // [arrays] factor of each array, or empty: 1
  /// Random numbers of stochastic rounding. The stream is the number of the array, and an element
  /// of the global array has a word of its own: the lower half for the first state array, the
  /// upper half for the second.
  RandomKey rounding;
  View1<const double> rates = {};  // [arrays] factor of the learning rate, or empty: 1
};

/// A pass over elements. `number`: see rules::Pass.
template <class Real>
void element_pass(const Exec& exec, int number, const UpdateArenas<Real>& arenas,
                  const UpdateStep& step, const UpdateRanges& parts);

/// A pass that finds factors: factors[a] from the norms of array a. A norm is the root of the sum
/// of the array's `parts` sums of squares, in order. other_sums: of the gradient before clipping,
/// or of what is in its place. factors, elements [arrays]; sums [arrays · parts].
void find_factors(const Exec& exec, int number, View1<double> factors,
                  View1<const double> weight_sums, View1<const double> other_sums,
                  View1<const double> elements, std::int64_t parts, const UpdateStep& step);

}  // namespace trireme::kernels
