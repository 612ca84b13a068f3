// `trireme plan`: searches for the layout with the shortest step.
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/options.hpp>
#include <trireme/commands/plan/plan_report.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/deck/checks.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/deck/parallel_checks.hpp>
#include <trireme/installation/this_installation.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/plan/choices.hpp>
#include <trireme/plan/machine_file.hpp>
#include <trireme/plan/recompute.hpp>

#include <CLI/CLI.hpp>

#include <cmath>
#include <memory>
#include <set>

namespace trireme::commands {
namespace {

struct PlanOptions {
  std::string deck;
  std::vector<std::string> overrides;
  std::int64_t ranks = 0;
  std::string machine;
  std::size_t top = 5;
  Bytes memory_limit = 0;
  std::string json;
  std::string html;
};

std::string name_in(const std::string& override_text) {
  return override_text.substr(0, override_text.find('='));
}

bool is_layout_key(const std::string& name) {
  return std::ranges::any_of(deck::layout_keys(),
                             [&](const deck::Key* key) { return key->full_name() == name; });
}

/// Overrides of the layout keys outside `fixed`, which do not contradict `overrides`.
std::vector<std::string> open_values(const std::set<std::string>& fixed,
                                     const std::vector<std::string>& overrides) {
  std::string schedule = "1f1b", chunks = "1";
  for (const std::string& o : overrides) {
    const std::string value = o.substr(std::min(o.size(), o.find('=') + 1));
    if (name_in(o) == "parallel.chunks" && value != "1") schedule = "interleaved";
    const auto kind = parse<ScheduleKind>(value);
    if (name_in(o) == "parallel.schedule" && kind)
      chunks = std::to_string(schedule::schedule_of(*kind).least_chunks);
  }
  std::vector<std::string> values;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!fixed.contains(name)) values.push_back(name + "=" + value);
  };
  add("parallel.layout", "given");
  add("parallel.tensor", "1");
  add("parallel.pipeline", "1");
  add("parallel.data", "0");
  add("parallel.schedule", schedule);
  add("parallel.chunks", chunks);
  add("parallel.program", "");
  add("parallel.placement", "auto");
  add("parallel.sequence_parallel", "false");
  add("parallel.recompute", "none");
  add("parallel.shard", "none");
  add("parallel.shard_group", "0");
  add("parallel.expert", "1");
  add("parallel.strategy", "all_reduce");
  add("parallel.servers", "1");
  add("parallel.staleness", "0");
  add("parallel.updates", "step");
  add("parallel.replay", "");
  add("batch.micro", "1");
  return values;
}

/// The deck of the search. The command line and, if `chooses` (layout = "auto"), the deck's file
/// fix keys of the layout.
deck::Deck deck_to_search(const PlanOptions& options, bool chooses) {
  if (chooses) return deck::load_deck(options.deck, options.overrides);
  std::set<std::string> fixed;
  for (const std::string& o : options.overrides) fixed.insert(name_in(o));
  std::vector<std::string> overrides = open_values(fixed, options.overrides);
  overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());
  deck::Deck deck = deck::load_deck(options.deck, overrides);
  for (const deck::Key* key : deck::layout_keys())
    if (!fixed.contains(key->full_name())) deck.places.erase(key->full_name());
  deck.config.parallel.layout = LayoutMode::automatic;
  deck.places["parallel.layout"] = "trireme plan";
  return deck;
}

void check_fixed(const deck::Deck& deck) {
  const deck::ParallelConfig& p = deck.config.parallel;
  check_usage(!p.reads_program(), deck.cite("parallel", "schedule"),
              " cannot be planned, because a program file has a fixed number of stages and "
              "micro-batches; leave it out");
  check_usage(!p.searches_program(), deck.cite("parallel", "schedule"),
              " cannot be planned, because the plan compares named schedules; leave it out");
  check_usage(p.workers == 1, deck.cite("local", "workers"),
              " cannot be planned, because the plan compares layouts of one model; plan for the "
              "ranks of a worker with local.workers=1 and its part of batch.global");
  check_usage(
      !p.has_servers(), deck.cite("parallel", "strategy"),
      " cannot be planned, because the plan compares layouts with all-reduce; leave it out");
  const std::vector<std::string> mistakes = deck::layout_mistakes(deck);
  check_usage(mistakes.empty(), join(mistakes, "\n"));
}

