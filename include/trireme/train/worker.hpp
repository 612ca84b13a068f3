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
  std::vector<NamedLoss> other_losses;  ///< terms of `loss` besides that of tokens
  double gradient_norm = 0;             ///< before clipping
  Skips skips;                          ///< so far
  std::optional<double> noise_scale;    ///< gradient noise scale in samples, if it is estimated
  /// On rank 0, the steps since the last result, at most longest_history.
  std::vector<StepLoss> earlier = {};
};

/// One term of the training objective over a token file.
struct LossSum {
  std::string name;  ///< name and counted: those of architecture::LossTerm
  std::string counted;
  double nats = 0;         ///< Σ cross entropy
  std::int64_t count = 0;  ///< number of cross entropies in the sum
  /// 0 if nothing counts.
  double mean() const { return count == 0 ? 0 : nats / static_cast<double>(count); }
};

/// Losses on a token file.
struct Evaluation {
  std::vector<LossSum> losses;  ///< that of predicted tokens first
  std::int64_t bytes = 0;  ///< bytes of text in those tokens; 0 if the tokens are chosen at random
  const LossSum& tokens() const { return losses.front(); }
  double bits_per_byte() const;
};

/// Likelihood of the scored tokens of a request.
struct Score {
  double log_likelihood = 0;  ///< Σ log p(token | tokens before), in nats
  bool greedy = false;        ///< whether each of them is the most likely token
};

/// One rank's model with its optimizer and communication. make_worker chooses the number types
/// once.
class Worker {
 public:
  virtual ~Worker() = default;

  /// Sets the initial weights from the deck's seed and the optimizer's initial state.
  virtual void initialise() = 0;
  /// Queues step `step` ≥ 1 on the global samples of that step.
  virtual void train_step(std::int64_t step, const data::Samples& samples) = 0;
  /// The same, with a wait after each instruction; records when each instruction ran.
  virtual void timed_step(std::int64_t step, const data::Samples& samples) = 0;
  /// For overlapping steps (deck::ParallelConfig::overlaps_steps), the same as train_step, and with
  /// run.timeline as timed_step, of all of them. If `next_follows`, it begins step + 1, which must
  /// be the next call; otherwise all gradients are applied at the end, as always by train_step.
  virtual void overlapping_step(std::int64_t step, const data::Samples& samples,
                                bool next_follows) = 0;
  /// With audits, compares the state of all replicas after step `step`, and repairs it or throws.
  /// Collective.
  virtual void audit_state(std::int64_t step) = 0;
  /// Times of the last timed step's instructions, in seconds since the step began (of overlapping
  /// steps: also of the step before the last one that is not the end), on the pipeline
  /// ranks of the first replica's first tensor rank. Only rank 0 of the world receives the events.
  /// Collective.
  virtual schedule::Timeline timeline() = 0;
  /// Waits for the last step and returns its results. Collective.
  virtual StepResult result() = 0;
  /// The same for step `step`, which is the last one whose gradients are applied, or with
  /// overlapping steps also the one before. Waits for it only, and then is not collective.
  virtual StepResult result_of(std::int64_t step) = 0;
  /// Losses on windows [0, windows) of a file, distributed over all ranks; `bytes_of_token` per id.
  /// Collective.
  virtual Evaluation evaluate(const data::Windows& file, std::int64_t windows,
                              const std::vector<std::int32_t>& bytes_of_token) = 0;

  /// The scores of all requests, on every rank, for a model that predicts the next token. The
  /// request's number decides which rank computes it. Collective.
  virtual std::vector<Score> score(const data::Requests& requests) = 0;

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
  /// "fp32 products by oneDNN 2.6.3"
  virtual std::string description() const = 0;
};

enum class Mode : std::uint8_t { train, evaluate };

/// `config` must be resolved; all arguments must outlive the worker. `programs` are those of
/// plan::step_programs() for training, and empty for evaluation. `machine` is the machine on which
/// the worker runs, for which the programs were made.
std::unique_ptr<Worker> make_worker(const deck::Config& config,
                                    const architecture::Architecture& architecture,
                                    grid::Grid& grid, const plan::Machine& machine,
                                    std::span<const schedule::Program> programs, Mode mode);

}  // namespace trireme::train
