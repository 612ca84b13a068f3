#pragma once

#include <trireme/base/check.hpp>
#include <trireme/base/clock.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/data/samples.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/train/metrics.hpp>
#include <trireme/train/requests.hpp>
#include <trireme/train/saver.hpp>
#include <trireme/train/worker.hpp>

#include <memory>
#include <optional>
#include <string>

namespace trireme::train {

/// What a run works with beside its worker. All must outlive the trainer.
struct RunParts {
  const deck::Config& config;
  const architecture::Architecture& architecture;
  grid::Communicator& world;
  const data::Samples& samples;
  const data::Windows* validation;  ///< null: none
  const std::vector<std::int32_t>& bytes_of_token;
  std::string deck_toml;      ///< as resolved, for checkpoints
  Bytes checkpoint_copy = 0;  ///< host memory for writing checkpoints in the background
};

/// The loop: step, log, validate, save, stop.
class Trainer {
 public:
  Trainer(const RunParts& parts, Worker& worker);

  /// Goes on behind the step that the worker has loaded; without one at step 1.
  void start(std::optional<std::int64_t> restored);

  /// Runs to the last step, or to the first step's end at which the time limit is near, a signal
  /// has come or a file `stop` is there: then a checkpoint is written and the code is
  /// `restartable`. Collective.
  ExitCode run();

 private:
  ExitCode take_steps();
  bool is_logged(std::int64_t step) const;
  void check_skips(const Metrics& metrics, const Skips& before);
  void log_step(std::int64_t step);
  void write_timeline();
  void end() const;
  [[noreturn]] void fail_not_finite(const std::string& message);
  std::optional<Evaluation> validate();
  void save(std::int64_t step, bool goes_on);
  Request agreement(std::int64_t step);
  std::string progress_line(const Metrics& metrics) const;

  const RunParts parts_;
  const deck::BatchSchedule batches_;
  Worker& worker_;
  Requests requests_;
  Saver saver_;
  std::optional<MetricsFile> metrics_;
  double peak_flops_ = 0;  ///< of all ranks
  std::int64_t first_step_ = 1;
  std::int64_t logged_step_ = 0;
  std::int64_t saved_step_ = 0;
  Skips skips_;               ///< as of the last logged step
  bool save_is_due_ = false;  ///< put off until a step is not skipped
  Clock::time_point began_;   ///< the first step
  Clock::time_point logged_at_;
  Seconds untimed_ = 0;  ///< waited for checkpoints since the last logged step
};

}  // namespace trireme::train
