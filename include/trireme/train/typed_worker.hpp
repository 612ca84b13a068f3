#pragma once

#include <trireme/base/text.hpp>
#include <trireme/optim/local_training.hpp>
#include <trireme/train/audit.hpp>
#include <trireme/train/executor.hpp>
#include <trireme/train/rank_parts.hpp>
#include <trireme/train/step_actions.hpp>
#include <trireme/train/step_history.hpp>
#include <trireme/train/worker.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::train {

/// Checkpoints of overlapping steps: name before that of an array, for the weights before the last
/// update. These are rounded, if weights are.
inline const std::string second_weights = "optimizer.earlier_weight.";

/// Checkpoints of local training: the progress of all workers [workers, 4], as optim::Progress has
/// it first, and arrays of a worker by their names in a run of one; the first worker's state has
/// these names.
inline const std::string worker_progress = "optimizer.worker_progress";
inline constexpr std::int64_t progress_numbers = 4;
inline std::string name_of_worker(std::int64_t worker, const std::string& array) {
  constexpr std::string_view state = "optimizer.";
  if (!array.starts_with(state)) return text(state, "worker_", worker, ".weight.", array);
  return worker == 0 ? array : text(state, "worker_", worker, '.', array.substr(state.size()));
}

/// The worker for one choice of number types. Without programs it can only evaluate.
template <class P>
class TypedWorker final : public Worker {
 public:
  using T = typename P::Compute;

  TypedWorker(const deck::Config& config, const architecture::Architecture& architecture,
              grid::Grid& grid, const plan::Machine& machine,
              std::span<const schedule::Program> programs);

  void initialise() override;
  void train_step(std::int64_t step, const data::Samples& samples) override;
  void timed_step(std::int64_t step, const data::Samples& samples) override;
  void overlapping_step(std::int64_t step, const data::Samples& samples,
                        bool next_follows) override;
  void audit_state(std::int64_t step) override;
  schedule::Timeline timeline() override;
  StepResult result() override;
  StepResult result_of(std::int64_t step) override;
  Evaluation evaluate(const data::Windows& file, std::int64_t windows,
                      const std::vector<std::int32_t>& bytes_of_token) override;
  std::vector<Score> score(const data::Requests& requests) override;
  std::vector<checkpoint::SliceView> share() override;
  void load(const checkpoint::Reader& reader) override;
  std::vector<plan::MemoryRow> memory() const override;
  double measure_peak() override;
  std::string description() const override;

 private:
  /// Runs `step` for each worker of local training on this rank, or once without.
  template <class Step>
  void for_workers(std::int64_t number, const Step& step);
  /// Progress of all workers, as kernels::UpdateStatus: [workers · status_size]. Collective.
  std::vector<double> statuses();
  /// Arrays of the optimizer's state per weight.
  std::size_t state_arrays() const { return architecture::state_arrays(config_.optimizer).size(); }
  template <class AddState>
  void share_workers(const AddState& add_state);
  void share_progress(std::vector<checkpoint::SliceView>& slices);
  void load_model(const checkpoint::Reader& reader);
  void load_workers(const checkpoint::Reader& reader);
  bool holds_means(const checkpoint::Reader& reader, int fragment) const;
  void load_worker(const checkpoint::Reader& reader, std::int64_t worker);
  void load_progress(const checkpoint::Reader& reader, std::int64_t worker);
  void load_fp8(const checkpoint::Reader& reader);
  void load_second_weights(const checkpoint::Reader& reader);
  // With parameter servers
  void served_step(std::int64_t step, const data::Samples& samples, bool next_follows);
  void fetch_current();
  void take_status();
  void tell_servers(double& value, const char* what);
  /// Adds the loss and norm of a queued step to the history.
  void remember(std::int64_t step);
  /// The history before `step`. Collective, except with overlapping steps.
  std::vector<StepLoss> earlier_steps(std::int64_t step);
  void overlap(std::int64_t step, const data::Samples& samples, bool next_follows);
  /// The other weights become equal to those of step `step`.
  void copy_second_weights(std::int64_t step);
  /// Returns the executor of the step's program.
  Executor& begin_step(std::int64_t step, const data::Samples& samples);
  /// `run` runs a part of the step's program.
  void take_step(std::int64_t step, const std::function<void(StepPart)>& run);
  void run(const Executor& executor, StepPart part = StepPart::whole);
  void publish(const Step& step, StepPart part) const;  ///< to the watchdog
  void run_timed(const Executor& executor, StepPart part);
  void run_recorded(const Executor& executor);
  void begin_clock();
  Seconds since_zero(Clock::time_point t) const { return seconds(t - timed_from_); }
  /// The part of the timeline that the events of an overlapping step are recorded as.
  int make_room(const Executor& executor);
  StepResult result_from(std::span<const double> sums, std::span<const double> status,
                         std::int64_t step) const;
  /// Sum of the last stage's values over `ranks`, on every rank.
  template <class N>
  N from_last_stage(N mine, grid::Communicator& ranks, const char* what);
  /// Σ cross entropy of each term of the objective over all ranks. `waits`: label of the wait.
  std::vector<double> loss_sums(View1<double> losses, const char* waits);

  const deck::Config& config_;
  const architecture::Architecture& architecture_;
  grid::Grid& grid_;
  const plan::Machine& machine_;
  kernels::Handle handle_;
  RankParts<P> parts_;
  StepActions<P> actions_;
  std::optional<Audit<P>> audit_;
  std::optional<StepHistory> history_;  ///< for training
  std::optional<optim::LocalTraining<P>> local_;
  Arena worker_loss_memory_;
  View1<double> worker_losses_;      ///< of a step, summed over this rank's workers
  std::vector<double> progress_;     ///< of this rank's workers, which a checkpoint is written from
  std::vector<Executor> executors_;  ///< one per program
  bool begun_ = false;               ///< the next step, by the last one
  schedule::Timeline timeline_;
  int recorded_parts_ = 0;          ///< overlapping steps in it
  std::ptrdiff_t latest_part_ = 0;  ///< the event with which the last of them begins
  Clock::time_point timed_from_;
};

extern template class TypedWorker<model::Fp32>;
extern template class TypedWorker<model::Fp64>;
extern template class TypedWorker<model::MixedBf16>;
extern template class TypedWorker<model::MixedFp16>;

}  // namespace trireme::train
