#pragma once

#include <trireme/base/check.hpp>
#include <trireme/base/clock.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/data/samples.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/views.hpp>
#include <trireme/train/local_saver.hpp>
#include <trireme/train/metrics.hpp>
#include <trireme/train/requests.hpp>
#include <trireme/train/saver.hpp>
#include <trireme/train/worker.hpp>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::train {

/// Parts of a run other than its worker. All must outlive the trainer.
struct RunParts {
  const deck::Config& config;
  const architecture::Architecture& architecture;
  grid::Communicator& world;
  const data::Samples& samples;
  const data::Windows* validation;  ///< null: none
  const std::vector<std::int32_t>& bytes_of_token;
  Bytes checkpoint_copy = 0;  ///< host memory for background checkpoints
  /// Throws Error on rank 0 if the run's folders no longer belong to it.
  std::function<void()> expect_folders = [] {};
  /// Called on all ranks at each evaluation, after its loss is logged. If the weights are not
  /// usable it returns the reason on all ranks, which ends the run.
  std::function<std::string(std::int64_t step)> after_evaluation = [](std::int64_t) { return ""; };
};

/// The log line of a step, at most 79 columns wide:
/// "step  20/120 epoch 0.42  loss 5.698 norm 0.62  10.7k tok/s 21% MFU  eta 0:19". If it would be
/// wider, the MFU, the batch and the norm are omitted, in this order. `ramps`: the global batch
/// changes in this run and is part of the line. `left`: time to the last step.
std::string step_line(const Metrics& metrics, std::int64_t steps, double epochs, Seconds left,
                      bool ramps);

/// True every `every` steps; 0: never.
inline bool due(std::int64_t step, std::int64_t every) {
  return every > 0 && step % every == 0;
}

/// The training loop: step, log, validate, save, stop.
class Trainer {
 public:
  Trainer(const RunParts& parts, Worker& worker);

  /// Continues after the step that the worker has loaded, or starts at step 1. Every checkpoint of
  /// the run has the deck, values, files and starts of `kept` on rank 0; for local checkpoints,
  /// every rank must have deck and files.
  void start(std::optional<std::int64_t> restored, const checkpoint::RunState& kept);

  /// Runs to the last step, or until the time limit is near, a signal has arrived or a file `stop`
  /// exists at the end of a step. In these cases it writes a checkpoint and returns `restartable`.
  /// Collective.
  ExitCode run();

 private:
  ExitCode take_steps();
  bool is_logged(std::int64_t step) const;
  void check_skips(const Metrics& metrics, const Skips& before);
  void log_step(std::int64_t step, bool late = false);
  Request take_step(std::int64_t step);
  void write_timeline();
  void say_noise_scale() const;
  void say_mean_speed() const;
  void end() const;
  [[noreturn]] void fail_not_finite(const std::string& message);
  std::optional<Evaluation> validate();
  checkpoint::RunState state_of(std::int64_t step) const;
  void save(std::int64_t step, bool goes_on);
  void save_locally(std::int64_t step);
  Request agreement(std::int64_t step);
  std::vector<std::int64_t> wishes(std::int64_t step);
  /// `phase`: Saver::phases() when the ranks' words were made.
  Request agreed(std::span<const std::int64_t> words, std::int64_t phase);
  // With overlapping steps.
  bool ends_overlap(std::int64_t step) const;
  Request take_overlapping_step(std::int64_t step);
  void begin_agreement(std::int64_t step);
  void end_agreement();
  // With parameter servers.
  std::int64_t agreement_lag() const;
  bool meets_after(std::int64_t step) const;
  Request take_served_step(std::int64_t step);
  void begin_late_agreement(std::int64_t step);
  void end_late_agreement();
  void look_for_folders();
  std::string progress_line(const Metrics& metrics) const;

  const RunParts parts_;
  const deck::BatchSchedule batches_;
  Worker& worker_;
  Requests requests_;
  Saver saver_;
  std::optional<LocalSaver> local_saver_;
  std::optional<MetricsFile> metrics_;
  double peak_flops_ = 0;  ///< sum of all ranks
  std::int64_t first_step_ = 1;
  std::int64_t logged_step_ = 0;
  std::int64_t saved_step_ = 0;
  checkpoint::RunState kept_;          ///< argument of start()
  Skips skips_;                        ///< at the last logged step
  std::optional<double> noise_scale_;  ///< at the last logged step, in samples
  bool save_is_due_ = false;           ///< checkpoint postponed until a step is not skipped
  bool local_is_due_ = false;          ///< local checkpoint postponed for the same reason
  std::string lost_folder_;            ///< on rank 0: error of expect_folders
  Clock::time_point looked_;           ///< time of the last call of expect_folders
  Clock::time_point began_;            ///< beginning of the first step
  Clock::time_point logged_at_;
  Seconds untimed_ = 0;  ///< time spent on checkpoints since the last logged step

  // With overlapping steps.
  Request wanted_;  ///< agreed request, for the next step that ends the overlap
  Exec exec_;
  Arena agreement_memory_{"agreement", 64};
  View1<std::int64_t> words_;  ///< words of the running agreement, on the device
  grid::Request agreement_;
  std::vector<std::int64_t> mine_;          ///< this rank's words of the running agreement
  std::int64_t peak_bytes_ = 0;             ///< peak memory of all ranks at the last agreement
  std::array<Clock::time_point, 2> ended_;  ///< ends of odd and even steps

  // With parameter servers.
  struct LateAgreement {
    std::int64_t phase = 0;  ///< Saver::phases()
    std::vector<std::int64_t> words;
    View1<std::int64_t> sent;  ///< on the device
    grid::Request request;
  };
  std::deque<LateAgreement> late_agreements_;  ///< running agreements, oldest first
  Arena late_memory_;
  View1<std::int64_t> late_words_;
};

}  // namespace trireme::train
