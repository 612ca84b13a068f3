// `trireme predict`: compares predicted steps with the measured steps of a CSV file.
#include <trireme/architecture/architecture.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/base/text.hpp>
#include <trireme/commands/check/tables.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/options.hpp>
#include <trireme/deck/parallel_checks.hpp>
#include <trireme/plan/machine_file.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/ranks.hpp>
#include <trireme/plan/step_time.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

namespace trireme::commands {
namespace {

/// A measured training step, of Trireme or of another program.
struct MeasuredStep {
  std::string label;  ///< label of the model
  deck::Deck deck;    ///< model, layout and batch; its axes are resolved
  Seconds seconds = 0;
  double memory = 0;  ///< bytes of a rank; 0: not measured
  int line = 0;       ///< line of the file
};

/// A column and the key of the deck that it sets.
struct Column {
  const char* name;
  const char* key;
  bool required;
};
constexpr Column columns_of_model[]{{"layers", "model.layers", true},
                                    {"hidden", "model.hidden", true},
                                    {"heads", "model.heads", true},
                                    {"sequence", "model.sequence", true},
                                    {"vocabulary", "model.vocabulary", true},
                                    {"key_value_heads", "model.key_value_heads", false},
                                    {"feed_forward", "model.feed_forward", false},
                                    {"tensor", "parallel.tensor", true},
                                    {"pipeline", "parallel.pipeline", true},
                                    {"data", "parallel.data", true},
                                    {"chunks", "parallel.chunks", false},
                                    {"micro", "batch.micro", true},
                                    {"global_batch", "batch.global", true}};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    if (c == ',')
      cells.emplace_back();
    else if (c != '\r')
      cells.back() += c;
  }
  return cells;
}

class Row {
 public:
  Row(const std::vector<std::string>& header, std::vector<std::string> cells, std::string place)
      : header_(header), cells_(std::move(cells)), place_(std::move(place)) {
    check_usage(cells_.size() == header_.size(), place_, ": ", cells_.size(),
                " cells, but the first line names ", header_.size(), " columns");
  }

  /// Value of a column; empty if the column or its value is missing.
  std::string at(const std::string& name) const {
    const auto found = std::ranges::find(header_, name);
    return found == header_.end() ? "" : cells_[static_cast<std::size_t>(found - header_.begin())];
  }
  double number(const std::string& name) const {
    const std::string cell = at(name);
    double value = 0;
    const auto result = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    check_usage(result.ec == std::errc{} && result.ptr == cell.data() + cell.size() && value > 0 &&
                    std::isfinite(value),
                place_, ": ", name, ": expected a number above 0, found \"", cell, "\"");
    return value;
  }

  MeasuredStep step(const std::vector<std::string>& overrides) const {
    MeasuredStep step;
    step.label = at("model");
    std::vector<std::string> keys;
    if (const std::string family = step.label.substr(0, step.label.find('_'));
        parse<Family>(family))
      keys = {"model.family=" + family};
    for (const Column& column : columns_of_model)
      if (const std::string cell = at(column.name); !cell.empty())
        keys.push_back(text(column.key, "=", cell));
      else
        check_usage(!column.required, place_, ": ", column.name, " is missing");
    for (const char* name : {"schedule", "recompute"})
      if (const std::string cell = at(name); !cell.empty())
        keys.push_back(text("parallel.", name, "=", cell));
    if (at("sequence_parallel") == "1" && at("tensor") != "1")
      keys.push_back("parallel.sequence_parallel=true");
    if (const std::string stage = at("zero_stage"); stage == "1" || stage == "2" || stage == "3")
      keys.push_back(
          text("parallel.shard=", names<Sharding>()[static_cast<std::size_t>(stage[0] - '0')]));
    for (const std::string& name : header_)
      if (name.find('.') != std::string::npos && !at(name).empty())
        keys.push_back(text(name, "=", at(name)));
    try {
      std::vector<std::string> all = keys;
      all.insert(all.end(), overrides.begin(), overrides.end());
      step.deck = deck::parse_deck(required_keys, place_, all);
      const deck::ParallelConfig& p = step.deck.config.parallel;
      deck::resolve_parallel(step.deck, p.ranks());
    } catch (const UsageError& error) {
      throw UsageError(with_place(error.what(), keys, overrides));
    }
    step.seconds = number("step_ms") / 1000;
    if (!at("memory_gb").empty()) step.memory = number("memory_gb") * 1e9;
    return step;
  }

 private:
  /// Keys that a deck needs but that have no effect on a step's time.
  static constexpr const char* required_keys =
      "[run]\ndirectory = \"unused\"\nsteps = 1\n[optimizer]\nlearning_rate = 1e-3\n"
      "[data]\ntrain = \"unused\"\n";

  /// The deck's mistakes, with the row as the place of the keys that the row sets.
  std::string with_place(std::string mistakes, const std::vector<std::string>& keys,
                         const std::vector<std::string>& overrides) const {
    const auto name_of = [](const std::string& key) { return key.substr(0, key.find('=')); };
    const std::string words = "command line";
    for (const std::string& key : keys) {
      const std::string name = name_of(key);
      if (std::ranges::find(overrides, name, name_of) != overrides.end()) continue;
      const std::size_t dot = name.find('.');
      const std::string cited = text("[", name.substr(0, dot), "] ", name.substr(dot + 1), " = ");
      for (const std::string& before : {text(words, ": ", name, "="), cited})
        for (std::size_t at = mistakes.find(before); at != std::string::npos;
             at = mistakes.find(before, at + 1)) {
          const std::size_t place = before == cited ? mistakes.find(" (", at) + 2 : at;
          if (mistakes.compare(place, words.size(), words) == 0)
            mistakes.replace(place, words.size(), place_);
        }
    }
    return mistakes;
  }

  const std::vector<std::string>& header_;
  std::vector<std::string> cells_;
  std::string place_;
};

/// Reads a CSV file whose first line names the columns: columns_of_model, step_ms, and optionally
/// model, schedule, recompute, sequence_parallel, zero_stage (0 to 3), memory_gb (10⁹ bytes) and
/// keys such as model.tied_embeddings. `overrides` apply to all rows. UsageError for mistakes.
std::vector<MeasuredStep> read_measured(const std::string& path,
                                        const std::vector<std::string>& overrides) {
  std::istringstream in(plan::read_text_file(path, path));
  std::vector<MeasuredStep> steps;
  std::vector<std::string> header;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty() || line == "\r" || line.front() == '#') continue;
    if (header.empty()) {
      header = cells_of(line);
      continue;
    }
    steps.push_back(Row(header, cells_of(line), text(path, ":", number)).step(overrides));
    steps.back().line = number;
  }
  check_usage(!steps.empty(), path,
              " has no rows; its first line names the columns, and each "
              "other line is a measured step");
  return steps;
}

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
  check_usage(missing.empty(), machine.file, " does not set ", missing,
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
                    "Estimate by the formula of the search instead of simulating the schedule");
  command->footer(
      "Example:\n  trireme predict steps.csv --machine inputs/machines/selene.toml "
      "precision.compute=fp16");
  command->callback([options] { predict_rows(*options); });
}

}  // namespace trireme::commands
