#include <trireme/architecture/architecture.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/options.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/deck/checks.hpp>
#include <trireme/layout/process_grid.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/lower.hpp>
#include <trireme/schedule/machine.hpp>
#include <trireme/schedule/needs.hpp>
#include <trireme/schedule/validate.hpp>

#include <filesystem>
#include <memory>

namespace trireme::commands {
namespace {

struct CheckOptions {
  std::string deck;
  std::vector<std::string> overrides;
  std::int64_t ranks = 0;
  bool resolved = false;
};

std::string scientific(double number) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3e", number);
  return buffer;
}

void print_schedule(const deck::Config& c, const schedule::Program& program) {
  const auto played = schedule::play(program, schedule::unit_cost);
  say("schedule      ", name_of(c.parallel.schedule), ", ", program.layout.stages(), " stage, ",
      program.layout.micro_batches, " micro-batches per rank and step, idle ",
      fixed(100 * played.timeline.idle_share(), 1), " %, ", schedule::slots_needed(program, 0),
      " micro-batches kept at a time");
}

void print_step(const deck::Config& c, const architecture::Architecture& a) {
  const std::int64_t tokens = c.batch.global * c.model.sequence;
  say("step          ", c.batch.global, " samples, ", with_commas(tokens), " tokens, ",
      scientific(a.model_flops_per_token() * static_cast<double>(tokens)),
      " model FLOPs (6 N + 6 L h s per token, attention causal, recomputation not counted)");
  say("run           ", with_commas(c.run.steps), " steps, ", with_commas(c.run.steps * tokens),
      " tokens");
}

void check_deck(const CheckOptions& options) {
  deck::Deck deck = deck::load_deck(options.deck, options.overrides);
  const deck::ParallelConfig& p = deck.config.parallel;
  const std::int64_t written = p.tensor * p.pipeline * std::max<std::int64_t>(1, p.data);
  deck::resolve_parallel(deck, options.ranks > 0 ? options.ranks : written);
  if (std::filesystem::exists(deck.config.data.train)) {
    const data::TokenFile tokens(deck.config.data.train);
    resolve_vocabulary(deck, &tokens);
  } else {
    resolve_vocabulary(deck, nullptr);
  }
  if (options.resolved) {
    log::line(deck::resolved_toml(deck));
    return;
  }
  const deck::Config& c = deck.config;
  const auto a = architecture::describe(c.model);
  schedule::Program program = schedule::generate(
      p.schedule,
      {static_cast<int>(p.pipeline), static_cast<int>(c.batch.global / c.batch.micro / p.data)});
  schedule::lower(program);
  const auto mistakes = schedule::validate(program);
  check(mistakes.empty(), "the schedule is not valid: ", join(mistakes, "; "));

  say("deck          ", deck.file_name, ": no mistakes");
  say("ranks         ", p.data * p.pipeline * p.tensor, " = data ", p.data, " · pipeline ",
      p.pipeline, " · tensor ", p.tensor);
  say("model         ", name_of(c.model.family), ", ", c.model.layers, " layers, hidden ",
      c.model.hidden, ", ", c.model.heads, " heads of ", c.model.head_size(), ", feed-forward ",
      c.model.feed_forward, ", sequence ", c.model.sequence, ", vocabulary ", c.model.vocabulary,
      ", ", name_of(c.precision.compute));
  say("parameters    ", with_commas(a.parameters()));
  print_schedule(c, program);
  print_step(c, a);
  say("bytes per rank\n",
      plan::table(plan::training_memory(c, a, schedule::slots_needed(program, 0))));
}

}  // namespace

void add_check(CLI::App& app) {
  const auto options = std::make_shared<CheckOptions>();
  CLI::App* command = app.add_subcommand(
      "check", "Resolves a deck for any number of ranks, without MPI or a device");
  add_deck_arguments(*command, options->deck, options->overrides);
  command
      ->add_option("--ranks", options->ranks,
                   "Ranks to check for; default: the product of the deck's axes")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  command->add_flag("--resolved", options->resolved,
                    "Print the deck with every key and its value instead");
  command->footer("Example:\n  trireme check inputs/gpt2_124m.toml --ranks 8 batch.micro=4");
  command->callback([options] { check_deck(*options); });
}

}  // namespace trireme::commands
