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
  std::string name;  ///< as architecture::LossTerm has it: "pair_loss"
  double mean = 0;
};

/// Losses of a step between two logged steps: a short line of metrics.jsonl.
struct StepLoss {
  std::int64_t step = 0;
  double loss = 0;                      ///< as of Metrics
  std::vector<NamedLoss> other_losses;  ///< as of Metrics
  std::optional<double> gradient_norm;  ///< nothing if parameter servers have it
};

/// One logged step: a line of metrics.jsonl.
struct Metrics {
  std::int64_t step = 0;
  std::string time = {};  ///< when the line was written, as to_text(Utc) has it; "": not known
  double loss = 0;  ///< mean over the global batch, nats per predicted token, with all other terms
  std::vector<NamedLoss> other_losses;  ///< terms of `loss` beside that of tokens
  double learning_rate = 0;
  double gradient_norm = 0;          ///< before clipping
  std::int64_t skipped_steps = 0;    ///< so far: their loss or gradient was not finite
  std::optional<double> loss_scale;  ///< of the next step, with fp16
  std::int64_t global_batch = 0;     ///< samples of this step
  std::int64_t tokens = 0;           ///< trained on so far
  double tokens_per_second = 0;      ///< of all ranks, since the last logged step
  Seconds step_seconds = 0;          ///< mean since the last logged step
  double flops_utilization =
      0;                 ///< MFU: model FLOPs / time / measured matrix-product peak of all ranks
  Bytes peak_bytes = 0;  ///< most resident host memory of any rank so far; 0: not known
  std::optional<double> validation_loss;           ///< of tokens
  std::vector<NamedLoss> other_validation_losses;  ///< of the other terms
  std::optional<double> bits_per_byte;
  std::optional<double> gradient_noise_scale;  ///< samples
};

/// One JSON object whose numbers read back exactly; null for one that is not finite, which JSON
/// cannot say.
std::string to_json(const Metrics& metrics);
/// One JSON object with numbers of single precision, which keep the file small.
std::string to_json(const StepLoss& step);

/// Largest size of a run's JSON-lines files, which are read whole.
inline constexpr std::int64_t record_limit_bytes = std::int64_t{1} << 40;

/// Renames a former run's file in `directory` to STEM.previous-1.jsonl, or to the first number that
/// is free.
void move_aside(const std::string& path, const std::string& directory, const char* stem);

/// metrics.jsonl of a run. Open on one rank only.
class MetricsFile {
 public:
  /// A fresh run moves an earlier file aside to metrics.previous-1.jsonl (the first free number); a
  /// restarted one keeps the whole lines up to `restored_step`, so that the file reads as one run.
  MetricsFile(const std::string& directory, std::optional<std::int64_t> restored_step);
  void write(const Metrics& metrics);
  /// Steps before the next one that is logged.
  void write(const std::vector<StepLoss>& steps);

  /// A line that a former job wrote.
  struct Line {
    std::int64_t step = 0;
    std::optional<std::string> time;
  };
  /// Its last line before the lines after `restored_step` were removed, and the last one kept.
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
