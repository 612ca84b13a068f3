#pragma once

#include <trireme/architecture/state.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/kernels/update.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/optim/gradient_reducer.hpp>
#include <trireme/optim/muon.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/named_tensor.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::optim {

/// Progress of a run's updates, as a checkpoint stores it.
struct Progress {
  std::int64_t skipped = 0;      ///< skipped steps since the run began
  std::int64_t in_row = 0;       ///< consecutive skipped steps up to now
  double loss_scale = 1;         ///< scale of the next step's loss
  std::int64_t scale_steps = 0;  ///< updates since the loss scale changed or a step was skipped
  std::int64_t step = 0;         ///< last step taken or skipped
  /// Loss scale before the update of `step`; see delayed_loss_scale().
  double scale_before = 1;
};

/// The deck's update rule (docs/optimizers.md) for the parameters of a rank, with clipping by the
/// global norm. With weights in two bytes, the state includes master weights.
template <class P>
class Optimizer {
 public:
  using Master = typename P::Master;

  /// Optimizer state of a block of a local array (architecture::StateBlock).
  struct State {
    std::size_t local = 0;                    ///< index in Parameters::entries()
    bool counted = true;                      ///< see architecture::StateBlock
    std::int64_t first = 0;                   ///< first element in each state array
    std::vector<NamedTensor<Master>> arrays;  ///< named "optimizer.<state array>.<weight>"
    /// Weights that the update changes: master weights if there are any, otherwise the weights.
    NamedTensor<Master> updated;
  };
  /// Arguments for Muon.
  struct MuonParts {
    grid::Communicator& tensor_group;  ///< the tensor ranks, which hold parts of each matrix
    std::int64_t second_capacity = 0;  ///< most elements of second moments on any replica
  };
  static constexpr bool has_masters = !std::is_same_v<typename P::Compute, Master>;

  /// `model_group`: the ranks that together hold one copy of the model, or if replicas divide the
  /// experts, of the other arrays. `owners`: replicas of this rank's arrays that together hold the
  /// state. `experts`: the replicas that divide the experts, or null. `placement`: the parts of
  /// arrays whose state this rank holds, in state arrays of `capacity` elements, and which this
  /// rank updates. `architecture`, `parameters` and the groups must outlive this object.
  Optimizer(const deck::OptimizerConfig& config, const architecture::Architecture& architecture,
            model::Parameters<P>& parameters, grid::Communicator& model_group,
            const BucketGroups& owners, architecture::StatePlacement placement,
            std::int64_t capacity, const kernels::LossScaling& loss_scaling = {},
            ArenaMemory state_memory = ArenaMemory::device,
            const std::optional<MuonParts>& muon = {}, grid::Communicator* experts = nullptr);

  /// Updates `parameters` from now on, which must have the same arrays as the previous parameters.
  void use(model::Parameters<P>& parameters) { parameters_ = &parameters; }

  void zero_gradients(const Exec& exec) const;
  /// Zeroes the state except master weights, and sets the progress to Progress(). Waits.
  void zero_state(const Exec& exec) const;
  /// Resumes from `progress`. Waits.
  void set_progress(const Exec& exec, const Progress& progress) const;
  /// Copies the weights to the master weights. No effect without master weights.
  void copy_masters_from_weights(const Exec& exec) const;

  /// If the loss of the step is not finite, sets a gradient of the last stage to NaN, so that the
  /// norm becomes NaN. Call on the last stage before its gradients are summed over replicas. No
  /// effect if this rank has no trained array in the last stage.
  void mark_loss(const Exec& exec, View1<const double> loss) const;

  /// Adds the gradient of the logits' table to the gradient of the token table, if embeddings are
  /// tied and this rank has both gradients. Call after both gradients were summed over replicas.
  void combine_tied_gradients(const Exec& exec) const;

  /// Finds the norm of all gradients of the model, with the loss scale as a factor. Squares are
  /// summed over fixed blocks of 4096 elements, and then in registry order. An array that several
  /// tensor ranks hold counts once. Collective among `model_group`, `owners` and `experts`.
  void find_norm(const Exec& exec) const;
  /// find_norm in two parts, between which gradients may change.
  void begin_norm(const Exec& exec);
  void end_norm(const Exec& exec);

  /// Update of step `step` ≥ 1, with gradients and norm divided by the loss scale, and gradients
  /// multiplied by min(1, clip_norm / (norm + 1e-6)) if clip_norm > 0. Call after find_norm. If the
  /// norm is not finite, or if maximum_skips consecutive steps were skipped before, the step is
  /// only counted as skipped. The gradients are invalid afterwards. Asynchronous. Collective with
  /// LAMB and LARS (like find_norm) and with Muon (among the tensor ranks and `owners`).
  void step(const kernels::Handle& handle, std::int64_t step, double learning_rate) const;
  /// Like step(), for gradients with the factor delayed_loss_scale(step).
  void delayed_step(const kernels::Handle& handle, std::int64_t step, double learning_rate) const;

  /// Factor of the next step's loss. [1], on the device; equal on all ranks.
  View1<const double> loss_scale() const { return loss_scale_; }
  /// Loss scale of a step that begins before the update of step − 1: the scale after step − 2.
  View1<const double> delayed_loss_scale(std::int64_t step) const {
    return delayed_scales_.at(static_cast<std::size_t>(step % 2));
  }

  /// The norm before clipping, [1], on the device; equal on all ranks. After find_norm with the
  /// loss scale as a factor, after step() without this factor.
  View1<double> gradient_norm() const { return norm_; }

