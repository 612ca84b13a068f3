#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/data/samples.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/schedule/program.hpp>
#include <trireme/schedule/timeline.hpp>
#include <trireme/train/metrics.hpp>
#include <trireme/train/skips.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme::train {

/// What a step found, the same on all ranks.
struct StepResult {
  double loss = 0;  ///< Σ of the objective's terms, each a mean over the global batch
  std::vector<NamedLoss> other_losses;  ///< terms of `loss` beside that of tokens
  double gradient_norm = 0;             ///< before clipping
  Skips skips;                          ///< so far
};

/// One term of the training objective over a token file.
struct LossSum {
  std::string name;  ///< this and the next: as architecture::LossTerm has them
  std::string counted;
  double nats = 0;         ///< Σ cross entropy
  std::int64_t count = 0;  ///< of what is counted
  double mean() const { return nats / static_cast<double>(count); }
};

/// Losses on a token file.
struct Evaluation {
  std::vector<LossSum> losses;  ///< that of predicted tokens first
  std::int64_t bytes = 0;       ///< of text in those tokens; 0 where they are chosen at random
  const LossSum& tokens() const { return losses.front(); }
  double bits_per_byte() const;
};

/// One rank's model with all that trains it. The number types are chosen once, in make_worker.
class Worker {
 public:
  virtual ~Worker() = default;

  /// Initial weights from the deck's seed and an optimizer's initial state, whatever was there.
  virtual void initialise() = 0;
  /// Queues step `step` ≥ 1 on the global samples of that step.
  virtual void train_step(std::int64_t step, const data::Samples& samples) = 0;
  /// The same, and records when each instruction ran; waits for each of them.
  virtual void timed_step(std::int64_t step, const data::Samples& samples) = 0;
  /// When the instructions of the last timed step ran on the pipeline ranks of the first replica's
  /// first tensor rank: on rank 0 of the world, elsewhere without events. Seconds since the step
  /// began. Collective.
  virtual schedule::Timeline timeline() = 0;
  /// Waits for the last step and says what it found. Collective.
  virtual StepResult result() = 0;
  /// Windows [0, windows) of a file, divided over all ranks; `bytes_of_token` per id. Collective.
  virtual Evaluation evaluate(const data::Windows& file, std::int64_t windows,
                              const std::vector<std::int32_t>& bytes_of_token) = 0;

  /// What this rank writes to a checkpoint: parts of the parameters and, if it trains, of the
  /// optimizer's state; all ranks together hold every element once. Waits for the step under way.
  /// The slices refer to live memory, which holds still until the next step.
  virtual std::vector<checkpoint::SliceView> share() = 0;
  /// Reads what this rank holds of parameters and state, and verifies what it reads. Not
  /// collective. After an error the numbers are undefined until the next load or initialise.
  virtual void load(const checkpoint::Reader& reader) = 0;

  virtual std::vector<plan::MemoryRow> memory() const = 0;
  /// FLOP/s of this rank's best matrix product, measured now.
  virtual double measure_peak() = 0;
  /// "fp32 products by oneDNN 2.6.3"
  virtual std::string description() const = 0;
};

enum class Mode : std::uint8_t { train, evaluate };

/// `config` must be resolved; all arguments must outlive the worker. `programs` are those of the
/// training steps, as plan::step_programs() has them; none in evaluation. `machine` is the one that
/// the worker runs on, for which they were made.
std::unique_ptr<Worker> make_worker(const deck::Config& config,
                                    const architecture::Architecture& architecture,
                                    grid::Grid& grid, const plan::Machine& machine,
                                    std::span<const schedule::Program> programs, Mode mode);

}  // namespace trireme::train
