// The command trireme predict: compares predicted with measured steps of a CSV file.
#include <trireme/architecture/architecture.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/check/tables.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/options.hpp>
#include <trireme/commands/plan/measured.hpp>
#include <trireme/plan/machine_file.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/ranks.hpp>
#include <trireme/plan/step_time.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <memory>

namespace trireme::commands {
namespace {

struct PredictOptions {
  std::string rows;
  std::vector<std::string> overrides;
  std::string machine;
  bool json = false;
  bool estimate = false;
};

struct Prediction {
  Seconds seconds = 0;
  double memory = 0;
};

Prediction predict(const MeasuredStep& step, const plan::Machine& machine, bool estimate) {
  const deck::Config& c = step.deck.config;
  const auto a = architecture::describe(c.model);
  const std::string missing = machine.time_mistake(c.precision, c.parallel.ranks());
  check_usage(missing.empty(), machine.file, " does not say ", missing,
              "; times cannot be predicted without them");
  Prediction p;
  if (estimate) {
    const auto parts = plan::part_times(c, a, c.parallel.splits_backward(), machine);
    p.seconds = plan::estimated_seconds(c, plan::step_costs(c, a, parts, machine));
  }
  if (!estimate || step.memory > 0) {
    const schedule::Program program = plan::step_program(c, machine);
    if (!estimate) p.seconds = plan::predict_step(c, a, program, machine).seconds;
    if (step.memory > 0) {
      const auto needs = plan::training_needs({&program, 1});
      const auto ranks = plan::plan_ranks(c, a, needs, machine);
      p.memory = static_cast<double>(plan::device_total(plan::most_memory(ranks).memory));
    }
  }
  return p;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

void predict_rows(const PredictOptions& options) {
  const plan::Machine machine = plan::load_machine(options.machine);
  const auto steps = read_measured(options.rows, options.overrides);
  std::vector<std::vector<std::string>> rows{{"line", "model", "tensor", "pipeline", "data",
                                              "micro", "measured", "predicted", "deviation"}};
  std::vector<double> errors, memory_errors;
  if (std::ranges::any_of(steps, [](const MeasuredStep& step) { return step.memory > 0; }))
    rows.front().insert(rows.front().end(), {"measured GB", "predicted GB", "deviation"});
  auto list = nlohmann::json::array();
  for (const MeasuredStep& step : steps) {
    const Prediction p = predict(step, machine, options.estimate);
    const double error = p.seconds / step.seconds - 1;
    errors.push_back(std::abs(error));
    if (step.memory > 0) memory_errors.push_back(std::abs(p.memory / step.memory - 1));
    const deck::ParallelConfig& l = step.deck.config.parallel;
    rows.push_back({text(step.line), step.label, text(l.tensor), text(l.pipeline), text(l.data),
                    text(step.deck.config.batch.micro), fixed(step.seconds, 3), fixed(p.seconds, 3),
                    percent(error)});
    if (step.memory > 0) {
      for (const double bytes : {step.memory, p.memory})
        rows.back().push_back(fixed(bytes / 1e9, 2));
      rows.back().push_back(percent(p.memory / step.memory - 1));
    }
    list.push_back({{"line", step.line},
                    {"model", step.label},
                    {"measured_seconds", step.seconds},
                    {"predicted_seconds", p.seconds},
                    {"measured_bytes", step.memory},
                    {"predicted_bytes", p.memory}});
  }
  if (options.json) {
    log::line(list.dump());
    return;
  }
  say(columns(rows, 2, ""));
  say("\nabsolute deviation of time: mean ", percent(mean(errors)), ", median ",
      percent(median(errors)));
  if (!memory_errors.empty())
    say("absolute deviation of memory: mean ", percent(mean(memory_errors)), ", median ",
        percent(median(memory_errors)));
}

}  // namespace

void add_predict(CLI::App& app) {
  const auto options = std::make_shared<PredictOptions>();
  CLI::App* command =
      app.add_subcommand("predict", "Compare predicted with measured times of training steps");
  command->add_option("ROWS", options->rows, "CSV file of measured steps; see docs/planning.md")
      ->required()
      ->type_name("");
  command
      ->add_option("OVERRIDES", options->overrides,
                   "Keys of a deck that hold for all rows: section.key=value ...")
      ->type_name("")
      ->option_text("[section.key=value ...]");
  command->add_option("--machine", options->machine, "Machine file on which the steps ran")
      ->required()
      ->type_name("FILE");
  command->add_flag("--json", options->json, "Print the rows as JSON");
  command->add_flag("--estimate", options->estimate,
                    "Estimate by the formula of the search instead of playing the schedule");
  command->footer(
      "Example:\n  trireme predict steps.csv --machine inputs/machines/selene.toml "
      "precision.compute=fp16");
  command->callback([options] { predict_rows(*options); });
}

}  // namespace trireme::commands
