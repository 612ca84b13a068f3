#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/plan/ranks.hpp>
#include <trireme/plan/step_time.hpp>

#include <nlohmann/json_fwd.hpp>

#include <string>

/// The predicted time of a step in `trireme check`.
namespace trireme::commands {

/// Rates that follow from a step's time.
struct Rates {
  double tokens_per_second = 0;
  double mfu = 0;  ///< model FLOPs / (time · ranks · peak), without recomputation
  double hfu = 0;  ///< as mfu, with recomputation
};
Rates rates_of(const deck::Config& config, const plan::StepTime& time,
               const plan::Machine& machine);

/// Text on the predicted step: its time and rates, the shares of the time by cause, and the
/// assumptions of the prediction.
std::string time_report(const deck::Config& config, const plan::StepTime& time,
                        const plan::Machine& machine);

/// The plan as JSON, with the step's time unless `time` is null. `memory`: bytes that a rank needs;
/// `limit`: bytes that it may use, 0 if unknown.
nlohmann::json plan_json(const deck::Config& config, const plan::StepTime* time, Bytes memory,
                         Bytes limit, const plan::Machine& machine);

}  // namespace trireme::commands
