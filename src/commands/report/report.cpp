// `trireme report`: writes an HTML file about a run, or a comparison of several runs.
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/manifest.hpp>
#include <trireme/commands/drawing.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/options.hpp>
#include <trireme/commands/report/run_report.hpp>
#include <trireme/deck/parallel_checks.hpp>
#include <trireme/installation/this_installation.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/plan/machine_file.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>

namespace trireme::commands {
namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::vector<std::string> runs;
  std::string output;
};

constexpr std::size_t boxes_of_timeline = 1000;  // limits the size of a page
constexpr std::size_t most_runs = 8;             // number of colours for runs

void expect_run(const std::string& run) {
  check_usage(fs::exists(run), run, ": no such folder; give the [run] directory of a deck");
  check_usage(fs::is_directory(run), run, " is a file; give the [run] directory of a deck");
  check_usage(
      fs::exists(run + "/deck.toml"), run,
      " is not the folder of a run, because it has no deck.toml; give the [run] directory of "
      "a deck, where `trireme train` writes deck.toml, metrics.jsonl and events.jsonl");
}

RunRecords records_of(RunReport& report) {
  const std::string path = report.folder + "/metrics.jsonl";
  if (!fs::exists(path)) {
    report.notes.push_back("There is no metrics.jsonl: the run has not logged a step.");
    return {};
  }
  RunRecords records = read_records(path);
  if (records.torn)
    report.notes.push_back("The last line of metrics.jsonl is incomplete and was ignored.");
  return records;
}

/// The texts of all files texts*.jsonl, except the files of earlier runs.
std::vector<GeneratedText> texts_of(const std::string& folder) {
  std::vector<std::string> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (const std::string name = entry.path().filename().string();
        name.starts_with("texts") && name.ends_with(".jsonl") &&
        name.find(".previous-") == std::string::npos)
      paths.push_back(folder + "/" + name);
  std::ranges::sort(paths);
  std::vector<GeneratedText> all;
  for (const std::string& path : paths)
    for (GeneratedText& one : read_texts(path)) all.push_back(std::move(one));
  return all;
}

std::vector<EarlierRun> earlier_runs(const std::string& folder) {
  std::vector<EarlierRun> runs;
  for (int n = 1;; ++n) {
    const std::string name = text("metrics.previous-", n, ".jsonl");
    if (!fs::exists(folder + "/" + name)) return runs;
    runs.push_back({name, read_records(folder + "/" + name)});
  }
}

std::optional<RunHistory> history_of(RunReport& report) {
  const std::string path = report.folder + "/events.jsonl";
  if (!fs::exists(path)) {
    report.notes.push_back(
        "This run has no events.jsonl, so its jobs, restarts and warnings are not known.");
    return std::nullopt;
  }
  const RunEvents found = read_events(path);
  if (found.torn)
    report.notes.push_back("The last line of events.jsonl is incomplete and was ignored.");
  const auto& steps = report.records.steps;
  return run_history(found.events, steps.empty() ? 0 : steps.back().step,
                     steps.empty() ? std::nullopt : parse_utc(steps.back().time));
}

/// The checkpoint directory. If the deck has run.directory/checkpoints, the folder of the report
/// replaces run.directory, because the run's folder may have been moved.
std::string checkpoint_folder(const RunReport& report) {
  const deck::Config& c = report.deck.config;
  const std::string beside = c.run.directory + "/checkpoints";
  return c.checkpoint.directory == beside ? report.folder + "/checkpoints" : c.checkpoint.directory;
}

std::vector<SavedModel> checkpoints_in(const std::string& folder) {
  std::vector<SavedModel> found;
  for (const std::string& name : checkpoint::folders_in(folder)) {
    SavedModel saved{name, checkpoint::step_of(name).value_or(0), 0, 0, "", ""};
    try {
      const checkpoint::Manifest manifest = checkpoint::read_manifest(folder + "/" + name);
      saved.samples = manifest.samples;
      saved.bytes = manifest.bytes();
      saved.layout = manifest.layout;
    } catch (const Error& error) {
      saved.damage = error.what();
    }
    found.push_back(std::move(saved));
  }
  std::ranges::reverse(found);
  return found;
}