/// Sets the machine from the file `given` or [parallel] machine, or else from this installation.
void set_machine(PlanReport& report, const std::string& given) {
  const std::string& file = given.empty() ? report.deck.config.parallel.machine : given;
  if (file.empty()) {
    report.machine = plan::with_usual_speeds(installation::this_machine());
    report.assumption =
        "typical of this kind of device: they compare layouts, and do not predict this machine's "
        "times; give --machine FILE, which `trireme bench DECK --machine-file FILE` writes";
    return;
  }
  report.machine = plan::load_machine(file);
  const std::string missing =
      report.machine.time_mistake(report.deck.config.precision, report.ranks);
  check_usage(missing.empty(), report.machine.called(), " does not give ", missing,
              ", without which times cannot be predicted; add what is missing, which `trireme "
              "help machine` explains, or measure it by `trireme bench DECK --machine-file FILE`");
}

/// Simulates the layout that the deck's file describes, or sets own_problem.
void add_own(PlanReport& report, const PlanOptions& options) {
  std::vector<std::string> others;
  for (const std::string& o : options.overrides)
    if (!is_layout_key(name_in(o))) others.push_back(o);
  try {
    deck::Deck own = deck::load_deck(options.deck, others);
    if (own.config.parallel.has_servers()) return;  // times with servers are not predicted
    own.config.model.vocabulary = report.deck.config.model.vocabulary;
    deck::resolve_parallel(own, report.ranks);
    plan::resolve_recompute(own, report.machine);
    const bool arrays_only =
        plan::memory_limit(own.config.parallel, report.machine, options.memory_limit).arrays_only;
    report.own = plan::simulate_layout(own.config, report.machine, arrays_only);
  } catch (const UsageError& error) {
    report.own_problem = text("cannot be used: ", error.what());
  }
}

void plan_deck(const PlanOptions& options) {
  PlanReport report;
  report.ranks = options.ranks;
  report.top = options.top;
  const auto last_layout = [&] {
    std::string mode;
    for (const std::string& o : options.overrides)
      if (name_in(o) == "parallel.layout") mode = o;
    return mode;
  }();
  bool chooses = last_layout == "parallel.layout=auto";
  if (last_layout.empty()) {
    try {
      chooses = deck::load_deck(options.deck, options.overrides).config.parallel.layout ==
                LayoutMode::automatic;
    } catch (const UsageError&) {
      chooses = false;  // deck_to_search() reports the error, unless it concerns open keys
    }
  }
  report.deck = deck_to_search(options, chooses);
  check_fixed(report.deck);
  set_machine(report, options.machine);
  plan::expect_available(report.deck, report.machine);
  resolve_data(report.deck, !options.machine.empty());
  report.found = plan::search_layouts(report.deck, options.ranks, report.machine,
                                      {.memory_limit = options.memory_limit});
  if (!chooses) add_own(report, options);
  say(plan_text(report));
  if (!options.json.empty())
    io::write_output(options.json, plan_json(report), "; choose another file");
  if (!options.html.empty())
    io::write_output(options.html, plan_page(report), "; choose another file");
}

}  // namespace

void add_plan(CLI::App& app) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App* command =
      app.add_subcommand("plan", "Find the fastest layout of a deck for a number of ranks");
  command
      ->add_option("DECK", options->deck, "Input deck (TOML); `trireme help deck` lists its keys")
      ->required()
      ->type_name("");
  command
      ->add_option("OVERRIDES", options->overrides,
                   "Keys of the deck to override; the search keeps the values of overridden keys: "
                   "section.key=value ...")
      ->type_name("")
      ->option_text("[section.key=value ...]");
  command->add_option("--ranks", options->ranks, "Number of ranks")
      ->required()
      ->check(CLI::Range(std::int64_t{1}, deck::ranks_limit));
  command
      ->add_option(
          "--machine", options->machine,
          "Machine file with speeds (TOML; `trireme help machine` lists its keys); default: the "
          "deck's parallel.machine, or typical speeds")
      ->type_name("FILE");
  command->add_option("--top", options->top, "Number of layouts to print")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1}, std::size_t{50}));
  command
      ->add_option("--memory-limit", options->memory_limit,
                   "Bytes that a rank may use, such as 75GB; default: the deck's memory_limit, or "
                   "the machine's memory")
      ->type_name("BYTES")
      ->transform(CLI::AsSizeValue(true));
  command->add_option("--json", options->json, "Output file for the layouts as JSON")
      ->type_name("FILE");
  command->add_option("--html", options->html, "Output file for a page with charts")
      ->type_name("FILE");
  command->footer(
      "Examples:\n  trireme plan inputs/gpt2_124m.toml --ranks 16 --machine "
      "inputs/machines/h100.toml precision.compute=bf16\n  trireme plan inputs/gpt_1t.toml --ranks "
      "3072 --machine inputs/machines/selene.toml precision.compute=fp16 parallel.tensor=8");
  command->callback([options] { plan_deck(*options); });
}

}  // namespace trireme::commands
