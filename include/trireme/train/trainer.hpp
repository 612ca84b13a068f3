#pragma once

#include <trireme/base/check.hpp>
#include <trireme/base/clock.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/data/samples.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/views.hpp>
#include <trireme/train/engine.hpp>
#include <trireme/train/metrics.hpp>
#include <trireme/train/node_local_saver.hpp>
#include <trireme/train/requests.hpp>
#include <trireme/train/saver.hpp>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::train {

/// Parts of a run other than its engine. All references must outlive the trainer.
struct TrainerInputs {
  const deck::Config& config;
  const architecture::Architecture& architecture;
  grid::Communicator& world;
  const data::Samples& samples;
  const data::Windows* validation;  ///< null: none
  const std::vector<std::int32_t>& bytes_of_token;
  Bytes checkpoint_copy = 0;  ///< host memory for background checkpoints
  /// Called on rank 0. Throws Error if the run's folders no longer belong to the run.
  std::function<void()> expect_folders = [] {};
  /// Called on all ranks at each evaluation, after the log line. Returns "" if the weights are
  /// usable; otherwise the reason, equal on all ranks, and the run ends.
  std::function<std::string(std::int64_t step)> after_evaluation = [](std::int64_t) { return ""; };
};

/// The log line of a step:
/// "step  20/120 epoch 0.42  loss 5.698 norm 0.62  10.7k tok/s 21% MFU  eta 0:19". If it is wider
/// than 79 columns, the MFU, the batch and the norm are omitted, in this order, until it fits.
/// `ramps`: the global batch changes in this run and is part of the line. `left`: time to the last
/// step.
std::string step_line(const Metrics& metrics, std::int64_t steps, double epochs, Seconds left,
                      bool ramps);

/// Whether `step` is a multiple of `every`; false if `every` is 0.
inline bool due(std::int64_t step, std::int64_t every) {
  return every > 0 && step % every == 0;
}

/// The training loop: step, log, validate, save, stop.
class Trainer {
 public:
  Trainer(const TrainerInputs& parts, Engine& engine);

  /// Continues after step `restored`, which the engine has loaded, or starts at step 1. `kept`:
  /// values that every checkpoint of the run stores, on rank 0; with local checkpoints, deck and
  /// files on every rank. Collective.
  void start(std::optional<std::int64_t> restored, const checkpoint::RunState& kept);

  /// Runs to the last step. If the time limit is near, a signal arrives or a file `stop` appears,
  /// writes a checkpoint after a step and returns ExitCode::restartable. Collective.
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
  /// `words`: maximum of all ranks' wishes(). `phase`: Saver::phases() at the call of wishes().
  Request agreed(std::span<const std::int64_t> words, std::int64_t phase);
  // Functions for overlapping steps.
  bool ends_overlap(std::int64_t step) const;
  Request take_overlapping_step(std::int64_t step);
  void begin_agreement(std::int64_t step);
  void end_agreement();
  // Functions for parameter servers.
  std::int64_t agreement_lag() const;
  bool meets_after(std::int64_t step) const;
  Request take_served_step(std::int64_t step);
  void begin_late_agreement(std::int64_t step);
  void end_late_agreement();
  void look_for_folders();
  std::string progress_line(const Metrics& metrics) const;

  const TrainerInputs parts_;
  const deck::BatchSchedule batches_;
  Engine& engine_;
  Requests requests_;
  Saver saver_;
  std::optional<NodeLocalSaver> local_saver_;
  std::optional<MetricsFile> metrics_;
  double peak_flops_ = 0;  ///< measured rate of matrix products in FLOP/s, sum over all ranks
  std::int64_t first_step_ = 1;
  std::int64_t logged_step_ = 0;
  std::int64_t saved_step_ = 0;
  checkpoint::RunState kept_;          ///< argument of start()
  Skips skips_;                        ///< at the last logged step
  std::optional<double> noise_scale_;  ///< at the last logged step, in samples
  bool save_is_due_ = false;           ///< whether a checkpoint is due
  bool local_is_due_ = false;          ///< whether a local checkpoint is due
  std::string lost_folder_;            ///< on rank 0: error of expect_folders; "": none
  Clock::time_point looked_;           ///< time of the last call of expect_folders
  Clock::time_point began_;            ///< beginning of this job's first step
  Clock::time_point logged_at_;
  /// Time of checkpoints since the last logged step, not counted in step times.
  Seconds untimed_ = 0;

  // State of overlapping steps.
  Request wanted_;  ///< agreed request that awaits the next step after which all ranks meet
  Exec exec_;
  Arena agreement_memory_{"agreement", 64};
  View1<std::int64_t> words_;  ///< this rank's words, then the maxima, on the device
  grid::Request agreement_;
  std::vector<std::int64_t> mine_;          ///< words of the agreement in progress; empty: none
  std::int64_t peak_bytes_ = 0;             ///< largest peak memory of a rank at the last agreement
  std::array<Clock::time_point, 2> ended_;  ///< times at which the last even and odd step ended

  // State for runs with parameter servers.
  struct LateAgreement {
    std::int64_t phase = 0;  ///< Saver::phases() at the beginning
    std::vector<std::int64_t> words;
    View1<std::int64_t> sent;  ///< on the device
    grid::Request request;
  };
  std::deque<LateAgreement> late_agreements_;  ///< agreements in progress, oldest first
  Arena late_memory_;
  View1<std::int64_t> late_words_;
};

}  // namespace trireme::train