void add_timeline(RunReport& report) {
  const deck::ParallelConfig& p = report.deck.config.parallel;
  if (p.reads_program() && !fs::exists(p.program)) {
    report.timeline_words =
        text("Not drawn: the deck's program ", p.program,
             " does not exist; paths are relative to the folder where the run was started.");
    return;
  }
  const Drawing drawing = make_drawing(report.deck, installation::this_machine(),
                                       report.folder + "/timeline.jsonl", /*must_fit=*/false);
  if (!drawing.warning.empty()) report.notes.push_back(drawing.warning);
  schedule::DrawOptions options = drawing.options();
  options.boxes = boxes_of_timeline;
  report.timeline_svg = schedule::svg(drawing.predicted, options);
  report.timeline_words =
      text("A training step: ", drawing.idle(), ".",
           drawing.measured ? "" : " A run with run.timeline=true measures it too.");
}

/// Reads the parts of a report that are also shown in comparisons.
RunReport read_run(const std::string& folder) {
  expect_run(folder);
  RunReport report;
  report.folder = folder;
  while (report.folder.size() > 1 && report.folder.ends_with('/')) report.folder.pop_back();
  report.deck = deck::load_deck(report.folder + "/deck.toml");
  const deck::ParallelConfig& p = report.deck.config.parallel;
  if (p.layout == LayoutMode::given)  // as in all decks that runs write
    deck::resolve_parallel(report.deck, std::max<std::int64_t>(1, p.ranks()));
  report.records = records_of(report);
  report.history = history_of(report);
  if (report.history) {
    const std::string used = report.folder + "/usage.jsonl";
    report.usage = run_usage(*report.history,
                             fs::exists(used) ? read_used_parts(used) : std::vector<JobUsage>{});
  }
  return report;
}

std::string page_of_run(RunReport& report) {
  const std::string deck_path = report.folder + "/deck.toml";
  report.deck_toml = plan::read_text_file(deck_path, deck_path);
  report.earlier = earlier_runs(report.folder);
  report.texts = texts_of(report.folder);
  report.checkpoint_folder = checkpoint_folder(report);
  report.checkpoints = checkpoints_in(report.checkpoint_folder);
  add_timeline(report);
  return report_page(report);
}

void write_report(const ReportOptions& options) {
  check_usage(options.runs.size() <= most_runs, "report: ", options.runs.size(),
              " runs are too many for one page; give at most ", most_runs);
  check_usage(options.runs.size() == 1 || !options.output.empty(),
              "report: a page of several runs needs a file; give it with -o FILE");
  std::vector<RunReport> runs;
  for (const std::string& folder : options.runs) runs.push_back(read_run(folder));
  const std::string page = runs.size() == 1 ? page_of_run(runs.front()) : comparison_page(runs);
  const std::string path =
      options.output.empty() ? runs.front().folder + "/report.html" : options.output;
  if (!is_first_process()) return;
  io::write_output(path, page, "; choose another file with -o");
  std::size_t steps = 0;
  for (const RunReport& run : runs) steps += run.records.steps.size();
  say(path, ": ", human_bytes(std::ssize(page)), ", ", steps, " logged steps",
      runs.size() == 1 ? "" : text(" of ", runs.size(), " runs"));
}

}  // namespace

void add_report(CLI::App& app) {
  const auto options = std::make_shared<ReportOptions>();
  CLI::App* command = app.add_subcommand(
      "report", "Write one HTML file about a run, or about several runs in comparison");
  command
      ->add_option("RUN", options->runs,
                   "Folder of a run: the [run] directory of its deck. With several runs, their "
                   "curves are drawn over one another")
      ->required()
      ->type_name("");
  command
      ->add_option("-o,--output", options->output,
                   "File to write; default for one run: RUN/report.html")
      ->type_name("FILE");
  command->footer(
      "Examples:\n  trireme report runs/tiny -o tiny.html\n  trireme report runs/a runs/b -o "
      "compared.html");
  command->callback([options] { write_report(*options); });
}

}  // namespace trireme::commands
