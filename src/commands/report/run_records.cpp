#include <trireme/base/text.hpp>
#include <trireme/commands/report/json_lines.hpp>
#include <trireme/commands/report/run_report.hpp>

#include <string_view>

namespace trireme::commands {
namespace {

/// Terms of the training objective beside that of tokens: "pair_loss", "validation_pair_loss".
void add_other_losses(train::Metrics& m, const JsonLine& line) {
  constexpr std::string_view validation = "validation_";
  for (const auto& [key, value] : line.json.items()) {
    if (!key.ends_with("_loss") || key == "validation_loss") continue;
    if (key.starts_with(validation))
      m.other_validation_losses.push_back({key.substr(validation.size()), line.real(key.c_str())});
    else
      m.other_losses.push_back({key, line.real(key.c_str())});
  }
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
  add_other_losses(m, line);
  m.bits_per_byte = line.maybe("bits_per_byte");
  return m;
}

}  // namespace

RunRecords read_records(const std::string& path) {
  RunRecords records;
  records.torn = read_json_lines(path, [&](const JsonLine& line) {
    const train::Metrics record = record_of(line);
    const std::int64_t before = records.steps.empty() ? 0 : records.steps.back().step;
    if (record.step <= before)
      line.fail(text("\"step\" is ", record.step, ", expected more than the ", before, " before"));
    records.steps.push_back(record);
  });
  return records;
}

}  // namespace trireme::commands
