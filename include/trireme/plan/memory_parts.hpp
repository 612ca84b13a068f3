#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/layer_program.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/schedule/needs.hpp>

#include <cstdint>
#include <vector>

/// The memory of a rank from a few sizes. training_memory() takes the sizes from the rank's arrays,
/// the search of layouts from formulas.
namespace trireme::plan {

/// Bytes of a layer on a tensor rank.
struct LayerBytes {
  Bytes kept = 0;    ///< in a slot
  Bytes scales = 0;  ///< norms and scales of products with magnitudes
};

/// Bytes of the activations of one micro-batch on a tensor rank, for any stage.
struct ActivationParts {
  std::vector<LayerBytes> layers;  ///< by kind of layer
  Bytes input = 0;                 ///< input of a stage without layers and head
  Bytes embedding = 0;             ///< kept in a slot of the first stage, additionally
  Bytes head = 0;                  ///< kept in a slot of the last stage, additionally
  Bytes scratch = 0;               ///< scratch of every rank
  Bytes head_scratch = 0;          ///< additional scratch of the rank with the head
  Bytes logits = 0;                ///< logits of the rank with the head, if software stores them
  Bytes message = 0;               ///< message to another stage
  Bytes tensor_sum = 0;            ///< buffer of a device's sums over the tensor axis
  // With a shared vocabulary, on every rank
  Bytes logits_slot = 0;      ///< kept from the logits to the gradient of their table
  Bytes logits_scratch = 0;   ///< in addition to `scratch`
  Bytes logits_messages = 0;  ///< buffers of messages among all pipeline ranks
  Bytes positions = 0;        ///< positions in packed documents, kept in a slot of every stage
};
ActivationParts activation_parts(const deck::Config& config,
                                 const architecture::Architecture& architecture,
                                 const architecture::Shard& shard, bool split_backward,
                                 const Machine& machine);

/// Elements of a rank's arenas.
struct ArenaParts {
  std::int64_t elements = 0;           ///< elements of the weights
  std::int64_t gradient_elements = 0;  ///< including the second gradient of a tied table
  std::int64_t state_elements = 0;     ///< elements of each array of the optimizer's state
  std::int64_t second_elements = 0;    ///< elements of each such array after the first
  Bytes muon = 0;                      ///< where Muon orthogonalises matrices
  Bytes reductions = 0;                ///< buffers of a device's sums over axes other than tensor
  Bytes tensor_sum = 0;                ///< buffers for shared layers over the tensor axis
  Bytes local_state = 0;               ///< local training, in the memory of the state
  Bytes local = 0;                     ///< local training, in the kernels' memory
};

/// Bytes of each kind that a training rank allocates.
struct TrainingBytes {
  Bytes weights = 0;
  Bytes gradients = 0;
  Bytes second_weights = 0;  ///< second version, for overlapping steps
  Bytes second_gradients = 0;
  Bytes optimizer = 0;
  Bytes saved = 0;
  Bytes logits = 0;
  Bytes transfer = 0;
  Bytes scratch = 0;
  Bytes workspace = 0;
  Bytes widened = 0;
  Bytes fp8 = 0;  ///< maxima and scales
  Bytes reductions = 0;
  Bytes audits = 0;
  Bytes reserve = 0;
  Bytes muon = 0;           ///< where Muon orthogonalises matrices
  Bytes local = 0;          ///< local training
  Bytes local_on_host = 0;  ///< part of local training in host memory
  Bytes saved_on_host = 0;
  bool optimizer_on_host = false;

  Bytes where_kernels_run() const {
    return weights + gradients + second_weights + second_gradients +
           (optimizer_on_host ? 0 : optimizer) + saved + logits + transfer + scratch + workspace +
           widened + fp8 + reductions + audits + reserve + muon + local;
  }
  Bytes all() const {
    return where_kernels_run() + saved_on_host + local_on_host +
           (optimizer_on_host ? optimizer : 0);
  }
};

/// Values that all ranks and layouts of a deck share.
class TrainingSizes {
 public:
  /// `architecture` must outlive this object.
  TrainingSizes(const deck::Config& config, const architecture::Architecture& architecture,
                const Machine& machine);

  TrainingBytes bytes(const ActivationParts& activations, const ArenaParts& arenas,
                      const architecture::Shard& shard, const schedule::Needs& needs) const;
  /// Saved activations and scratch in the kernels' memory.
  Bytes activations(const ActivationParts& activations, const architecture::Shard& shard,
                    const schedule::Needs& needs) const;

  /// Bytes of the optimizer's state.
  Bytes optimizer(const ArenaParts& arenas) const;
  Bytes element() const { return element_; }
  Bytes accumulate() const { return accumulate_; }
  bool narrow() const { return element_ < accumulate_; }
  /// Arrays of the optimizer's state, master weights included.
  std::int64_t states() const { return states_; }

 private:
  void save(TrainingBytes& bytes, const ActivationParts& activations,
            const architecture::Shard& shard, const schedule::Needs& needs) const;
  /// Sum of `member` over the layers of a stage.
  Bytes of_layers(const ActivationParts& activations, const architecture::Shard& shard, Stage stage,
                  Bytes LayerBytes::*member) const;

  const architecture::Architecture* architecture_;
  Bytes element_ = 0;
  Bytes accumulate_ = 0;
  Bytes gradient_ = 0;
  std::int64_t states_ = 0;
  std::int64_t seconds_ = 0;  ///< arrays with ArenaParts::second_elements
  Bytes workspace_ = 0;
  Bytes fp8_ = 0;
  Bytes audits_ = 0;
  Bytes reserve_ = 0;
  bool optimizer_away_ = false;
  bool activations_away_ = false;
  bool two_versions_ = false;
};

}  // namespace trireme::plan
