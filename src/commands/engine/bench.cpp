#include <trireme/base/log.hpp>
#include <trireme/commands/bench.hpp>
#include <trireme/commands/engine.hpp>
#include <trireme/io/atomic_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

namespace trireme::commands {
namespace {

struct Section {
  const char* name;
  BenchRows (*measure)(const BenchSetting&);
};

constexpr std::array<Section, 4> sections{{
    {"matmul", bench_matmul},
    {"checkpoint", bench_checkpoint},
    {"background", bench_background},
    {"index", bench_index},
}};

std::vector<Section> chosen(const std::vector<std::string>& names) {
  std::vector<std::string> known;
  std::vector<Section> out;
  for (const Section& section : sections) {
    known.emplace_back(section.name);
    if (names.empty() || std::ranges::find(names, section.name) != names.end())
      out.push_back(section);
  }
  for (const auto& name : names) {
    const bool is_known = std::ranges::find(known, name) != known.end();
    check_usage(is_known, "--only ", name, ": there is no such section; the sections are ",
                join(known, ", "));
  }
  return out;
}

/// Four significant digits.
std::string rounded(double value) {
  if (value == 0) return "0";
  const int digits = 3 - static_cast<int>(std::floor(std::log10(std::abs(value))));
  return digits <= 0 ? with_commas(std::llround(value)) : fixed(value, std::min(digits, 6));
}

std::string table(const BenchRows& rows) {
  std::vector<std::array<std::string, 4>> cells;
  std::array<std::size_t, 4> width{};
  for (const BenchRow& row : rows) {
    cells.push_back({row.section + "." + row.name, rounded(row.quantity),
                     row.unit == "1" ? "" : row.unit, row.convention});
    for (std::size_t c = 0; c < width.size(); ++c)
      width[c] = std::max(width[c], cells.back()[c].size());
  }
  std::string out;
  for (const auto& [name, quantity, unit, convention] : cells)
    out += text(out.empty() ? "" : "\n", name, std::string(width[0] - name.size() + 2, ' '),
                std::string(width[1] - quantity.size(), ' '), quantity, " ", unit,
                std::string(width[2] - unit.size() + 2, ' '), convention);
  return out;
}

std::string to_json(const BenchSetting& setting, const BenchRows& rows) {
  nlohmann::ordered_json json;
  json["format"] = 1;
  json["library"] = "trireme " TRIREME_VERSION;
  json["deck"] = setting.session.deck.file_name;
  json["ranks"] = setting.runtime.ranks();
  json["runtime"] = setting.runtime.description();
  json["rounds"] = setting.rounds;
  json["rows"] = nlohmann::ordered_json::array();
  for (const BenchRow& row : rows)
    json["rows"].push_back({{"section", row.section},
                            {"name", row.name},
                            {"quantity", row.quantity},
                            {"unit", row.unit},
                            {"convention", row.convention}});
  return json.dump(1) + "\n";
}

}  // namespace

ExitCode bench(grid::Runtime& runtime, const BenchOptions& options) {
  std::vector<Section> wanted;
  runtime.together([&] { wanted = chosen(options.only); });
  Session session = open_session(runtime, options.deck, options.overrides, Ranks::as_deck_says);
  session.deck.config.batch.ramp_start = 0;  // steps of the full batch are measured
  std::unique_ptr<io::AtomicFile> file;      // now, so that minutes of work do not end in an error
  runtime.together([&] {
    if (runtime.rank() == 0 && !options.json.empty())
      file = std::make_unique<io::AtomicFile>(options.json);
  });
  say("trireme: ", runtime.description());
  say("deck ", session.deck.file_name, ": ", with_commas(session.architecture.parameters()),
      " parameters; median of ", options.rounds, options.rounds == 1 ? " round" : " rounds");
  const BenchSetting setting{runtime, session, options.rounds};
  BenchRows rows;
  for (const Section& section : wanted) {
    log::progress(text("measuring ", section.name));
    const BenchRows found = section.measure(setting);
    rows.insert(rows.end(), found.begin(), found.end());
  }
  say(table(rows));
  runtime.together([&] {
    if (!file) return;
    const std::string json = to_json(setting, rows);
    file->write(0, json.data(), json.size());
    file->commit();
  });
  expect_output_written(runtime);
  return ExitCode::finished;
}

}  // namespace trireme::commands
