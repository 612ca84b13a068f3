#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/data/requests.hpp>
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
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::train {

/// Results of a step; except `earlier`, equal on all ranks that train. Parameter servers have only
/// `loss`, `gradient_norm` and `skips`.
struct StepResult {
  double loss = 0;  ///< sum of the objective's terms, each a mean over the global batch
  std::vector<NamedLoss> other_losses;  ///< see Metrics
  double gradient_norm = 0;             ///< before clipping
  Skips skips;                          ///< skipped steps so far
  /// See TrainingObjective, for these three.
  std::vector<std::vector<std::int64_t>> expert_tokens;
  std::vector<double> expert_loads;
  std::vector<double> dropped_choices;
  std::optional<double> noise_scale;  ///< gradient noise scale in samples, if it is estimated
  /// On rank 0, the steps between the previous result and this step, at most plan::longest_history.
  std::vector<StepLoss> earlier = {};
};

/// One term of the training objective over a token file.
struct LossSum {
  std::string name;  ///< see architecture::LossTerm, also for `counted`
  std::string counted;
  double nats = 0;         ///< Σ cross entropy
  std::int64_t count = 0;  ///< number of cross entropies in the sum
  /// Mean cross entropy; 0 if `count` is 0.
  double mean() const { return count == 0 ? 0 : nats / static_cast<double>(count); }
};

/// Losses on a token file.
struct Evaluation {
  std::vector<LossSum> losses;          ///< loss of predicted tokens first
  std::vector<double> expert_loads;     ///< see TrainingObjective::expert_loads()
  std::vector<double> dropped_choices;  ///< see TrainingObjective::dropped_choices()
  /// Bytes of text in the predicted tokens; 0 if these tokens are chosen at random.
  std::int64_t bytes = 0;
  const LossSum& tokens() const { return losses.front(); }
  double bits_per_byte() const;
};

/// Likelihood of the scored tokens of a request.
struct Score {
  double log_likelihood = 0;  ///< Σ log p(token | tokens before), in nats
  bool greedy = false;        ///< whether every scored token is the most likely token
};

/// One rank's model with its optimizer and communication. make_engine selects the number types.
class Engine {
 public:
  virtual ~Engine() = default;

  /// Sets the initial weights, from the deck's seed, and the initial optimizer state, if any.
  virtual void initialise() = 0;
  /// Queues training step `step` ≥ 1 on the samples of the step's global batch.
  virtual void train_step(std::int64_t step, const data::Samples& samples) = 0;
  /// Like train_step, but waits after each instruction and records the instruction's times.
  virtual void timed_step(std::int64_t step, const data::Samples& samples) = 0;
  /// Trains an overlapping step (deck::ParallelConfig::overlaps_steps); with run.timeline, records
  /// times. If `next_follows`, also begins step + 1, which the next call must train; otherwise
  /// applies all gradients. With parameter servers: a step of a worker or of a server; unless
  /// `next_follows`, the step's updates are applied before another step begins.
  virtual void overlapping_step(std::int64_t step, const data::Samples& samples,
                                bool next_follows) = 0;
  /// With audits, compares the state of all replicas after step `step`, and repairs wrong state or
  /// throws. Collective.
  virtual void audit_state(std::int64_t step) = 0;
  /// Instructions and their times, in seconds, on the pipeline ranks of the first replica and first
  /// tensor rank: of the last timed step, or of up to two consecutive overlapping steps. Complete
  /// on rank 0 of the world. Collective.
  virtual schedule::Timeline timeline() = 0;
  /// Waits for the last step and returns its results. Collective.
  virtual StepResult result() = 0;
  /// Results of step `step`: the last step, or with overlapping steps also the previous step.
  /// Collective, except with overlapping steps.
  virtual StepResult result_of(std::int64_t step) = 0;
  /// Losses on windows [0, windows) of a file. `bytes_of_token`: text bytes by id. Collective.
  virtual Evaluation evaluate(const data::Windows& file, std::int64_t windows,
                              const std::vector<std::int32_t>& bytes_of_token) = 0;

  /// The scores of all requests, on every rank, for a model that predicts the next token. Not with
  /// parameter servers. Collective.
  virtual std::vector<Score> score(const data::Requests& requests) = 0;

  /// For each request: the likeliest token after the context, and after each later token, with the
  /// weights that evaluate() uses; −1 if a logit is not finite. Equal on every rank. Not with
  /// parameter servers. Collective.
  virtual std::vector<std::vector<std::int32_t>> likeliest(const data::Requests& requests) = 0;

  /// This rank's slices of a checkpoint: parts of the parameters and, if the rank trains, of the
  /// optimizer's state. All ranks together have every element once. Waits for the current step. The
  /// slices refer to the engine's memory. Collective with local training.
  virtual std::vector<checkpoint::SliceView> share() = 0;
  /// Reads and verifies this rank's parameters and, if the rank trains, optimizer state. After an
  /// error the values are undefined until the next load or initialise.
  virtual void load(const checkpoint::Reader& reader) = 0;

  virtual std::vector<plan::MemoryRow> memory() const = 0;
  /// Measures the rate of this rank's fastest matrix product, in FLOP/s; 0 on parameter servers.
  virtual double measure_peak() = 0;
  /// For logs: "fp32 products by oneDNN 2.6.3".
  virtual std::string description() const = 0;
};

enum class Mode : std::uint8_t { train, evaluate };

/// `config` must be resolved; all arguments must outlive the engine. `programs`:
/// plan::step_programs() for `machine` to train, empty to evaluate.
std::unique_ptr<Engine> make_engine(const deck::Config& config,
                                    const architecture::Architecture& architecture,
                                    grid::Grid& grid, const plan::Machine& machine,
                                    std::span<const schedule::Program> programs, Mode mode);

}  // namespace trireme::train
