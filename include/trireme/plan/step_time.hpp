#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/layer_time.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/schedule/program.hpp>

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace trireme::plan {

/// What a rank's time in a step goes to.
enum class Cause : std::uint8_t {
  compute,    ///< kernels of forward and backward passes
  tensor,     ///< messages of the tensor axis
  pipeline,   ///< messages between stages for which the rank waits
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
  /// Of the pipeline rank with the longest passes; they sum to `seconds`.
  std::array<Seconds, causes> shares{};
  double idle_share =
      0;  ///< of all ranks, from the first to the last pass; as Timeline::idle_share
  double model_flops = 0;     ///< of the step; recomputation not counted
  double hardware_flops = 0;  ///< of the step; recomputation counted

  Seconds of(Cause cause) const { return shares[static_cast<std::size_t>(cause)]; }
  Seconds& of(Cause cause) { return shares[static_cast<std::size_t>(cause)]; }
};

/// Times of the parts of which a rank's passes consist. They depend on the tensor axis, the
/// micro-batch, recomputation and whether the backward pass is split, but not on the stages.
struct PartTimes {
  PartTime layer;
  PartTime embedding;
  PartTime head;
};
PartTimes part_times(const deck::Config& config, const architecture::Architecture& architecture,
                     bool split_backward, const Machine& machine);

/// Times of all instructions of a step with the full global batch.
struct StepCosts {
  std::vector<PartTime> stages;      ///< with the gathering of what a stage receives
  std::vector<Seconds> activations;  ///< message to the next stage, by sending stage
  std::vector<Seconds> gradients;    ///< message to the previous stage, by sending stage
  std::vector<Seconds> reductions;   ///< by stage: sum of its gradients over the data axis
  std::vector<Seconds> updates;      ///< by pipeline rank
  Seconds tied = 0;                  ///< sum of the table's gradients of the first and last stage
  Seconds norm = 0;
  double waiting = 0;  ///< share of a message between stages that its sender waits for
  /// How much longer passes take while the ranks of all stages share processors, instead of those
  /// of one stage.
  double crowding = 1;
};
StepCosts step_costs(const deck::Config& config, const architecture::Architecture& architecture,
                     const PartTimes& parts, const Machine& machine);

/// Estimates the step by a formula: the longest stage for all micro-batches, the bubble of the
/// schedule (Narayanan et al. 2021, section 2.2; Qi et al. 2023, section 2.3), and what follows the
/// last pass. `hardware_flops` and `idle_share` are not set.
Seconds estimated_seconds(const deck::Config& config, const StepCosts& costs);

/// Plays the program with these costs.
StepTime played_time(const deck::Config& config, const architecture::Architecture& architecture,
                     const StepCosts& costs, const schedule::Program& program);

/// The whole prediction of a resolved deck. The machine must have the speeds that it needs
/// (Machine::time_mistake).
StepTime predict_step(const deck::Config& config, const architecture::Architecture& architecture,
                      const schedule::Program& program, const Machine& machine);

}  // namespace trireme::plan
