#pragma once

#include <trireme/kernels/lanes.hpp>
#include <trireme/kernels/update.hpp>
#include <trireme/rules/table.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// Helpers of the launches of passes of rules.
namespace trireme::kernels::detail {

/// Numbers of a step for a part.
KOKKOS_FORCEINLINE_FUNCTION rules::Step step_of(const double* control, double learning_rate,
                                                const double* factors, const UpdateRange& part) {
  rules::Step step;
  step.learning_rate = learning_rate;
  step.update = control[control_update];
  step.clip = control[control_clip];
  step.first_correction = control[control_first_correction];
  step.second_correction = control[control_second_correction];
  step.factor = factors != nullptr ? factors[part.array] : 1.0;
  step.decays = part.decays != 0;
  return step;
}

/// The learning rate of an array. `rates`: factors of the arrays, or null: 1.
KOKKOS_FORCEINLINE_FUNCTION double rate_of(double learning_rate, const double* rates,
                                           std::int64_t array) {
  return rates != nullptr ? learning_rate * rates[array] : learning_rate;
}

/// Calls use(std::type_identity<Pass>{}) for a pass of a rule.
template <class Use>
void visit_pass(OptimizerKind kind, int number, const Use& use) {
  rules::visit(kind, [&]<class R>(std::type_identity<R>) {
    rules::visit_type<typename R::Passes>(static_cast<std::size_t>(number), use);
  });
}

}  // namespace trireme::kernels::detail
