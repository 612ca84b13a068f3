#pragma once

#include <trireme/architecture/state.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/kernels/update.hpp>
#include <trireme/model/parameters.hpp>
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
  std::int64_t scale_steps = 0;  ///< updates since the scale changed or a step was skipped
  std::int64_t step = 0;         ///< last step taken or skipped
  double scale_before = 1;       ///< loss scale before that step's update; see delayed_loss_scale()
};

/// The deck's update rule (docs/optimizers.md) for a rank's parameter registry, with clipping by
/// the global norm. Its state is stored in arenas at the registry's offsets; it includes master
/// weights if weights are stored in two bytes.
template <class P>
class Optimizer {
 public:
  using Master = typename P::Master;

  /// State of a block of a local array.
  struct State {
    std::size_t local = 0;                    ///< index in the registry
    bool counted = true;                      ///< see architecture::StateBlock
    std::int64_t first = 0;                   ///< first element in the arenas of the state
    std::vector<NamedTensor<Master>> arrays;  ///< named by architecture::state_arrays
    /// Named weights that the update changes: master weights if there are any, else weights.
    NamedTensor<Master> updated;
  };
  /// Groups and sizes for Muon: the tensor ranks, which hold parts of each matrix, and the elements
  /// of the arena of second moments on the replica with the most.
  struct MuonParts {
    grid::Communicator& tensor_group;
    std::int64_t second_capacity = 0;
  };
  static constexpr bool has_masters = !std::is_same_v<typename P::Compute, Master>;

  /// `model_group`: the ranks that together hold one copy of the model. `data_group`: its replicas,
  /// each of which holds the state that `placement` assigns to it, in arenas of `capacity` elements
  /// in `state_memory`. Every update reads and writes the state once, over the link if it is in
  /// host memory. If a replica does not hold the whole state, it knows only the gradients of its
  /// own parts, and updates only these. `architecture`, `parameters` and the groups must outlive
  /// this object.
  Optimizer(const deck::OptimizerConfig& config, const architecture::Architecture& architecture,
            model::Parameters<P>& parameters, grid::Communicator& model_group,
            grid::Communicator& data_group, architecture::StatePlacement placement,
            std::int64_t capacity, const kernels::LossScaling& loss_scaling = {},
            ArenaMemory state_memory = ArenaMemory::device,
            const std::optional<MuonParts>& muon = {});

  /// From now on, updates other parameters with the same arrays.
  void use(model::Parameters<P>& parameters) { parameters_ = &parameters; }

  void zero_gradients(const Exec& exec) const;
  /// Sets the initial state of a run, except for the master weights. Waits.
  void zero_state(const Exec& exec) const;
  /// Resumes from `progress`. Waits.
  void set_progress(const Exec& exec, const Progress& progress) const;
  /// Sets the master weights to the weights.
  void copy_masters_from_weights(const Exec& exec) const;

  /// Makes the gradient's norm NaN if the loss of the step is not finite. Call it on the last
  /// stage, which has the loss, before the marked gradients are summed over the data axis. Marks
  /// nothing if all arrays of this rank's last stage are frozen.
  void mark_loss(const Exec& exec, View1<const double> loss) const;

  /// Adds the logits' gradient of tied embeddings to the look-up's gradient if this rank has both.
  /// Call it after both were summed over the data axis.
  void combine_tied_gradients(const Exec& exec) const;

  /// Norm of all gradients of the model. Squares are summed over fixed blocks of 4096 elements,
  /// then over the blocks of each array (and of each tensor rank, if the array is split), then over
  /// the arrays in registry order, wherever they are held. Arrays held by several tensor ranks
  /// count once. Collective among `model_group` and `data_group`.
  void find_norm(const Exec& exec) const;
  /// The two parts of find_norm. Gradients may change between them.
  void begin_norm(const Exec& exec);
  void end_norm(const Exec& exec);

  /// Update of step `step` ≥ 1, with gradients scaled by min(1, clip_norm / norm), where norm is
  /// the result of the last find_norm. If that is not finite, the step is only counted as skipped.
  /// The gradients are invalid afterwards. Asynchronous; with LAMB, LARS and Muon collective like
  /// find_norm.
  void step(const kernels::Handle& handle, std::int64_t step, double learning_rate) const;
  /// step(), for gradients that contain delayed_loss_scale(step).
  void delayed_step(const kernels::Handle& handle, std::int64_t step, double learning_rate) const;

  /// Factor of the next step's loss, by which its gradients are divided. [1], on the device; equal
  /// on all ranks.
  View1<const double> loss_scale() const { return loss_scale_; }
  /// Loss scale if the previous update has not happened when a step begins: the scale after the
  /// update of step − 2. It does not change before the update of step `step`.
  View1<const double> delayed_loss_scale(std::int64_t step) const {
    return delayed_scales_.at(static_cast<std::size_t>(step % 2));
  }

