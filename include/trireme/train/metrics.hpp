#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace trireme::train {

/// The mean of one term of the training objective, in nats.
struct NamedLoss {
  std::string name;  ///< name of an architecture::LossTerm: "pair_loss"
  double mean = 0;
};

/// Losses and gradient norm of a step between two logged steps: a short line of metrics.jsonl.
struct StepLoss {
  std::int64_t step = 0;
  double loss = 0;                      ///< see Metrics
  std::vector<NamedLoss> other_losses;  ///< see Metrics
  std::optional<double> gradient_norm;  ///< empty with parameter servers
};

/// One logged step: a line of metrics.jsonl.
struct Metrics {
  std::int64_t step = 0;
  std::string time = {};  ///< time of writing, in the form of to_text(Utc); "": unknown
  double loss = 0;        ///< sum of the objective's terms in nats, each a mean over the batch
  /// Terms of `loss` other than the loss of tokens, and terms that are apart from it.
  std::vector<NamedLoss> other_losses;
  double learning_rate = 0;
  double gradient_norm = 0;        ///< before clipping
  std::int64_t skipped_steps = 0;  ///< number of steps so far whose loss or gradient was not finite
  std::optional<double> loss_scale;  ///< loss scale of the next step, with fp16
  std::int64_t global_batch = 0;     ///< samples of this step
  std::int64_t tokens = 0;           ///< number of training tokens so far
  double tokens_per_second = 0;      ///< all ranks, since the last logged step
  Seconds step_seconds = 0;          ///< mean time of a step since the last logged step
  /// MFU: model FLOPs / time / measured matrix-product peak of all ranks.
  double flops_utilization = 0;
  Bytes peak_bytes = 0;  ///< largest resident host memory of a rank so far; 0: unknown
  std::optional<double> validation_loss;           ///< loss of tokens
  std::vector<NamedLoss> other_validation_losses;  ///< losses of the other terms
  std::optional<double> bits_per_byte;
  std::optional<double> gradient_noise_scale;  ///< in samples
  /// In about a hundred lines of a run: for each layer with experts, the tokens of the step that
  /// chose each expert.
  std::vector<std::vector<std::int64_t>> expert_tokens = {};
  /// For each layer with experts, the load of its most used expert: 1 if all are used equally.
  std::vector<double> expert_loads = {};
  /// With [experts] capacity: for each layer with experts, the fraction of dropped choices.
  std::vector<double> dropped_choices = {};
};

/// One JSON object whose numbers read back exactly. Values that are not finite become null.
std::string to_json(const Metrics& metrics);
/// Like to_json(Metrics), with losses and norm in single precision, which keeps the file small.
std::string to_json(const StepLoss& step);

/// Largest size of a run's JSON-lines files, which are read whole.
inline constexpr std::int64_t record_limit_bytes = std::int64_t{1} << 40;

/// If the file `path` of a previous run exists, renames it to `directory`/`stem`.previous-N.jsonl,
/// with the first free number N ≥ 1.
void move_aside(const std::string& path, const std::string& directory, const char* stem);

/// metrics.jsonl of a run. Open on one rank only.
class MetricsFile {
 public:
  /// A new run (no `restored_step`) renames an earlier file (move_aside()). A restarted run keeps
  /// the complete lines of steps up to `restored_step`.
  MetricsFile(const std::string& directory, std::optional<std::int64_t> restored_step);
  void write(const Metrics& metrics);
  /// Writes the steps since the previous logged step.
  void write(const std::vector<StepLoss>& steps);

  /// The line of a logged step that a previous job wrote.
  struct Line {
    std::int64_t step = 0;
    std::optional<std::string> time;
  };
  /// The last logged step of the previous file, and the last logged step that was kept, if any.
  const std::optional<Line>& last_logged() const { return last_logged_; }
  const std::optional<Line>& last_kept() const { return last_kept_; }

 private:
  std::string lines_up_to(std::int64_t step);
  void append(const std::string& lines);

  std::optional<Line> last_logged_;
  std::optional<Line> last_kept_;
  std::string path_;
  std::ofstream file_;
};

}  // namespace trireme::train
