#include <trireme/architecture/architecture.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/check/tables.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/options.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/plan/cost.hpp>
#include <trireme/plan/offload.hpp>
#include <trireme/plan/precision.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/ranks.hpp>
#include <trireme/plan/recompute.hpp>
#include <trireme/plan/stages.hpp>
#include <trireme/plan/transport.hpp>
#include <trireme/schedule/machine.hpp>
#include <trireme/schedule/program.hpp>

#include <algorithm>
#include <memory>

namespace trireme::commands {
namespace {

struct CheckOptions {
  std::string deck;
  std::vector<std::string> overrides;
  std::int64_t ranks = 0;
  bool resolved = false;
  bool layer = false;
};

std::string scientific(double number) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3e", number);
  return buffer;
}

std::string percent(double share) {
  return fixed(100 * share, 1) + " %";
}

double idle_share(const schedule::Program& program, const schedule::Cost& cost) {
  return schedule::play(program, cost).timeline.idle_share();
}

void print_schedule(const deck::Config& c, const schedule::Program& program,
                    const std::vector<plan::StageFlops>& flops,
                    const std::vector<plan::RankPlan>& ranks) {
  const bool file = c.parallel.schedule == ScheduleKind::file;
  say("schedule      ", name_of(c.parallel.schedule), file ? " " + c.parallel.program : "", ", ",
      program.layout.micro_batches, " micro-batches per rank and step");
  if (program.layout.stages() == 1) return;
  say("idle          ", percent(idle_share(program, schedule::unit_cost)),
      " of the time with equal stages (forward 1, each half of backward 1), ",
      percent(idle_share(program, plan::flop_cost(flops))), " with each stage's FLOPs");
  const auto [least, most] = std::ranges::minmax_element(
      ranks, {}, [](const plan::RankPlan& rank) { return rank.needs.slots; });
  say("kept          ",
      least->needs.slots == most->needs.slots ? "" : text(least->needs.slots, " … "),
      most->needs.slots, " saved forward passes of a stage at a time on a rank");
}

/// What the choices of [parallel] recompute cost in memory for activations, side by side.
void print_recompute(deck::Config c, const architecture::Architecture& a,
                     const std::vector<schedule::Needs>& needs) {
  const Recompute chosen = c.parallel.recompute;
  const std::string again = plan::recomputed_text(c.parallel, a.layer);
  std::string choices;
  for (const auto choice :
       {Recompute::none, Recompute::selective, Recompute::full, Recompute::automatic}) {
    if (choice == Recompute::automatic && chosen != choice) continue;
    c.parallel.recompute = choice;
    Bytes bytes = 0;
    const auto ranks = plan::plan_ranks(c, a, needs);
    for (const plan::MemoryRow& row : plan::most_memory(ranks).memory)
      if (row.what == "saved activations" || row.what == "scratch") bytes += row.bytes;
    choices += text(choices.empty() ? "" : ", ", name_of(choice), " ", human_bytes(bytes));
  }
  say("recompute     ", name_of(chosen), again.empty() ? "" : text(" (", again, ")"),
      "; saved activations and scratch with ", choices);
}

void print_grid(const deck::Config& c) {
  const deck::ParallelConfig& p = c.parallel;
  say("ranks         ", p.data * p.pipeline * p.tensor, " = data ", p.data, " · pipeline ",
      p.pipeline, " · tensor ", p.tensor);
  if (p.tensor > 1)
    say("              tensor groups are neighbours: ranks 0 … ", p.tensor - 1,
        p.sequence_parallel ? ", sequence parallel" : "");
}

void print_step(const deck::Config& c, const architecture::Architecture& a) {
  const std::int64_t tokens = c.batch.global * c.model.sequence;
  say("step          ", c.batch.global, " samples, ", with_commas(tokens), " tokens, ",
      scientific(a.model_flops_per_token() * static_cast<double>(tokens)), " model FLOPs (6 N + ",
      c.model.causal() ? "6 L h s per token, attention causal"
                       : "12 L h s per token, attention full",
      c.model.predicts_masked_tokens()
          ? text(", ", c.model.targets(), " of ", c.model.sequence, " tokens predicted")
          : "",
      ", recomputation not counted)");
  const deck::BatchSchedule batches(c.batch);
  say("run           ", with_commas(c.run.steps), " steps, ",
      with_commas(batches.samples(c.run.steps) * c.model.sequence), " tokens");
}

void print_ramp(const deck::Config& c, const std::vector<schedule::Program>& programs) {
  const deck::BatchSchedule batches(c.batch);
  if (programs.size() == 1) return;
  say("batch         grows from ", c.batch.ramp_start, " to ", c.batch.global, " samples by ",
      c.batch.ramp_increment, ", over ", with_commas(c.batch.ramp_samples),
      " samples: ", programs.size(), " sizes with a program each");
  say(ramp_report(batches, programs));
}

void print_report(const deck::Deck& deck) {
  const deck::Config& c = deck.config;
  const auto a = architecture::describe(c.model);
  const auto tensor = static_cast<int>(c.parallel.tensor);
  const std::vector<schedule::Program> programs = plan::step_programs(c);
  const schedule::Program& program = programs.back();
  const std::vector<schedule::Needs> needs = plan::training_needs(programs);
  const auto stage_layers =
      architecture::partition(a, static_cast<int>(c.parallel.pipeline * c.parallel.chunks));
  const auto ranks = plan::plan_ranks(c, a, needs);

  say("deck          ", deck.file_name, ": no mistakes");
  print_grid(c);
  say("model         ", name_of(c.model.family), ", ", c.model.layers, " layers, hidden ",
      c.model.hidden, ", ", c.model.heads, " heads of ", c.model.head_size(),
      c.model.key_value_heads < c.model.heads
          ? text(", ", c.model.key_value_heads, " of keys and values")
          : "",
      ", feed-forward ", c.model.feed_forward, ", sequence ", c.model.sequence, ", vocabulary ",
      c.model.vocabulary, ", ", name_of(c.precision.compute));
  say("parameters    ", with_commas(a.parameters()));
  print_schedule(c, program,
                 plan::stage_flops(a, stage_layers, plan::kept_tensors(c.parallel, a.layer)),
                 ranks);
  print_ramp(c, programs);
  print_step(c, a);
  print_recompute(c, a, needs);
  if (const std::string note = plan::transport_note(c.parallel); !note.empty())
    say("transport     ", note);
  if (c.parallel.offload != Offload::none) say("offload       ", plan::offload_note(c.parallel));
  if (c.precision.tf32) say("tf32          ", plan::tf32_note(c.precision));
  if (const std::string note = plan::attention_note(c.precision); !note.empty())
    say("attention     ", note);
  say("\nstages\n", stages_report(plan::group_stages(a, stage_layers), c.parallel));
  say("\nbytes per rank\n", memory_report(ranks, tensor));
  say("\ncommunication per step of the rank with most\n", traffic_report(ranks, tensor));
}

void check_deck(const CheckOptions& options) {
  const deck::Deck deck = deck_for_ranks(options.deck, options.overrides, options.ranks);
  if (options.resolved) {
    log::line(deck::resolved_toml(deck));
    return;
  }
  if (!options.layer) return print_report(deck);
  const deck::Config& c = deck.config;
  const auto a = architecture::describe(c.model);
  const auto shard = architecture::make_shard(a, static_cast<int>(c.parallel.pipeline),
                                              static_cast<int>(c.parallel.chunks), 0,
                                              static_cast<int>(c.parallel.tensor), 0);
  const auto needs = plan::training_needs(plan::step_programs(c));
  say(layer_report(c, a, shard, needs.front().split_backward));
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
  command->add_flag("--layer", options->layer,
                    "Print the operations of a layer instead: shapes on a rank, what is kept or "
                    "recomputed, messages and FLOPs");
  command->footer("Example:\n  trireme check inputs/gpt2_124m.toml --ranks 8 batch.micro=4");
  command->callback([options] { check_deck(*options); });
}

}  // namespace trireme::commands
