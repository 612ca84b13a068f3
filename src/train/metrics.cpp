#include <trireme/base/check.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/train/metrics.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace trireme::train {

namespace {

std::string json(double x) {
  return std::isfinite(x) ? text(x) : "null";
}

}  // namespace

std::string to_json(const Metrics& m) {
  std::string line = text(
      "{\"step\": ", m.step, ", \"loss\": ", json(m.loss), ", \"learning_rate\": ", m.learning_rate,
      ", \"gradient_norm\": ", json(m.gradient_norm), ", \"skipped_steps\": ", m.skipped_steps,
      ", \"global_batch\": ", m.global_batch, ", \"tokens\": ", m.tokens,
      ", \"tokens_per_second\": ", m.tokens_per_second, ", \"step_seconds\": ", m.step_seconds,
      ", \"flops_utilization\": ", m.flops_utilization, ", \"peak_bytes\": ", m.peak_bytes);
  if (m.loss_scale) line += text(", \"loss_scale\": ", *m.loss_scale);
  for (const NamedLoss& other : m.other_losses)
    line += text(", \"", other.name, "\": ", json(other.mean));
  if (m.validation_loss) line += text(", \"validation_loss\": ", *m.validation_loss);
  for (const NamedLoss& other : m.other_validation_losses)
    line += text(", \"validation_", other.name, "\": ", json(other.mean));
  if (m.bits_per_byte) line += text(", \"bits_per_byte\": ", *m.bits_per_byte);
  return line + "}";
}

namespace {

std::int64_t step_of(const std::string& line) {
  constexpr std::string_view head = "{\"step\": ";
  return line.starts_with(head) ? std::atoll(line.c_str() + head.size()) : -1;
}

/// A line that a kill has torn does not end as an object does.
std::string lines_up_to(const std::string& path, std::int64_t step) {
  std::string kept;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (const auto s = step_of(line); s >= 0 && s <= step && line.ends_with('}'))
      kept += line + '\n';
  return kept;
}

/// To metrics.previous-1.jsonl, or the first number that is free.
void move_aside(const std::string& path, const std::string& directory) {
  if (!std::filesystem::exists(path)) return;
  std::string to;
  for (int n = 1; to.empty() || std::filesystem::exists(to); ++n)
    to = text(directory, "/metrics.previous-", n, ".jsonl");
  std::filesystem::rename(path, to);
}

}  // namespace

MetricsFile::MetricsFile(const std::string& directory, std::optional<std::int64_t> restored_step)
    : path_(directory + "/metrics.jsonl") {
  const std::string kept = restored_step ? lines_up_to(path_, *restored_step) : "";
  if (!restored_step) move_aside(path_, directory);
  io::replace_file(path_, kept);
  file_.open(path_, std::ios::app);
  check(file_.good(), "cannot write ", path_, "; is the folder writable?");
}

void MetricsFile::write(const Metrics& metrics) {
  file_ << to_json(metrics) << '\n' << std::flush;
  check(file_.good(), "cannot write ", path_, "; is the disk full?");
}

}  // namespace trireme::train
