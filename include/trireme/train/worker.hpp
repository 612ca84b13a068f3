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

/// Results of a step, the same on all ranks.
struct StepResult {
  double loss = 0;  ///< sum of the objective's terms, each a mean over the global batch
  std::vector<NamedLoss> other_losses;  ///< terms of `loss` other than the tokens'
  double gradient_norm = 0;             ///< before clipping
  Skips skips;                          ///< skipped steps so far
  std::optional<double> noise_scale;    ///< gradient noise scale in samples, if it is estimated
  /// On rank 0, the steps since the last result, at most longest_history.
  std::vector<StepLoss> earlier = {};
};

/// One term of the training objective over a token file.
struct LossSum {
  std::string name;  ///< name and counted as in architecture::LossTerm
  std::string counted;
  double nats = 0;         ///< Σ cross entropy
  std::int64_t count = 0;  ///< number of cross entropies in the sum
  /// Mean cross entropy; 0 if nothing counts.
  double mean() const { return count == 0 ? 0 : nats / static_cast<double>(count); }
};

/// Losses on a token file.
struct Evaluation {
  std::vector<LossSum> losses;  ///< loss of predicted tokens first
  std::int64_t bytes = 0;       ///< bytes of text in those tokens; 0 if they are chosen at random
  const LossSum& tokens() const { return losses.front(); }
  double bits_per_byte() const;
};

/// Likelihood of the scored tokens of a request.
struct Score {
  double log_likelihood = 0;  ///< Σ log p(token | tokens before), in nats
  bool greedy = false;        ///< whether every scored token is the most likely one
};

/// One rank's model with its optimizer and communication. make_worker selects the types once.
class Worker {
 public:
  virtual ~Worker() = default;

  /// Sets the initial weights from the deck's seed and the optimizer's initial state.
  virtual void initialise() = 0;
  /// Queues step `step` ≥ 1 on the global samples of that step.
  virtual void train_step(std::int64_t step, const data::Samples& samples) = 0;
  /// Like train_step, but waits after each instruction and records when it ran.
  virtual void timed_step(std::int64_t step, const data::Samples& samples) = 0;
  /// Trains an overlapping step (deck::ParallelConfig::overlaps_steps), like train_step, or with
  /// run.timeline like timed_step. If `next_follows`, it begins step + 1, which must be the next
  /// call; otherwise all gradients are applied at the end, as train_step always does.
  virtual void overlapping_step(std::int64_t step, const data::Samples& samples,
                                bool next_follows) = 0;
  /// With audits, compares the state of all replicas after step `step`, and repairs it or throws.
  /// Collective.
  virtual void audit_state(std::int64_t step) = 0;
  /// Times of the last timed step's instructions, in seconds since the step began (of overlapping
  /// steps: also of the last step that another step follows), on the pipeline ranks of the first
  /// replica's first tensor rank. Only rank 0 of the world receives the events. Collective.
  virtual schedule::Timeline timeline() = 0;
  /// Waits for the last step and returns its results. Collective.
  virtual StepResult result() = 0;
  /// Results of step `step`, the last step whose gradients are applied, or with overlapping steps
  /// also the previous step. In that case it only waits for that step and is not collective.
  virtual StepResult result_of(std::int64_t step) = 0;
  /// Losses on windows [0, windows) of a file, distributed over all ranks; `bytes_of_token`: bytes
  /// by id. Collective.
  virtual Evaluation evaluate(const data::Windows& file, std::int64_t windows,
                              const std::vector<std::int32_t>& bytes_of_token) = 0;

  /// The scores of all requests, on every rank, for a model that predicts the next token. The
  /// request's index determines the rank that computes it. Collective.
  virtual std::vector<Score> score(const data::Requests& requests) = 0;

  /// For each request that wants tokens: the likeliest token after its context and after each later
  /// token, by the weights that `evaluate` uses, on every rank; -1 if a logit is not finite. Not
  /// with parameter servers. Collective.
  virtual std::vector<std::vector<std::int32_t>> likeliest(const data::Requests& requests) = 0;

  /// This rank's slices of a checkpoint: parts of the parameters and, if it trains, of the
  /// optimizer's state. All ranks together write every element once. Waits for the current step.
  /// The slices refer to live memory, which does not change until the next step.
  virtual std::vector<checkpoint::SliceView> share() = 0;
  /// Reads and verifies this rank's parameters and state. Not collective. After an error the values
  /// are undefined until the next load or initialise.
  virtual void load(const checkpoint::Reader& reader) = 0;

  virtual std::vector<plan::MemoryRow> memory() const = 0;
  /// Measures the rate of this rank's best matrix product, in FLOP/s.
  virtual double measure_peak() = 0;
  /// For logs: "fp32 products by oneDNN 2.6.3".
  virtual std::string description() const = 0;
};

enum class Mode : std::uint8_t { train, evaluate };

/// `config` must be resolved; all arguments must outlive the worker. `programs`:
/// plan::step_programs() for training, empty for evaluation. `machine`: the machine that runs the
/// worker, for which the programs were made.
std::unique_ptr<Worker> make_worker(const deck::Config& config,
                                    const architecture::Architecture& architecture,
                                    grid::Grid& grid, const plan::Machine& machine,
                                    std::span<const schedule::Program> programs, Mode mode);

}  // namespace trireme::train
