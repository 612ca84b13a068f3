// Reads measured steps from a CSV file: each row becomes a deck.
#include <trireme/commands/plan/measured.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/deck/parallel_checks.hpp>
#include <trireme/plan/text_file.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>

namespace trireme::commands {
namespace {

/// Columns and the deck's keys that they set.
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

  /// Empty if there is no such column, or nothing in it.
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
  /// Keys that a deck needs and that have no effect on a step's time.
  static constexpr const char* required_keys =
      "[run]\ndirectory = \"unused\"\nsteps = 1\n[optimizer]\nlearning_rate = 1e-3\n"
      "[data]\ntrain = \"unused\"\n";

  /// The deck's mistakes, with the row as the place of the keys that it sets.
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

}  // namespace

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

}  // namespace trireme::commands
