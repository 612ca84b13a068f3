#pragma once

#include <trireme/train/engine.hpp>
#include <trireme/train/engine_parts.hpp>
#include <trireme/train/step_actions.hpp>
#include <trireme/train/step_history.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace trireme::train {

/// Results of a rank's training steps, and sums of losses over ranks.
template <class P>
class StepResults {
 public:
  /// Arguments must outlive this object.
  StepResults(const deck::Config& config, EngineParts<P>& parts, const StepActions<P>& actions,
              const kernels::Handle& handle, grid::Grid& grid);

  /// With local training: call before the steps of this rank's workers.
  void zero_worker_losses();
  /// With local training: call after the step of each worker of this rank.
  void add_worker_losses();
  /// Adds the losses and the norm of a queued step to the history.
  void remember(std::int64_t step);
  /// Empties the history.
  void forget();

  /// Results of the last step. Waits. Not with overlapping steps. Collective.
  StepResult result();
  /// Results of one of the last two overlapping steps. Waits.
  StepResult overlapping_result(std::int64_t step);
  /// Status of the last update of each worker, indexed by kernels::UpdateStatus: [workers ·
  /// status_size]. Collective with local training.
  std::vector<double> statuses();

  /// Sum of the last stage's values over `ranks` and all workers of local training, on every rank.
  template <class N>
  N from_last_stage(N mine, grid::Communicator& ranks, const char* what);
  /// The objective's sums over all ranks, on every rank. `waits`: label.
  std::vector<double> loss_sums(View1<double> losses, const char* waits);

  /// Device memory of the history.
  Bytes bytes() const { return history_ ? history_->bytes() : 0; }

 private:
  /// Replaces sums of losses, `of_step` for each of one or several steps, by their sums over all
  /// ranks.
  void sum_over_ranks(std::vector<double>& sums, std::size_t of_step, const char* what);
  /// Takes the steps before `step` from the history. Valid on rank 0. Collective unless steps
  /// overlap.
  std::vector<StepLoss> earlier_steps(std::int64_t step);
  StepResult result_from(std::span<const double> sums, std::span<const double> status,
                         std::int64_t step) const;

  const deck::Config& config_;
  EngineParts<P>& parts_;
  const StepActions<P>& actions_;
  const kernels::Handle& handle_;
  grid::Grid& grid_;
  std::optional<StepHistory> history_;  ///< if the engine trains
  Arena worker_loss_memory_;
  View1<double> worker_losses_;  ///< losses of a step, summed over this rank's workers
};

template <class P>
template <class N>
N StepResults<P>::from_last_stage(N mine, grid::Communicator& ranks, const char* what) {
  N value = ranks.template all_reduce<N>(mine, grid::Reduction::sum, what);
  if (parts_.local)
    value = parts_.local->across().template all_reduce<N>(value, grid::Reduction::sum, what);
  parts_.pipeline.broadcast(std::as_writable_bytes(std::span<N>(&value, 1)),
                            parts_.layout.rank_of(parts_.layout.last_stage()), what);
  return value;
}

extern template class StepResults<model::Fp32>;
extern template class StepResults<model::Fp64>;
extern template class StepResults<model::MixedBf16>;
extern template class StepResults<model::MixedFp16>;

}  // namespace trireme::train
