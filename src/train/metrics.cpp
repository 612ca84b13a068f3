// Writes metrics.jsonl: one line per step. A restart keeps the lines up to the checkpoint's step.
#include <trireme/train/metrics.hpp>

#include <trireme/base/check.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/input_file.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <sstream>

namespace trireme::train {

namespace {

using Json = nlohmann::ordered_json;

}  // namespace

void move_aside(const std::string& path, const std::string& directory, const char* stem) {
  if (!std::filesystem::exists(path)) return;
  std::string to;
  for (int n = 1; to.empty() || std::filesystem::exists(to); ++n)
    to = text(directory, "/", stem, ".previous-", n, ".jsonl");
  std::filesystem::rename(path, to);
}

std::string to_json(const Metrics& m) {
  Json line{{"step", m.step},
            {"time", m.time},
            {"loss", m.loss},
            {"learning_rate", m.learning_rate},
            {"gradient_norm", m.gradient_norm},
            {"skipped_steps", m.skipped_steps},
            {"global_batch", m.global_batch},
            {"tokens", m.tokens},
            {"tokens_per_second", m.tokens_per_second},
            {"step_seconds", m.step_seconds},
            {"flops_utilization", m.flops_utilization},
            {"peak_bytes", m.peak_bytes}};
  if (m.time.empty()) line.erase("time");
  const auto append = [&line](const char* key, const std::optional<double>& value) {
    if (value) line[key] = *value;
  };
  append("loss_scale", m.loss_scale);
  append("gradient_noise_scale", m.gradient_noise_scale);
  for (const NamedLoss& other : m.other_losses) line[other.name] = other.mean;
  append("validation_loss", m.validation_loss);
  for (const NamedLoss& other : m.other_validation_losses)
    line["validation_" + other.name] = other.mean;
  append("bits_per_byte", m.bits_per_byte);
  if (!m.expert_tokens.empty()) line["expert_tokens"] = m.expert_tokens;
  if (!m.expert_loads.empty()) line["expert_loads"] = m.expert_loads;
  if (!m.dropped_choices.empty()) line["dropped_choices"] = m.dropped_choices;
  return line.dump();
}

std::string to_json(const StepLoss& s) {
  std::string line = text("{\"step\":", s.step);
  const auto append = [&line](const std::string& name, double value) {
    line += text(",\"", name, "\":");
    if (!std::isfinite(value)) {
      line += "null";
      return;
    }
    std::array<char, 32> digits;
    const auto single = static_cast<float>(value);
    char* const end = digits.data() + digits.size();
    const auto written = std::isfinite(single) ? std::to_chars(digits.data(), end, single)
                                               : std::to_chars(digits.data(), end, value);
    line.append(digits.data(), written.ptr);
  };
  append("loss", s.loss);
  if (s.gradient_norm) append("gradient_norm", *s.gradient_norm);
  for (const NamedLoss& other : s.other_losses) append(other.name, other.mean);
  return line + "}";
}

/// The complete lines of the steps up to `step`; also sets last_logged_ and last_kept_.
std::string MetricsFile::lines_up_to(std::int64_t step) {
  std::string kept;
  std::error_code error;  // after an error, reading the file reports the reason
  if (!std::filesystem::exists(path_, error) && !error) return kept;
  std::istringstream in(io::read_text_file(path_, record_limit_bytes));
  for (std::string line; std::getline(in, line);) {
    const Json json = Json::parse(line, nullptr, false);
    const Json its_step = json.is_object() ? json.value("step", Json()) : Json();
    if (!its_step.is_number_integer()) continue;
    const Json time = json.value("time", Json());
    const auto number = its_step.get<std::int64_t>();
    if (json.contains("learning_rate"))  // a logged step
      last_logged_ = {number,
                      time.is_string() ? std::optional(time.get<std::string>()) : std::nullopt};
    if (number > step) continue;
    last_kept_ = last_logged_;
    kept += line + '\n';
  }
  return kept;
}

MetricsFile::MetricsFile(const std::string& directory, std::optional<std::int64_t> restored_step)
    : path_(directory + "/metrics.jsonl") {
  const std::string kept = restored_step ? lines_up_to(*restored_step) : "";
  if (!restored_step) move_aside(path_, directory, "metrics");
  io::replace_file(path_, kept);
  file_.open(path_, std::ios::app);
  check(file_.good(), "cannot write ", path_, "; is the folder writable?");
}

void MetricsFile::write(const Metrics& metrics) {
  append(to_json(metrics) + '\n');
}

void MetricsFile::write(const std::vector<StepLoss>& steps) {
  std::string lines;
  for (const StepLoss& step : steps) lines += to_json(step) + '\n';
  if (!lines.empty()) append(lines);
}

void MetricsFile::append(const std::string& lines) {
  file_ << lines << std::flush;
  check(file_.good(), "cannot write ", path_, "; is the disk full?");
}

}  // namespace trireme::train
