#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/layer_time.hpp>
#include <trireme/plan/machine.hpp>

#include <vector>

namespace trireme::plan {

/// Times of the parts of which a rank's passes consist. They depend on the tensor axis, the
/// micro-batch, recomputation and whether the backward pass is split, but not on the stages.
struct PartTimes {
  PartTime layer;
  PartTime embedding;
  PartTime head;
  PartTime shared_logits;  ///< if pipeline ranks share the vocabulary, else nothing
  /// Whether the half of the backward pass with the weights' gradients reads weights.
  bool weight_half_reads = false;
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
  PassTime logits, logits_gradient;  ///< of a shared vocabulary, on every rank
  Seconds shared = 0;                ///< each of its messages among all pipeline ranks
  /// By pipeline rank: waiting for the new weights that other replicas have updated.
  std::vector<Seconds> gathers;
  Seconds tied = 0;  ///< sum of the table's gradients of the first and last stage
  Seconds norm = 0;
  double waiting = 0;  ///< share of a message between stages that its sender waits for
  /// How much longer passes take while the ranks of all stages share processors, instead of those
  /// of one stage.
  double crowding = 1;
};
StepCosts step_costs(const deck::Config& config, const architecture::Architecture& architecture,
                     const PartTimes& parts, const Machine& machine);

/// The stages of a pipeline. They depend on the pipeline, its chunks and the tensor axis.
struct StageSizes {
  std::vector<layout::Slice> layers;
  std::vector<double> parameters;  ///< trained ones of a tensor rank
  std::vector<double> frozen;      ///< the others; empty if all are trained
  double embedding = 0;            ///< of the first stage, trained or not, besides its layers
  double head = 0;                 ///< and of the last one
  double tables = 0;               ///< of each stage, if all of them share the vocabulary
};
StageSizes stage_sizes(const deck::Config& config, const architecture::Architecture& architecture);
StepCosts step_costs(const deck::Config& config, const architecture::Architecture& architecture,
                     const PartTimes& parts, const StageSizes& stages, const Machine& machine);

}  // namespace trireme::plan
