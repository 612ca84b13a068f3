#include <trireme/base/check.hpp>
#include <trireme/train/metrics.hpp>

#include <cstdlib>
#include <filesystem>
#include <vector>

namespace trireme::train {

std::string to_json(const Metrics& m) {
  std::string line =
      text("{\"step\": ", m.step, ", \"loss\": ", m.loss, ", \"learning_rate\": ", m.learning_rate,
           ", \"gradient_norm\": ", m.gradient_norm, ", \"tokens\": ", m.tokens,
           ", \"tokens_per_second\": ", m.tokens_per_second, ", \"step_seconds\": ", m.step_seconds,
           ", \"flops_utilization\": ", m.flops_utilization);
  if (m.validation_loss) line += text(", \"validation_loss\": ", *m.validation_loss);
  if (m.bits_per_byte) line += text(", \"bits_per_byte\": ", *m.bits_per_byte);
  return line + "}";
}

namespace {

std::int64_t step_of(const std::string& line) {
  constexpr std::string_view head = "{\"step\": ";
  return line.starts_with(head) ? std::atoll(line.c_str() + head.size()) : -1;
}

std::vector<std::string> lines_up_to(const std::string& path, std::int64_t step) {
  std::vector<std::string> kept;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (const auto s = step_of(line); s >= 0 && s <= step && line.ends_with('}'))
      kept.push_back(line);
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& directory, std::optional<std::int64_t> restored_step)
    : path_(directory + "/metrics.jsonl") {
  std::vector<std::string> kept;
  if (restored_step)
    kept = lines_up_to(path_, *restored_step);
  else if (std::filesystem::exists(path_))
    std::filesystem::rename(path_, directory + "/metrics.previous.jsonl");
  const std::string partial = path_ + ".partial";
  file_.open(partial, std::ios::trunc);
  for (const auto& line : kept) file_ << line << '\n';
  file_.flush();
  check(file_.good(), "cannot write ", partial, "; is the disk full or the folder not writable?");
  std::filesystem::rename(partial, path_);
}

void MetricsFile::write(const Metrics& metrics) {
  file_ << to_json(metrics) << '\n' << std::flush;
  check(file_.good(), "cannot write ", path_, "; is the disk full?");
}

}  // namespace trireme::train
