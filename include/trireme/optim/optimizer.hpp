#pragma once

#include <trireme/architecture/matrix_axes.hpp>
#include <trireme/architecture/state.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/kernels/factored.hpp>
#include <trireme/kernels/update_rules.hpp>
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
    std::size_t local = 0;   ///< index in Parameters::entries()
    bool counted = true;     ///< see architecture::StateBlock
    std::int64_t first = 0;  ///< first element in each state array
    /// State arrays of the shape of the weights, named "optimizer.<state array>.<weight>".
    std::vector<NamedTensor<Master>> arrays;
    std::vector<NamedTensor<Bf16>> narrow_arrays;  ///< in place of `arrays`, with bf16 moments
    /// Weights that the update changes: master weights if there are any, otherwise the weights.
    NamedTensor<Master> updated;
  };
  /// Arguments with defaults.
  struct Options {
    kernels::LossScaling loss_scaling;
    ArenaMemory state_memory = ArenaMemory::device;
    /// For rules with matrices: the tensor ranks, which hold parts of each matrix.
    grid::Communicator* tensor = nullptr;
    /// For rules with matrices: most elements of the state of other arrays on any replica.
    std::int64_t other_capacity = 0;
    grid::Communicator* experts = nullptr;  ///< the replicas that divide the experts, or null
    std::uint64_t seed = 0;                 ///< of stochastic rounding
  };
  static constexpr bool has_masters = !std::is_same_v<typename P::Compute, Master>;

  /// `model_group`: the ranks that together hold one copy of the model, or if replicas divide the
  /// experts, of the other arrays. `owners`: replicas of this rank's arrays that together hold the
  /// state. `placement`: the parts of arrays whose state this rank holds, in state arrays of
  /// `capacity` elements, and which this rank updates. `architecture`, `parameters` and the groups
  /// must outlive this object.
  Optimizer(const deck::OptimizerConfig& config, const architecture::Architecture& architecture,
            model::Parameters<P>& parameters, grid::Communicator& model_group,
            const BucketGroups& owners, architecture::StatePlacement placement,
            std::int64_t capacity, const Options& options);

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
  /// only counted as skipped. The gradients are invalid afterwards. Asynchronous. Collective if the
  /// rule has norms (like find_norm) or matrices (among the tensor ranks and `owners`).
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

  /// State of all rows or all columns of an array's matrices.
  struct FactorState : NamedTensor<Master> {
    bool copy = false;  ///< see architecture::RankArray
  };
  std::vector<FactorState> factor_state() const;

  std::int64_t state_bytes() const { return state_.capacity(); }
  /// Size in elements of the master weights and of each state array that all arrays have.
  std::int64_t state_elements() const { return capacity_; }
  ArenaMemory state_memory() const { return options_.state_memory; }
  /// Memory of the state and of the master weights.
  View1<Master> all_state() const {
    return View1<Master>(reinterpret_cast<Master*>(state_.data()),
                         static_cast<std::size_t>(state_.capacity()) / sizeof(Master));
  }
  /// Weights of this rank's blocks = master weights, rounded. No effect without master weights.
  void round_weights(const Exec& exec) const;
  /// Bytes of the sums of squares of rows and columns.
  std::int64_t means_bytes() const { return sums_memory_.capacity(); }
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
  template <class T>
  NamedTensor<T> tensor(const std::string& name, View1<T> data,
                        const architecture::StateBlock& block) const;
  View1<Master> updated(const architecture::StateBlock& block) const;  ///< see State::updated
  /// Memory of the updated weights of all blocks.
  View1<Master> all_updated() const;
  void run(const kernels::Handle& handle, const rules::Pass& pass,
           const kernels::UpdateStep& step) const;
  void find_block_sums(const Exec& exec) const;
  /// sums = Σ over the blocks of each array, of the ordinary arrays and of experts that replicas
  /// divide. `partial`: member of NormBlocks with the blocks' sums of squares.
  void sum_blocks(const Exec& exec, View1<double> sums, std::int64_t norm,
                  View1<double> NormBlocks::*partial) const;
  void update(const kernels::Handle& handle, std::int64_t step, double learning_rate,
              View1<const double> gradient_scale) const;
  void find_trust_sums(const Exec& exec, std::int64_t norms) const;
  /// Arrays that are updated in the same way.
  enum class Group : std::uint8_t { others, matrices, balance, load };
  Group group_of(const Entry& entry) const;
  /// Ranges that this rank updates: of other arrays, of matrices (rules::Arrays), of the balance
  /// of experts, or of their loads.
  std::vector<kernels::UpdateRange> update_ranges(Group group) const;
  std::vector<double> matrix_factors() const;
  kernels::UpdateArenas<Master> arenas() const;
  void lay_out_sums();
  kernels::FactorViews<Master> factor_views() const;
  /// The parts of each array with rows and columns that this rank adds to sums.
  struct FactorLists {
    std::vector<kernels::FactoredMatrices> arrays;
    std::vector<kernels::SummedRange> ranges;
  };
  FactorLists lay_out_factors();

  deck::OptimizerConfig config_;
  Options options_;
  const architecture::Architecture& architecture_;
  model::Parameters<P>* parameters_;
  grid::Communicator& model_group_;
  BucketGroups owners_;
  architecture::StatePlacement placement_;
  std::int64_t capacity_;
  Arena state_;
  Arena scalars_;
  std::vector<rules::StateArray> states_;           ///< of the shape of the weights
  std::vector<kernels::StateView<Master>> arrays_;  ///< the state arrays
  View1<Master> masters_;                           ///< master weights, or empty
  architecture::Factors factors_of_arrays_;
  View1<Master> rows_, columns_;  ///< state of rows and of columns
  Arena sums_memory_;             ///< of squares of rows and columns
  View1<double> factor_sums_, factor_means_;
  kernels::FactoredTable factored_;
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
  View1<double> factors_;        // [arrays] factors of updates; empty if the rule has none
  View1<double> rates_;          // [arrays] factors of the learning rate; empty: 1
  View1<double> elements_;       // [arrays] numbers of elements; empty if the rule has no norms
  kernels::UpdateRanges parts_;  ///< blocks of the state, updated by one launch
  kernels::UpdateRanges matrix_parts_;   ///< blocks of matrices, which are not in parts_
  kernels::UpdateRanges balance_parts_;  ///< ArraySpec::counts_tokens, which are not in parts_
  kernels::UpdateRanges load_parts_;     ///< ArraySpec::is_load, likewise
  std::optional<Muon<P>> muon_;
};

}  // namespace trireme::optim
