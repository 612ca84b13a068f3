// Reads the lines of metrics.jsonl and of files of generated texts.
#include <trireme/architecture/objective.hpp>
#include <trireme/base/text.hpp>
#include <trireme/commands/report/json_lines.hpp>
#include <trireme/commands/report/run_report.hpp>

#include <string_view>

namespace trireme::commands {
namespace {

constexpr std::string_view validation = "validation_";

bool names_loss(const std::string& key) {
  return key.ends_with("_loss") || key.find(architecture::further_loss) != std::string::npos;
}

/// Terms of the training objective other than the loss of tokens, such as "pair_loss".
std::vector<train::NamedLoss> other_losses(const JsonLine& line, bool of_validation) {
  std::vector<train::NamedLoss> found;
  for (const auto& [key, value] : line.json.items()) {
    if (!names_loss(key) || key == "validation_loss" ||
        key.starts_with(validation) != of_validation)
      continue;
    found.push_back({of_validation ? key.substr(validation.size()) : key, line.real(key.c_str())});
  }
  return found;
}

/// The values that RunRecords::losses keeps for every step.
train::StepLoss loss_of(const JsonLine& line) {
  return {line.whole("step"), line.real("loss"), other_losses(line, false),
          line.maybe("gradient_norm")};
}

std::vector<double> numbers(const JsonLine& line, const char* key) {
  std::vector<double> found;
  if (const auto list = line.json.find(key); list != line.json.end())
    for (const auto& number : *list)
      if (number.is_number()) found.push_back(number.get<double>());
  return found;
}

train::Metrics record_of(const JsonLine& line) {
  train::Metrics m;
  m.step = line.whole("step");
  if (line.json.contains("time")) m.time = line.string("time");
  m.loss = line.real("loss");
  m.learning_rate = line.real("learning_rate");
  m.gradient_norm = line.real("gradient_norm");
  m.skipped_steps = line.whole("skipped_steps");
  m.global_batch = line.whole("global_batch");
  m.tokens = line.whole("tokens");
  m.tokens_per_second = line.real("tokens_per_second");
  m.step_seconds = line.real("step_seconds");
  m.flops_utilization = line.real("flops_utilization");
  m.peak_bytes = line.whole("peak_bytes");
  m.loss_scale = line.maybe("loss_scale");
  m.gradient_noise_scale = line.maybe("gradient_noise_scale");
  m.validation_loss = line.maybe("validation_loss");
  m.other_losses = other_losses(line, false);
  m.other_validation_losses = other_losses(line, true);
  m.bits_per_byte = line.maybe("bits_per_byte");
  if (const auto layers = line.json.find("expert_tokens"); layers != line.json.end())
    for (const auto& layer : *layers) {
      auto& counts = m.expert_tokens.emplace_back();
      for (const auto& count : layer)
        if (count.is_number_integer()) counts.push_back(count.get<std::int64_t>());
    }
  m.expert_loads = numbers(line, "expert_loads");
  m.dropped_choices = numbers(line, "dropped_choices");
  return m;
}

}  // namespace

RunRecords read_records(const std::string& path) {
  RunRecords records;
  records.torn = read_json_lines(path, [&](const JsonLine& line) {
    const train::StepLoss loss = loss_of(line);
    const std::int64_t before = records.losses.empty() ? 0 : records.losses.back().step;
    if (loss.step <= before)
      line.fail(
          text("\"step\" is ", loss.step, ", expected more than ", before, ", the preceding step"));
    records.losses.push_back(loss);
    if (line.json.contains("learning_rate") || line.json.contains("tokens"))
      records.steps.push_back(record_of(line));
  });
  return records;
}

std::vector<GeneratedText> read_texts(const std::string& path) {
  std::vector<GeneratedText> texts;
  read_json_lines(path, [&](const JsonLine& line) {
    texts.push_back({line.whole("step"), line.string("prompt"), line.string("text")});
    if (!line.json.contains("images")) return;
    texts.back().images = line.json["images"].get<std::vector<std::string>>();
    texts.back().image_fit = line.string("image_fit");
  });
  return texts;
}

}  // namespace trireme::commands