  /// The last norm found, before clipping: after find_norm it contains the loss scale as a factor,
  /// after step it does not. [1], on the device; equal on all ranks.
  View1<double> gradient_norm() const { return norm_; }

  /// Sums of squares of each array's gradient, after find_norm, with the squared loss scale as a
  /// factor. [arrays · tensor ranks], on the device; equal on all ranks.
  View1<const double> squares() const { return sums_; }

  /// kernels::UpdateStatus [status_size], on the device; equal on all ranks.
  View1<double> status() const { return status_; }
  /// Name of the array of a sum (status_skipped_sum).
  const std::string& array_of_sum(std::int64_t sum) const;

  /// State of this rank's blocks, in registry order: arrays "optimizer.<state array>.<array>".
  std::vector<State> state() const;

  std::int64_t state_bytes() const { return state_.capacity(); }
  /// Elements of an arena of the state.
  std::int64_t state_elements() const { return capacity_; }
  ArenaMemory state_memory() const { return state_memory_; }
  /// Memory of the state and of the master weights.
  View1<Master> all_state() const {
    return View1<Master>(reinterpret_cast<Master*>(state_.data()),
                         static_cast<std::size_t>(state_.capacity()) / sizeof(Master));
  }
  /// Weights = master weights, rounded.
  void round_weights(const Exec& exec) const;
  /// Memory in which Muon orthogonalises matrices.
  std::int64_t muon_bytes() const { return muon_ ? muon_->bytes() : 0; }

 private:
  using Entry = typename model::Parameters<P>::Entry;

  View1<typename P::Compute> own_weights(const architecture::StateBlock& block) const;
  NamedTensor<Master> tensor(const std::string& name, View1<Master> data,
                             const architecture::StateBlock& block) const;
  /// Weights of a block that the update changes: master weights if there are any, else weights.
  View1<Master> updated(const architecture::StateBlock& block) const;
  /// The arena of all blocks' updated weights.
  View1<Master> all_updated() const;
  kernels::AdamW rule(double learning_rate) const;
  void adamw(const Exec& exec, double learning_rate) const;
  void sgd(const Exec& exec, double learning_rate) const;
  void lamb(const Exec& exec, double learning_rate) const;
  void lars(const Exec& exec, double learning_rate) const;
  void muon(const kernels::Handle& handle, double learning_rate) const;
  void find_block_sums(const Exec& exec) const;
  void update(const kernels::Handle& handle, std::int64_t step, double learning_rate,
              View1<const double> gradient_scale) const;
  void find_trust_sums(const Exec& exec) const;
  /// With Muon, parts of hidden matrices, or of all other arrays.
  std::vector<kernels::UpdatePart> update_parts(bool matrices) const;
  std::vector<double> matrix_factors() const;
  void lay_out_sums();

  deck::OptimizerConfig config_;
  kernels::LossScaling loss_scaling_;
  const architecture::Architecture& architecture_;
  model::Parameters<P>* parameters_;
  grid::Communicator& model_group_;
  grid::Communicator& data_group_;
  architecture::StatePlacement placement_;
  std::int64_t capacity_;
  ArenaMemory state_memory_;
  Arena state_;
  Arena scalars_;
  std::vector<std::string> names_;     ///< names of the state arrays
  std::vector<View1<Master>> arrays_;  ///< state arrays
  View1<Master> masters_;              ///< master weights, or empty
  View1<double> partial_;  // [blocks of the arrays that this rank counts] sums of squares;
                           // 0 for blocks that another replica owns
  View1<std::int64_t> block_begins_, block_ends_;  // [blocks] bounds in the gradient arena
  View1<double> sums_;                             // [arrays · tensor ranks]
  View1<std::int64_t> ends_;                       // [arrays · tensor ranks] ends of blocks
  View1<double> status_;                           // [status_size]
  View1<double> norm_;                             // [1], in status_
  View1<double> loss_scale_;                       // [1], in status_
  std::array<View1<double>, 2> delayed_scales_;    // [1], for odd and even steps
  grid::Request norm_sum_;                         // between begin_norm and end_norm
  View1<double> control_;                          // [control_size]
  View1<double> trust_partial_;  // [blocks] partial_ for weights, with LAMB also for directions
  View1<double> trust_sums_;     // sums_ for weights, with LAMB also for directions
  View1<double> ratios_;         // [arrays]
  View1<std::int64_t> weight_begins_, weight_ends_;  // [blocks] bounds for weights
  kernels::UpdateParts parts_;                       ///< blocks of the state, updated by one launch
  kernels::UpdateParts matrix_parts_;  ///< with Muon: hidden matrices, which are not in parts_
  View1<double> factors_;              // [arrays] with Muon
  std::optional<Muon<P>> muon_;
};

}  // namespace trireme::optim
