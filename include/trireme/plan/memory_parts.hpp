#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/block_program.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/architecture/state.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/schedule/needs.hpp>

#include <cstdint>
#include <vector>

/// The memory of a rank from a few sizes, which training_memory() takes from the rank's arrays, and
/// the search of layouts from formulas.
namespace trireme::plan {

/// Bytes of a layer on a tensor rank.
struct BlockBytes {
  Bytes kept = 0;     ///< activations kept in a slot
  Bytes forward = 0;  ///< the same of a layer without a backward pass
  Bytes scales = 0;   ///< norms and scales of products with magnitudes (ScaledProduct)
};

/// Bytes of the activations of one micro-batch on a tensor rank, for any stage.
struct ActivationSizes {
  std::vector<BlockBytes> layers;  ///< by kind of layer
  /// Rows of the tokens in a slot of a stage that has layers of an encoder, or neither layers nor
  /// the head.
  Bytes input = 0;
  Bytes embedding = 0;     ///< kept in addition in a slot of the first stage
  Bytes head = 0;          ///< kept in addition in a slot of the last stage
  Bytes scratch = 0;       ///< scratch of every rank
  Bytes head_scratch = 0;  ///< additional scratch of the rank with the head
  Bytes logits = 0;        ///< logits of the rank with the head, if the software stores all logits
  Bytes message = 0;       ///< message to another stage
  Bytes handed_over = 0;   ///< message to another stage of the same rank
  Bytes tensor_sum = 0;    ///< buffer of a device's sums over the tensor axis
  // logits_*: with a shared vocabulary, on every rank.
  Bytes logits_slot = 0;      ///< kept from the logits to the gradient of their table
  Bytes logits_scratch = 0;   ///< in addition to `scratch`
  Bytes logits_messages = 0;  ///< buffers of messages among all pipeline ranks
  /// Kept in a slot of every stage: positions in packed documents, and the model's values.
  Bytes of_slot = 0;
};
ActivationSizes activation_parts(const deck::Config& config,
                                 const architecture::Architecture& architecture,
                                 const architecture::Shard& shard, bool split_backward,
                                 const Machine& machine);

/// Sizes of a rank's arenas, in elements, and of other buffers, in bytes.
struct ArenaSizes {
  std::int64_t elements = 0;           ///< elements of the weights
  std::int64_t gradient_elements = 0;  ///< including the second gradient of a tied table
  std::int64_t state_elements = 0;     ///< elements of each array of the optimizer's state
  /// `state_elements` without the arrays that the optimizer's rule updates as matrices.
  std::int64_t other_elements = 0;
  std::int64_t rows = 0;     ///< elements of the state of rows (architecture::Factors)
  std::int64_t columns = 0;  ///< elements of the state of columns
  Bytes muon = 0;            ///< buffers in which Muon orthogonalises matrices
  Bytes means = 0;           ///< sums of squares of rows and columns
  Bytes reductions = 0;      ///< buffers of a device's sums over axes other than the tensor axis
  Bytes tensor_sum = 0;      ///< buffer for sums of shared layers over the tensor axis
  Bytes local_state = 0;     ///< arrays of local training, in the memory of the state
  Bytes local = 0;           ///< arrays of local training, in the kernels' memory
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
  Bytes muon = 0;           ///< buffers in which Muon orthogonalises matrices
  Bytes means = 0;          ///< sums of squares of rows and columns
  Bytes local = 0;          ///< local training
  Bytes local_on_host = 0;  ///< arrays of local training in host memory
  Bytes saved_on_host = 0;
  bool optimizer_on_host = false;

  Bytes where_kernels_run() const {
    return weights + gradients + second_weights + second_gradients +
           (optimizer_on_host ? 0 : optimizer) + saved + logits + transfer + scratch + workspace +
           widened + fp8 + reductions + audits + reserve + muon + means + local;
  }
  Bytes all() const {
    return where_kernels_run() + saved_on_host + local_on_host +
           (optimizer_on_host ? optimizer : 0);
  }
};

/// Computes the bytes of a training rank from values that all ranks and layouts of a deck share.
class TrainingSizes {
 public:
  /// `architecture` must outlive this object.
  TrainingSizes(const deck::Config& config, const architecture::Architecture& architecture,
                const Machine& machine);

  TrainingBytes bytes(const ActivationSizes& activations, const ArenaSizes& arenas,
                      const architecture::Shard& shard, const schedule::Needs& needs) const;
  /// Bytes of saved activations and scratch in the kernels' memory.
  Bytes activations(const ActivationSizes& activations, const architecture::Shard& shard,
                    const schedule::Needs& needs) const;

  /// Bytes of the optimizer's state.
  Bytes optimizer(const ArenaSizes& arenas) const;
  Bytes element() const { return element_; }
  Bytes accumulate() const { return accumulate_; }
  bool narrow() const { return element_ < accumulate_; }
  /// Bytes per weight of the state that all arrays have, master weights included, and of the state
  /// that only arrays without matrices have.
  Bytes state_of_weight() const { return (narrow() ? accumulate_ : 0) + states_.all * moment_; }
  Bytes other_state_of_weight() const { return states_.others * moment_; }

 private:
  void save(TrainingBytes& bytes, const ActivationSizes& activations,
            const architecture::Shard& shard, const schedule::Needs& needs) const;
  /// Bytes of the activations that the layers of a stage keep in a slot.
  Bytes kept(const ActivationSizes& activations, const architecture::Shard& shard,
             Stage stage) const;
  /// Sum of `member` over the layers of stage `stage`.
  Bytes of_layers(const ActivationSizes& activations, const architecture::Shard& shard, Stage stage,
                  Bytes BlockBytes::*member) const;

  const architecture::Architecture* architecture_;
  Bytes element_ = 0;
  Bytes accumulate_ = 0;
  Bytes gradient_ = 0;
  Bytes moment_ = 0;
  architecture::StateCounts states_;
  Bytes workspace_ = 0;
  Bytes fp8_ = 0;
  Bytes audits_ = 0;
  Bytes reserve_ = 0;
  bool optimizer_away_ = false;
  bool activations_away_ = false;
  bool two_versions_ = false;
};

}  // namespace trireme::plan
