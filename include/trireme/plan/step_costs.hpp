#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/layer_time.hpp>
#include <trireme/plan/machine.hpp>

#include <vector>

namespace trireme::plan {

/// Times of the parts that make up a rank's passes. They depend on the tensor axis, the
/// micro-batch, recomputation and whether the backward pass is split, but not on the stages.
struct PartTimes {
  std::vector<PartTime> layers;  ///< by kind of layer
  PartTime embedding;
  PartTime head;
  PartTime shared_logits;  ///< zero unless pipeline ranks share the vocabulary
  /// Whether the backward half that computes weight gradients reads weights, in any layer.
  bool weight_half_reads = false;

  /// Sum over layers, given their number by kind.
  PartTime of_layers(const std::vector<std::int64_t>& counts) const;
};
PartTimes part_times(const deck::Config& config, const architecture::Architecture& architecture,
                     bool split_backward, const Machine& machine);

/// Times of all instructions of a step with the full global batch.
struct StepCosts {
  std::vector<PartTime> stages;      ///< including the gather of a stage's received input
  std::vector<Seconds> activations;  ///< message to the next stage, by sending stage
  std::vector<Seconds> gradients;    ///< message to the previous stage, by sending stage
  std::vector<Seconds> reductions;   ///< sum of a stage's gradients over the data axis
  std::vector<Seconds> updates;      ///< update, by pipeline rank
  PassTime logits, logits_gradient;  ///< passes of a shared vocabulary, on every rank
  Seconds shared = 0;                ///< each message of a shared vocabulary
  /// Time that each pipeline rank waits for new weights from other replicas.
  std::vector<Seconds> gathers;
  Seconds tied = 0;  ///< sum of the tied table's two gradients
  Seconds norm = 0;
  double waiting = 0;  ///< share of a message between stages for which its sender waits
  /// Ratio of pass times when the ranks of all stages share processors to times when only one
  /// stage's ranks do.
  double crowding = 1;
};
StepCosts step_costs(const deck::Config& config, const architecture::Architecture& architecture,
                     const PartTimes& parts, const Machine& machine);

/// Sizes of a pipeline's stages. They depend on the pipeline, its chunks and the tensor axis.
struct StageSizes {
  std::vector<layout::Slice> layers;
  std::vector<double> parameters;  ///< trained parameters of a tensor rank
  std::vector<double> frozen;      ///< frozen parameters; empty if all are trained
  double embedding = 0;            ///< parameters of the first stage outside its layers
  double head = 0;                 ///< parameters of the last stage outside its layers
  double tables = 0;               ///< parameters of each stage's part of a shared vocabulary
};
StageSizes stage_sizes(const deck::Config& config, const architecture::Architecture& architecture);
StepCosts step_costs(const deck::Config& config, const architecture::Architecture& architecture,
                     const PartTimes& parts, const StageSizes& stages, const Machine& machine);

}  // namespace trireme::plan
