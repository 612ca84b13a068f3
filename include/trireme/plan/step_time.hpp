#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/plan/step_costs.hpp>
#include <trireme/schedule/program.hpp>
#include <trireme/schedule/repetition.hpp>
#include <trireme/schedule/timeline.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>

namespace trireme::plan {

/// Parts of a rank's time in a step.
enum class Cause : std::uint8_t {
  compute,    ///< kernels in forward and backward passes
  tensor,     ///< messages of the tensor and context axes in passes
  pipeline,   ///< messages between stages that the rank waits for
  data,       ///< sums of gradients, and the gathering of weights
  bubble,     ///< waiting for other pipeline ranks
  optimizer,  ///< gradient norm and update
  host        ///< waiting for the host to start kernels
};
inline constexpr std::size_t causes = 7;
/// "compute", "tensor", …
std::string_view name_of(Cause);

/// The predicted time of a training step.
struct StepTime {
  Seconds seconds = 0;
  /// Times of the pipeline rank with the longest passes. Their sum is `seconds`.
  std::array<Seconds, causes> shares{};
  double idle_share =
      0;  ///< over all ranks, between the first and the last pass; see Timeline::idle_share
  double model_flops = 0;     ///< model FLOPs of the step, without recomputation
  double hardware_flops = 0;  ///< FLOPs of the step, with recomputation

  Seconds of(Cause cause) const { return shares[static_cast<std::size_t>(cause)]; }
  Seconds& of(Cause cause) { return shares[static_cast<std::size_t>(cause)]; }
};

/// Durations of instructions, from these costs.
schedule::Cost cost_of(StepCosts costs);

/// Lower bound of the time of a step with any order of passes: no rank can begin before its first
/// stage has an input, and the gradients of its first stage must reach the first rank.
Seconds least_seconds(const deck::Config& config, const StepCosts& costs);

/// Estimates times of steps from simulated passes of few micro-batches (schedule::RepeatedPasses)
/// and the work after the last pass. Keeps the order of passes for layouts that differ only in
/// costs.
class StepEstimate {
 public:
  Seconds seconds(const deck::Config& config, const StepCosts& costs);

 private:
  using Key = std::tuple<ScheduleKind, int, int, int, StagePlacement>;
  std::map<Key, schedule::RepeatedPasses> known_;
};
/// The estimate for one layout.
Seconds estimated_seconds(const deck::Config& config, const StepCosts& costs);

/// Time of a step by simulation of the program with these costs.
StepTime simulated_time(const deck::Config& config, const architecture::Architecture& architecture,
                        const StepCosts& costs, const schedule::Program& program);

/// The complete prediction for a resolved deck. The machine must have all required speeds
/// (Machine::time_mistake()).
StepTime predict_step(const deck::Config& config, const architecture::Architecture& architecture,
                      const schedule::Program& program, const Machine& machine);

}  // namespace trireme::plan