  /// Sum of squares of each array's gradient on each tensor rank, after find_norm, with the squared
  /// loss scale as a factor. [arrays · tensor ranks], on the device; equal on all ranks.
  View1<const double> squares() const { return sums_; }

  /// kernels::UpdateStatus of the last update, [status_size], on the device; equal on all ranks.
  View1<double> status() const { return status_; }
  /// Name of the array of element `sum` of squares(), such as the value of status_skipped_sum.
  const std::string& array_of_sum(std::int64_t sum) const;

  /// State of this rank's blocks, in registry order.
  std::vector<State> state() const;

  std::int64_t state_bytes() const { return state_.capacity(); }
  /// Size of each state array and of the master weights in elements, except Muon's second moments.
  std::int64_t state_elements() const { return capacity_; }
  ArenaMemory state_memory() const { return state_memory_; }
  /// Memory of the state and of the master weights.
  View1<Master> all_state() const {
    return View1<Master>(reinterpret_cast<Master*>(state_.data()),
                         static_cast<std::size_t>(state_.capacity()) / sizeof(Master));
  }
  /// Weights of this rank's blocks = master weights, rounded. No effect without master weights.
  void round_weights(const Exec& exec) const;
  /// Bytes in which Muon orthogonalises matrices; 0 with other rules.
  std::int64_t muon_bytes() const { return muon_ ? muon_->bytes() : 0; }

 private:
  using Entry = typename model::Parameters<P>::Entry;

  /// Blocks of the arrays that this rank counts.
  struct NormBlocks {
    /// [blocks] sums of squares; 0 for blocks that another replica owns. trust_partial: [norms ·
    /// blocks] likewise, of weights, and with LAMB of directions.
    View1<double> partial, trust_partial;
    View1<std::int64_t> begins, ends;                // [blocks] bounds in the gradients' memory
    View1<std::int64_t> weight_begins, weight_ends;  // [blocks] bounds in the weights' memory
    View1<std::int64_t> ends_of_sums;  // [arrays · tensor ranks] end of a sum's blocks
    std::int64_t count() const { return extent(partial, 0); }
  };

  View1<typename P::Compute> own_weights(const architecture::StateBlock& block) const;
  NamedTensor<Master> tensor(const std::string& name, View1<Master> data,
                             const architecture::StateBlock& block) const;
  View1<Master> updated(const architecture::StateBlock& block) const;  ///< see State::updated
  /// Memory of the updated weights of all blocks.
  View1<Master> all_updated() const;
  kernels::AdamW rule(double learning_rate) const;
  void adamw(const Exec& exec, double learning_rate) const;
  void sgd(const Exec& exec, double learning_rate) const;
  void lamb(const Exec& exec, double learning_rate) const;
  void lars(const Exec& exec, double learning_rate) const;
  void muon(const kernels::Handle& handle, double learning_rate) const;
  void find_block_sums(const Exec& exec) const;
  /// sums = Σ over the blocks of each array, of the ordinary arrays and of experts that replicas
  /// divide. `partial`: member of NormBlocks with the blocks' sums of squares.
  void sum_blocks(const Exec& exec, View1<double> sums, std::int64_t norm,
                  View1<double> NormBlocks::*partial) const;
  void update(const kernels::Handle& handle, std::int64_t step, double learning_rate,
              View1<const double> gradient_scale) const;
  void find_trust_sums(const Exec& exec) const;
  /// Rule that updates an array.
  enum class Rule : std::uint8_t { config, matrices, balance, load };
  Rule rule_of(const Entry& entry) const;
  /// Ranges that this rank updates by a rule: the deck's, Muon's for hidden matrices, or the
  /// balance of experts.
  std::vector<kernels::UpdateRange> update_ranges(Rule rule) const;
  std::vector<double> matrix_factors() const;
  void lay_out_sums();

  deck::OptimizerConfig config_;
  kernels::LossScaling loss_scaling_;
  const architecture::Architecture& architecture_;
  model::Parameters<P>* parameters_;
  grid::Communicator& model_group_;
  BucketGroups owners_;
  grid::Communicator* experts_;
  architecture::StatePlacement placement_;
  std::int64_t capacity_;
  ArenaMemory state_memory_;
  Arena state_;
  Arena scalars_;
  std::vector<std::string> names_;     ///< names of the state arrays
  std::vector<View1<Master>> arrays_;  ///< state arrays
  View1<Master> masters_;              ///< master weights, or empty
  NormBlocks ordinary_;
  NormBlocks of_experts_;      ///< of experts that replicas divide; empty without `experts`
  View1<double> sums_;         // [arrays · tensor ranks]
  View1<double> expert_sums_;  // [arrays · tensor ranks], or empty
  View1<double> status_;       // [status_size]
  View1<double> norm_;         // [1], in status_
  View1<double> loss_scale_;   // [1], in status_
  std::array<View1<double>, 2> delayed_scales_;  // [1], for even and odd steps
  grid::Request norm_sum_;                       // in flight between begin_norm and end_norm
  View1<double> control_;                        // [control_size]
  View1<double> trust_sums_;                     // [norms · arrays · tensor ranks] like sums_
  View1<double> ratios_;                         // [arrays]
  kernels::UpdateRanges parts_;                  ///< blocks of the state, updated by one launch
  kernels::UpdateRanges matrix_parts_;   ///< with Muon: hidden matrices, which are not in parts_
  kernels::UpdateRanges balance_parts_;  ///< ArraySpec::counts_tokens, which are not in parts_
  kernels::UpdateRanges load_parts_;     ///< ArraySpec::is_load, likewise
  View1<double> factors_;  // [arrays] factors of the learning rate; empty without Muon
  std::optional<Muon<P>> muon_;
};

}  // namespace trireme::optim
