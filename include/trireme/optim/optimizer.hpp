#pragma once

#include <trireme/architecture/state.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/kernels/update.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/named_tensor.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::optim {

/// What a run's updates have come to, as a checkpoint keeps it.
struct Progress {
  std::int64_t skipped = 0;      ///< steps without an update since the run's first
  std::int64_t in_row = 0;       ///< of them, the last ones without an update in between
  double loss_scale = 1;         ///< of the next step
  std::int64_t scale_steps = 0;  ///< updates since it was changed or a step was skipped
};

/// The deck's update rule (AdamW, SGD or LAMB: docs/optimizers.md) over a rank's parameter
/// registry, with clipping by the global norm. Its state lies in arenas at the registry's offsets;
/// where weights are stored in two bytes, the state holds their master weights too.
template <class P>
class Optimizer {
 public:
  using Master = typename P::Master;

  /// The state of a block of a local array.
  struct State {
    std::size_t local = 0;                    ///< number in the registry
    bool counted = true;                      ///< as architecture::StateBlock has it
    std::vector<NamedTensor<Master>> arrays;  ///< as architecture::state_arrays names them
    NamedTensor<Master> master;  ///< of weights of two bytes, and by their name; else without data
  };
  static constexpr bool has_masters = !std::is_same_v<typename P::Compute, Master>;

  /// `model_group`: the ranks that hold one copy of the model among them; `data_group`: its
  /// replicas, each of which holds the state that `placement` says, in arenas of `capacity`
  /// elements, in `state_memory`: every update reads and writes it once, over the link if that is
  /// the host's. Where that is not all of it, a replica knows the gradients of its own parts alone,
  /// and updates these. `architecture`, `parameters` and the groups must outlive this.
  Optimizer(const deck::OptimizerConfig& config, const architecture::Architecture& architecture,
            model::Parameters<P>& parameters, grid::Communicator& model_group,
            grid::Communicator& data_group, architecture::StatePlacement placement,
            std::int64_t capacity, const kernels::LossScaling& loss_scaling = {},
            ArenaMemory state_memory = ArenaMemory::device);

  void zero_gradients(const Exec& exec) const;
  /// State of a run's first step but for the master weights. Waits.
  void zero_state(const Exec& exec) const;
  /// Goes on from there. Waits.
  void set_progress(const Exec& exec, const Progress& progress) const;
  /// Master weights equal to the weights.
  void copy_masters_from_weights(const Exec& exec) const;

  /// Makes the gradient's norm NaN if the loss of the step is not finite, which is known on the
  /// last stage: called there before the gradients that it marks are summed over the data axis.
  void mark_loss(const Exec& exec, View1<const double> loss) const;

  /// Adds the logits' gradient of tied embeddings to the look-up's where this rank has both, after
  /// both were summed over the data axis.
  void combine_tied_gradients(const Exec& exec) const;

  /// Norm of all gradients of the model: squares summed over fixed blocks of 4096 elements of each
  /// array, blocks added up array by array (and by tensor rank, of arrays that are cut), and these
  /// sums in registry order wherever they are held. What several tensor ranks hold counts once.
  /// Collective among `model_group` and `data_group`.
  void find_norm(const Exec& exec) const;

  /// The update of step `step` ≥ 1 with gradients scaled by min(1, clip_norm / norm), with the norm
  /// last found; nothing but a count if that is not finite. Of the gradients nothing is worth
  /// anything then. Asynchronous; with LAMB collective as find_norm.
  void step(const Exec& exec, std::int64_t step, double learning_rate) const;

  /// By which the loss of the next step is multiplied, and its gradients are divided. [1], on the
  /// device; the same on all ranks.
  View1<const double> loss_scale() const { return loss_scale_; }

  /// The norm last found, before clipping: behind find_norm with the loss scale as a factor, behind
  /// step without. [1], on the device; the same on all ranks.
  View1<double> gradient_norm() const { return norm_; }

  /// kernels::UpdateStatus [status_size], on the device; the same on all ranks.
  View1<double> status() const { return status_; }
  /// The name of the array of status_skipped_sum.
  const std::string& array_of_sum(std::int64_t sum) const;

  /// Of the blocks held here, in order of the registry, "optimizer.<state array>.<array>".
  std::vector<State> state() const;

  std::int64_t state_bytes() const { return state_.capacity(); }

 private:
  using Entry = typename model::Parameters<P>::Entry;

  NamedTensor<Master> tensor(const std::string& name, View1<Master> all,
                             const architecture::StateBlock& block) const;
  /// What the update rules change: master weights where there are any, else weights.
  View1<Master> updated(const architecture::StateBlock& block) const;
  /// Of all blocks: the arena that holds them.
  View1<Master> all_updated() const;
  void round_weights(const Exec& exec) const;
  kernels::AdamW rule(double learning_rate) const;
  void adamw(const Exec& exec, double learning_rate) const;
  void sgd(const Exec& exec, double learning_rate) const;
  void lamb(const Exec& exec, double learning_rate) const;
  void find_trust_ratios(const Exec& exec) const;
  std::vector<kernels::UpdatePart> update_parts() const;
  void lay_out_sums();

  deck::OptimizerConfig config_;
  kernels::LossScaling loss_scaling_;
  const architecture::Architecture& architecture_;
  model::Parameters<P>& parameters_;
  grid::Communicator& model_group_;
  grid::Communicator& data_group_;
  architecture::StatePlacement placement_;
  Arena state_;
  Arena scalars_;
  std::vector<std::string> names_;     ///< of the state's arrays
  std::vector<View1<Master>> arrays_;  ///< of the state
  View1<Master> masters_;              ///< or empty
  View1<double> partial_;  // [blocks of the arrays that this rank counts] sums of squares, of those
                           // that another replica owns 0
  View1<std::int64_t> block_begins_, block_ends_;  // [those blocks] in the gradient arena
  View1<double> sums_;                             // [arrays · tensor ranks]
  View1<std::int64_t> ends_;                       // [arrays · tensor ranks] of each sum's blocks
  View1<double> status_;                           // [status_size]
  View1<double> norm_;                             // [1], of status_
  View1<double> loss_scale_;                       // [1], of status_
  View1<double> control_;                          // [control_size]
  View1<double> lamb_partial_;  // [2 blocks] of weights, then of directions, as partial_
  View1<double> lamb_sums_;     // [2 · arrays · tensor ranks]
  View1<double> ratios_;        // [arrays]
  kernels::UpdateParts parts_;  ///< the blocks of the state, for all of which one launch does
};

}  // namespace trireme::optim
