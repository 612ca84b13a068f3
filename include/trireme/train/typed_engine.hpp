#pragma once

#include <trireme/base/text.hpp>
#include <trireme/optim/local_training.hpp>
#include <trireme/train/audit.hpp>
#include <trireme/train/engine.hpp>
#include <trireme/train/engine_parts.hpp>
#include <trireme/train/executor.hpp>
#include <trireme/train/step_actions.hpp>
#include <trireme/train/step_history.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::train {

/// Prefix of the names of a checkpoint's arrays that hold the weights before the last update, if
/// steps overlap. They have the type of the weights, P::Compute.
inline const std::string second_weights = "optimizer.earlier_weight.";

/// Name of a checkpoint's array with the progress of all workers of local training: [workers, 4],
/// the first values of optim::Progress. name_of_worker gives the names of a worker's arrays; the
/// first worker's state has the usual names.
inline const std::string worker_progress = "optimizer.worker_progress";
inline constexpr std::int64_t progress_numbers = 4;
inline std::string name_of_worker(std::int64_t worker, const std::string& array) {
  constexpr std::string_view state = "optimizer.";
  if (!array.starts_with(state)) return text(state, "worker_", worker, ".weight.", array);
  return worker == 0 ? array : text(state, "worker_", worker, '.', array.substr(state.size()));
}

/// The engine for one set of number types. Without programs it can only evaluate.
template <class P>
class TypedEngine final : public Engine {
 public:
  using T = typename P::Compute;

  TypedEngine(const deck::Config& config, const architecture::Architecture& architecture,
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
  std::vector<std::vector<std::int32_t>> likeliest(const data::Requests& requests) override;
  std::vector<checkpoint::SliceView> share() override;
  void load(const checkpoint::Reader& reader) override;
  std::vector<plan::MemoryRow> memory() const override;
  double measure_peak() override;
  std::string description() const override;

 private:
  /// Calls `step` for each worker of local training on this rank, and then takes the outer steps
  /// due after step `number`; or calls `step` once without local training.
  template <class OneStep>
  void for_workers(std::int64_t number, const OneStep& step);
  /// Status of the last update of each worker, indexed by kernels::UpdateStatus: [workers ·
  /// status_size]; one worker without local training. Collective with local training.
  std::vector<double> statuses();
  /// Largest number of state arrays of the optimizer per array of weights.
  std::size_t state_arrays() const { return architecture::state_arrays(config_.optimizer).size(); }
  /// Calls `use` while the parameters hold the weights of evaluations: with local training, the
  /// shared weights.
  template <class Use>
  void with_shared_weights(const Use& use);
  /// Evaluates this rank's groups of an evaluation of `samples` samples. Calls `begin` before each
  /// program, with the number of earlier groups of this rank.
  void evaluate_groups(std::int64_t samples, const std::function<void(std::int64_t)>& begin);
  /// Sums `values` over all ranks, in place. The values of a request are on the ranks of one
  /// replica that hold its tokens; other ranks have zeros.
  void sum_of_requests(std::vector<double>& values);
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
  // Functions for parameter servers.
  void served_step(std::int64_t step, const data::Samples& samples, bool next_follows);
  void fetch_current();
  void take_status();
  void tell_servers(double& value, const char* what);
  /// Adds the losses and the norm of a queued step to the history.
  void remember(std::int64_t step);
  /// Takes the steps before `step` from the history. Valid on rank 0. Collective, except with
  /// overlapping steps.
  std::vector<StepLoss> earlier_steps(std::int64_t step);
  void overlap(std::int64_t step, const data::Samples& samples, bool next_follows);
  /// Copies the weights of step `step` to the other version, if steps overlap.
  void copy_second_weights(std::int64_t step);
  /// Begins a training step, and returns the executor of its program.
  Executor& begin_step(std::int64_t step, const data::Samples& samples);
  /// Trains a step, with an audit if one is due; `run` runs a part of its program.
  void take_step(std::int64_t step, const std::function<void(StepPhase)>& run);
  void run(const Executor& executor, StepPhase part = StepPhase::whole);
  void publish(const PlacedInstr& placed, StepPhase part) const;  ///< publishes to the watchdog
  void run_timed(const Executor& executor, StepPhase part);
  void run_recorded(const Executor& executor);
  void begin_clock();
  Seconds since_zero(Clock::time_point t) const { return seconds(t - timed_from_); }
  /// Makes room for an overlapping step in the timeline. Returns the step's index in the timeline,
  /// 0 or 1; −1: the step is not recorded.
  int make_room(const Executor& executor);
  StepResult result_from(std::span<const double> sums, std::span<const double> status,
                         std::int64_t step) const;
  /// Sum of the last stage's values over `ranks`, and over all workers of local training, on every
  /// rank.
  template <class N>
  N from_last_stage(N mine, grid::Communicator& ranks, const char* what);
  /// Σ cross entropy of each term of the objective over all ranks, on every rank. `waits`: label of
  /// the wait.
  std::vector<double> loss_sums(View1<double> losses, const char* waits);

  const deck::Config& config_;
  const architecture::Architecture& architecture_;
  grid::Grid& grid_;
  const plan::Machine& machine_;
  kernels::Handle handle_;
  EngineParts<P> parts_;
  StepActions<P> actions_;
  std::optional<Audit<P>> audit_;
  std::optional<StepHistory> history_;  ///< if the engine trains
  std::optional<optim::LocalTraining<P>> local_;
  Arena worker_loss_memory_;
  View1<double> worker_losses_;      ///< losses of a step, summed over this rank's workers
  std::vector<double> progress_;     ///< progress of this rank's workers, for checkpoints
  std::vector<Executor> executors_;  ///< one per program
  bool begun_ = false;               ///< whether the last step has begun the next step
  schedule::Timeline timeline_;
  int recorded_parts_ = 0;          ///< number of overlapping steps in the timeline
  std::ptrdiff_t latest_part_ = 0;  ///< index of the first event of the last recorded step
  Clock::time_point timed_from_;
};

extern template class TypedEngine<model::Fp32>;
extern template class TypedEngine<model::Fp64>;
extern template class TypedEngine<model::MixedBf16>;
extern template class TypedEngine<model::MixedFp16>;

}  // namespace trireme::train
