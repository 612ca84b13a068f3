// The command trireme bench: runs the chosen sections in sequence on all ranks, prints a table for
// each, and writes all rows to the JSON file. A section returns a BenchReport.
#include <trireme/commands/bench/bench.hpp>

#include <trireme/base/log.hpp>
#include <trireme/commands/bench/table.hpp>
#include <trireme/commands/engine.hpp>
#include <trireme/io/atomic_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <memory>

namespace trireme::commands {
namespace {

struct Section {
  const char* name;
  BenchReport (*measure)(const BenchSetting&);
};

constexpr std::array<Section, 7> sections{{
    {"bandwidth", bench_bandwidth},
    {"matmul", bench_matmul},
    {"kernels", bench_kernels},
    {"communication", bench_communication},
    {"checkpoint", bench_checkpoint},
    {"background", bench_background},
    {"index", bench_index},
}};

/// With a machine file, the sections that the file needs and the named sections; otherwise the
/// named sections, or all sections if none is named. UsageError for an unknown name.
std::vector<Section> chosen(const std::vector<std::string>& names, bool machine_file) {
  std::vector<std::string> known;
  std::vector<Section> out;
  for (const Section& section : sections) {
    known.emplace_back(section.name);
    if (machine_file ? for_machine_file(section.name) : names.empty()) {
      out.push_back(section);
    } else if (std::ranges::find(names, section.name) != names.end()) {
      out.push_back(section);
    }
  }
  for (const auto& name : names) {
    const bool is_known = std::ranges::find(known, name) != known.end();
    check_usage(is_known, "--only ", name, ": there is no such section; the sections are ",
                join(known, ", "));
  }
  return out;
}

/// Default table of a section: name, quantity, convention.
std::string table_of(const BenchRows& rows) {
  BenchTable table({"", "", ""});
  for (const BenchRow& row : rows)
    table.add({row.name, rounded(row.quantity) + (row.unit == "1" ? "" : " " + row.unit),
               row.convention});
  return table.str();
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

void write(io::AtomicFile& file, const std::string& content) {
  file.write(0, content.data(), content.size());
  file.commit();
}

}  // namespace

ExitCode bench(grid::Runtime& runtime, const BenchOptions& options) {
  std::vector<Section> wanted;
  runtime.together([&] { wanted = chosen(options.only, !options.machine_file.empty()); });
  Session session = open_session(runtime, options.deck, options.overrides, Ranks::as_deck_says);
  runtime.together([&] {
    check_usage(session.config().parallel.context == 1, session.deck.cite("parallel", "context"),
                ": bench measures attention of whole samples; set parallel.context=1");
  });
  session.deck.config.batch.ramp_start = 0;  // steps of the full batch are measured
  // The output files are opened now, because an error after the measurements would waste them.
  std::unique_ptr<io::AtomicFile> file, machine_file;
  runtime.together([&] {
    if (runtime.rank() == 0 && !options.json.empty())
      file = std::make_unique<io::AtomicFile>(options.json);
    if (runtime.rank() == 0 && !options.machine_file.empty())
      machine_file = std::make_unique<io::AtomicFile>(options.machine_file);
  });
  say("trireme: ", runtime.description());
  say("deck ", session.deck.file_name, ": ", with_commas(session.architecture.parameters()),
      " parameters, ", name_of(session.config().precision.compute), ", ", options.rounds,
      options.rounds == 1 ? " round" : " rounds");
  BenchMachine machine;
  const BenchSetting setting{runtime,
                             session,
                             options.rounds,
                             machine,
                             exec_on_host && !options.machine_file.empty(),
                             !options.machine_file.empty()};
  BenchRows rows;
  for (const Section& section : wanted) {
    log::progress(text("measuring ", section.name));
    const BenchReport found = section.measure(setting);
    rows.insert(rows.end(), found.rows.begin(), found.rows.end());
    say("\n== ", section.name, "\n", found.table.empty() ? table_of(found.rows) : found.table);
  }
  const std::string described = options.machine_file.empty() ? "" : machine_file_of(setting);
  runtime.together([&] {
    if (file) write(*file, to_json(setting, rows));
    if (machine_file) write(*machine_file, described);
  });
  if (!described.empty()) say("\nmachine file ", options.machine_file);
  expect_output_written(runtime);
  return ExitCode::finished;
}

}  // namespace trireme::commands
