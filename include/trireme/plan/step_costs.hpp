#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/block_time.hpp>
#include <trireme/plan/machine.hpp>

#include <vector>

namespace trireme::plan {

/// Times of the parts of a rank's passes. They do not depend on the rank's stages.
struct BlockTimes {
  std::vector<BlockTime> layers;  ///< by kind of layer
  BlockTime embedding;
  BlockTime head;
  BlockTime shared_logits;  ///< zero unless pipeline ranks share the vocabulary
  /// Whether backward_weight of any layer reads weights.
  bool weight_half_reads = false;

  /// Sum over layers. `counts`: number of layers of each kind.
  BlockTime of_layers(const std::vector<std::int64_t>& counts) const;
};
BlockTimes part_times(const deck::Config& config, const architecture::Architecture& architecture,
                      bool split_backward, const Machine& machine);

/// Times of all instructions of a step with the full global batch.
struct StepCosts {
  std::vector<BlockTime> stages;     ///< passes, with the gather of a received input or gradient
  std::vector<Seconds> activations;  ///< message to the next stage, by sending stage
  std::vector<Seconds> gradients;    ///< message to the previous stage, by sending stage
  std::vector<Seconds> reductions;   ///< sum of a stage's gradients, without its hidden share
  std::vector<Seconds> updates;      ///< optimizer update, by pipeline rank
  PassTime logits, logits_gradient;  ///< passes of a shared vocabulary, on every rank
  Seconds shared = 0;                ///< each message of a shared vocabulary
  /// Time that each pipeline rank waits for new weights from other replicas.
  std::vector<Seconds> gathers;
  Seconds tied = 0;  ///< sum of the tied table's two gradients
  Seconds norm = 0;
  double waiting = 0;  ///< share of a message between stages for which its sender waits
  /// Compute time of a pass when the ranks of all stages share the processors, divided by its
  /// compute time when only the ranks of one stage share them.
  double crowding = 1;
};
StepCosts step_costs(const deck::Config& config, const architecture::Architecture& architecture,
                     const BlockTimes& parts, const Machine& machine);

/// Sizes of a pipeline's stages. They depend on the pipeline axis, its chunks and the tensor axis.
struct StageSizes {
  std::vector<layout::Slice> layers;
  std::vector<double> parameters;  ///< trained parameters of a tensor rank
  std::vector<double> experts;     ///< those of experts that replicas divide
  std::vector<double> frozen;      ///< frozen parameters of a tensor rank; empty if all are trained
  std::vector<double> frozen_experts;  ///< those of experts that replicas divide
  double embedding = 0;                ///< parameters of the embedding on a tensor rank
  double head = 0;                     ///< parameters of the head on a tensor rank
  double tables = 0;                   ///< parameters of a rank's part of a shared vocabulary
};
StageSizes stage_sizes(const deck::Config& config, const architecture::Architecture& architecture);
StepCosts step_costs(const deck::Config& config, const architecture::Architecture& architecture,
                     const BlockTimes& parts, const StageSizes& stages, const Machine& machine);

}  // namespace trireme::plan
