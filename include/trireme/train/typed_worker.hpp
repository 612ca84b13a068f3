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

/// Checkpoints of overlapping steps: prefix of the names of arrays that hold the weights before the
/// last update, which are rounded if weights are.
inline const std::string second_weights = "optimizer.earlier_weight.";

/// Checkpoints of local training: name of the array with the progress of all workers [workers, 4],
/// the first values of optim::Progress. name_of_worker gives the names of a worker's arrays; the
/// first worker's state has the usual names.
inline const std::string worker_progress = "optimizer.worker_progress";
inline constexpr std::int64_t progress_numbers = 4;
inline std::string name_of_worker(std::int64_t worker, const std::string& array) {
  constexpr std::string_view state = "optimizer.";
  if (!array.starts_with(state)) return text(state, "worker_", worker, ".weight.", array);
  return worker == 0 ? array : text(state, "worker_", worker, '.', array.substr(state.size()));
}

/// The worker for one set of types. Without programs it can only evaluate.
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
  std::vector<std::vector<std::int32_t>> likeliest(const data::Requests& requests) override;
  std::vector<checkpoint::SliceView> share() override;
  void load(const checkpoint::Reader& reader) override;
  std::vector<plan::MemoryRow> memory() const override;
  double measure_peak() override;
  std::string description() const override;

 private:
  /// Calls `step` for each worker of local training on this rank, or once without local training.
  template <class Step>
  void for_workers(std::int64_t number, const Step& step);
  /// kernels::UpdateStatus of all workers: [workers · status_size]. Collective.
  std::vector<double> statuses();
  /// Number of state arrays of the optimizer per weight.
  std::size_t state_arrays() const { return architecture::state_arrays(config_.optimizer).size(); }
  /// Calls `use` with the weights of evaluations: with local training the shared weights.
  template <class Use>
  void with_shared_weights(const Use& use);
  /// Evaluates this rank's part of the groups of `samples` samples. Calls `begin` before each
  /// program, with the number of earlier groups of this rank.
  void evaluate_groups(std::int64_t samples, const std::function<void(std::int64_t)>& begin);
  /// The sums over all ranks; a request's values are on the ranks of one replica that hold its
  /// tokens, other ranks have zeros.
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
  // With parameter servers.
  void served_step(std::int64_t step, const data::Samples& samples, bool next_follows);
  void fetch_current();
  void take_status();
  void tell_servers(double& value, const char* what);
  /// Adds the loss and norm of a queued step to the history.
  void remember(std::int64_t step);
  /// The history before `step`. Collective, except with overlapping steps.
  std::vector<StepLoss> earlier_steps(std::int64_t step);
  void overlap(std::int64_t step, const data::Samples& samples, bool next_follows);
  /// Copies the weights of step `step` to the other version.
  void copy_second_weights(std::int64_t step);
  /// Returns the executor of the step's program.
  Executor& begin_step(std::int64_t step, const data::Samples& samples);
  /// Trains a step; `run` runs a part of its program.
  void take_step(std::int64_t step, const std::function<void(StepPart)>& run);
  void run(const Executor& executor, StepPart part = StepPart::whole);
  void publish(const Step& step, StepPart part) const;  ///< publishes to the watchdog
  void run_timed(const Executor& executor, StepPart part);
  void run_recorded(const Executor& executor);
  void begin_clock();
  Seconds since_zero(Clock::time_point t) const { return seconds(t - timed_from_); }
  /// Makes room for an overlapping step in the timeline, and returns its part.
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
  View1<double> worker_losses_;      ///< losses of a step, summed over this rank's workers
  std::vector<double> progress_;     ///< progress of this rank's workers, for checkpoints
  std::vector<Executor> executors_;  ///< one per program
  bool begun_ = false;               ///< the previous step has begun the next
  schedule::Timeline timeline_;
  int recorded_parts_ = 0;          ///< overlapping steps in the timeline
  std::ptrdiff_t latest_part_ = 0;  ///< first event of the last recorded step
  Clock::time_point timed_from_;
};

extern template class TypedWorker<model::Fp32>;
extern template class TypedWorker<model::Fp64>;
extern template class TypedWorker<model::MixedBf16>;
extern template class TypedWorker<model::MixedFp16>;

}  // namespace trireme::train
