// `trireme check`: resolves a deck for a number of ranks on a machine and prints the plan.
#include <trireme/architecture/architecture.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/check/tables.hpp>
#include <trireme/commands/check/time.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/images.hpp>
#include <trireme/commands/options.hpp>
#include <trireme/commands/prompts.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/deck/checks.hpp>
#include <trireme/installation/this_installation.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/plan/choices.hpp>
#include <trireme/plan/cost.hpp>
#include <trireme/plan/machine_file.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/ranks.hpp>
#include <trireme/plan/recompute.hpp>
#include <trireme/plan/search.hpp>
#include <trireme/plan/stages.hpp>
#include <trireme/plan/typed_sizes.hpp>
#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/lower.hpp>
#include <trireme/schedule/machine.hpp>
#include <trireme/schedule/program.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <optional>

namespace trireme::commands {
namespace {

struct CheckOptions {
  std::string deck;
  std::vector<std::string> overrides;
  std::int64_t ranks = 0;
  std::string machine;  ///< file; "": this installation
  bool resolved = false;
  bool layer = false;
  std::string json;  ///< file, or "-" for standard output
  bool must_fit = false;
};

std::string scientific(double number) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3e", number);
  return buffer;
}

double idle_share(const schedule::Program& program, const schedule::Cost& cost) {
  return schedule::simulate(program, cost).timeline.idle_share();
}

int most_logits_slots(const std::vector<plan::RankPlan>& ranks) {
  int most = 0;
  for (const plan::RankPlan& rank : ranks) most = std::max(most, rank.needs.logits_slots);
  return most;
}

/// Idle share with equal stages, without the passes of a shared vocabulary.
double idle_share_of_equal_stages(const deck::Config& c, const schedule::Program& program) {
  if (!program.layout.shares_vocabulary) return idle_share(program, schedule::unit_cost);
  schedule::ProgramLayout layout = program.layout;
  layout.shares_vocabulary = false;
  schedule::Program stages = schedule::generate(c.parallel.schedule, layout);
  schedule::lower(stages);
  return idle_share(stages, schedule::unit_cost);
}

void print_schedule(const deck::Config& c, const schedule::Program& program,
                    const std::vector<plan::StageFlops>& flops,
                    const std::vector<plan::RankPlan>& ranks) {
  const bool file = c.parallel.reads_program();
  say("schedule      ", name_of(c.parallel.schedule), file ? " " + c.parallel.program : "", ", ",
      program.layout.micro_batches,
      program.layout.micro_batches == 1 ? " micro-batch" : " micro-batches", " per rank and step");
  if (program.layout.stages() == 1) return;
  say("idle          ", percent(idle_share_of_equal_stages(c, program)),
      " of the time with equal stages (forward 1, each half of backward 1), ",
      percent(idle_share(program, plan::flop_cost(flops))), " with each stage's FLOPs");
  const auto [least, most] = std::ranges::minmax_element(
      ranks, {}, [](const plan::RankPlan& rank) { return rank.needs.slots; });
  if (program.layout.shares_vocabulary)
    say("vocabulary    divided among all ", c.parallel.vocabulary_parts(),
        " pipeline and tensor ranks; at most ", most_logits_slots(ranks),
        " micro-batches wait for the gradient of the output table");
  say("in flight     ",
      least->needs.slots == most->needs.slots ? "" : text(least->needs.slots, " … "),
      most->needs.slots, " forward passes per rank, each of one micro-batch through one stage");
}

/// Prints the memory for saved activations and scratch with the choices of [parallel] recompute.
void print_recompute(deck::Config c, const architecture::Architecture& a,
                     std::vector<plan::RankPlan> ranks, const plan::Machine& machine) {
  const Recompute chosen = c.parallel.recompute;
  const std::string again = plan::recomputed_text(c.parallel, a);
  std::string choices;
  plan::KnownParts known;
  for (const auto choice :
       {Recompute::none, Recompute::selective, Recompute::full, Recompute::automatic}) {
    if (choice == Recompute::automatic && chosen != choice) continue;
    c.parallel.recompute = choice;
    Bytes bytes = 0;
    plan::replan_memory(ranks, c, a, machine, known);
    for (const plan::MemoryRow& row : plan::most_memory(ranks).memory)
      if (row.what == "saved activations" || row.what == "scratch") bytes += row.bytes;
    choices += text(choices.empty() ? "" : ", ", human_bytes(bytes), " with ", name_of(choice));
  }
  say("recompute     ", name_of(chosen), again.empty() ? "" : text(" (", again, ")"),
      "; saved activations and scratch: ", choices);
}

/// Prints the machine if it was read from a machine file.
void print_machine(const deck::ParallelConfig& p, const plan::Machine& machine) {
  if (machine.file.empty()) return;
  const std::int64_t ranks = p.ranks();
  const std::int64_t each = machine.node.devices;
  const std::int64_t nodes = each == 0 ? 0 : (ranks + each - 1) / each;
  say("machine       ", machine.called(), ": ", name_of(machine.device.kind), ", ",
      human_bytes(machine.device.memory), " per rank",
      each == 0 ? "" : text(", ", nodes, nodes == 1 ? " node of " : " nodes of ", each, " ranks"));
  const plan::Machine::Software& s = machine.software;
  say("              products ", name_of(s.products), ", attention ", name_of(s.attention),
      ", transport ", name_of(s.transport));
}

void print_grid(const deck::Config& c) {
  const deck::ParallelConfig& p = c.parallel;
  const layout::AxisList axes = p.axes();
  say("ranks         ", axes.ranks(), " = ", axes.named_sizes());
  if (p.has_servers())
    say("              of the data axis, ", p.data, p.data == 1 ? " is a worker" : " are workers",
        " and ", p.servers, p.servers == 1 ? " is a server" : " are servers",
        p.staleness > 0 ? text("; weights lack at most ", p.staleness, " steps' updates") : "",
        p.updates == ServerUpdates::push ? "; every worker's gradients are an update" : "");
  if (p.context > 1) {
    const std::int64_t tokens = layout::split(c.model.sequence, p.context, 0).extent;
    say("              context groups share the ", with_commas(c.model.sequence),
        " tokens of a sample, at most ", with_commas(tokens), " on each rank, ",
        axes.stride(Axis::context) == 1 ? "as consecutive ranks"
                                        : text("on ranks ", axes.stride(Axis::context), " apart"));
  }
  if (p.tensor == 1) return;
  const std::int64_t stride = axes.stride(Axis::tensor);
  const std::string second = stride == 1 ? "" : text(stride, p.tensor > 2 ? ", " : "");
  say("              tensor groups are ",
      stride == 1 ? "consecutive ranks: 0 … " : text("ranks ", stride, " apart: 0, ", second),
      p.tensor == 2 && stride > 1 ? "" : text(stride == 1 ? "" : "… ", (p.tensor - 1) * stride),
      p.sequence_parallel ? ", sequence parallel" : "");
}

/// ", feed-forward 768", ", 8 experts of 384, 2 active", or both with the number of layers.
std::string feed_forward_text(const deck::ModelConfig& m) {
  const deck::ExpertsConfig& e = m.experts;
  std::int64_t layers = 0;
  for (std::int64_t layer = 0; layer < m.layers; ++layer) layers += e.in_layer(layer);
  const std::string dense = text(", feed-forward ", m.feed_forward);
  if (layers == 0) return dense;
  const std::string experts =
      text(", ", e.number, " experts of ", e.feed_forward, ", ", e.active, " active");
  return layers == m.layers ? experts : text(dense, experts, ", in ", layers, " layers");
}

/// Prints the experts of a rank, and the rows of their products.
void print_experts(const deck::Config& c, const plan::Plan& plan, const plan::Machine& machine) {
  const deck::ExpertsConfig& e = c.model.experts;
  const deck::ParallelConfig& p = c.parallel;
  if (!e.present()) return;
  const architecture::RankSizes sizes =
      plan::typed_sizes(c, architecture::make_shard(plan.architecture, p, 0, 0), machine);
  const architecture::Rows routed =
      architecture::rows_of_experts(architecture::Rows::routed, c.model);
  const std::int64_t tensor = e.split ? 1 : p.tensor, ranks = p.expert * tensor;
  const std::int64_t here = held(routed.experts, sizes);
  say("experts       ",
      ranks == 1 ? text("all ", e.number, " on each rank")
                 : text(e.number % ranks == 0 ? "" : "at most ", here, " of ", e.number,
                        " on each rank: ", p.expert > 1 ? text(p.expert, " replicas") : "",
                        p.expert > 1 && tensor > 1 ? " · " : "",
                        tensor > 1 ? text(tensor, " tensor ranks") : "", " divide them"),
      e.split && p.tensor > 1 ? text(", each split among ", p.tensor, " tensor ranks") : "",
      "; rows in a layer's experts per micro-batch: ", with_commas(rows_of(routed, sizes)),
      " at most, ", with_commas(mean_rows_of(routed, sizes)), " on average",
      e.has_rounds()
          ? text(", ",
                 with_commas(rows_of(
                     architecture::rows_of_experts(architecture::Rows::round, c.model), sizes)),
                 " at a time")
          : "");
}

void print_step(const deck::Config& c, const architecture::Architecture& a) {
  const std::int64_t tokens = c.batch.global * c.model.sequence;
  say("step          ", c.batch.global, " samples, ", with_commas(tokens), " tokens, ",
      scientific(a.model_flops_per_token() * static_cast<double>(tokens)), " model FLOPs (6 N + ",
      c.model.encoder.present() ? "attention, per token of a target"
      : c.model.causal()        ? "6 L h s per token, attention causal"
                                : "12 L h s per token, attention full",
      a.frozen_products() > 0 ? ", less 2 per frozen weight" : "",
      c.model.predicts_masked_tokens()
          ? text(", ", c.model.targets(), " of ", c.model.sequence, " tokens predicted")
          : "",
      ", recomputation not counted)");
  const deck::BatchSchedule batches(c.batch);
  say("run           ", with_commas(c.run.steps), " steps, ",
      with_commas(batches.samples(c.run.steps) * c.model.sequence), " tokens");
}

/// Prints samples and epochs of each file of a blend in the run, if the files exist.
void print_blend(const deck::Deck& deck, const TrainingData& data) {
  const deck::Config& c = deck.config;
  if (data.files.size() < 2) return;
  const data::Samples samples(data.parts(), data::SampleForm(c.model),
                              static_cast<std::uint64_t>(c.run.seed));
  const deck::BatchSchedule batches(c.batch);
  for (const std::string& line : blend_text(samples, batches.samples(c.run.steps)))
    say("blend         ", line);
}

/// Prints the packing or the pairs of the training files that exist.
void print_packing(const deck::Deck& deck, const TrainingData& data) {
  const deck::ModelConfig& m = deck.config.model;
  if (!m.packs_documents() && !m.reads_pairs() && !m.vision.present()) return;
  for (const auto& file : data.files) {
    const data::Windows windows(*file, data::SampleForm(m));
    say(m.vision.present() ? "images        "
        : m.reads_pairs()  ? "pairs         "
                           : "packing       ",
        packing_text(*file, windows));
    warn_of_packing(*file, windows);
  }
}

/// Describes the prompts that evaluations continue; "" without them. If `elsewhere` (a plan for
/// another machine), a mistake only causes a warning, and the result is "".
std::string describe_texts(const deck::Deck& deck, const TrainingData& training, bool elsewhere) {
  if (deck.config.run.prompts.empty()) return "";
  const GenerateOptions options = options_of_run(deck.config.run);
  try {
    const auto texts =
        texts_of_run(deck, options, images_of(training).value_or(data::ImageForm{.token = -1}));
    texts->warn_of_long_prompts();
    return describe_prompts(*texts, options);
  } catch (const UsageError& mistake) {
    if (!elsewhere) throw;
    log::warn(mistake.what());
    return "";
  }
}

void print_ramp(const deck::Config& c, const std::vector<schedule::Program>& programs) {
  const deck::BatchSchedule batches(c.batch);
  if (programs.size() == 1) return;
  say("batch         grows from ", c.batch.ramp_start, " to ", c.batch.global, " samples by ",
      c.batch.ramp_increment, " over the first ", with_commas(c.batch.ramp_samples),
      " samples: ", programs.size(), " sizes, each with its own program");
  say(ramp_report(batches, programs));
}

void print_notes(const deck::Config& c, const plan::Machine& machine) {
  for (const plan::Note& note : plan::notes(c, machine))
    say(note.topic, std::string(14 - note.topic.size(), ' '), note.words);
  deck::LocalConfig unused;
  unused.mixing = c.local.mixing;
  if (c.parallel.workers == 1 && !(c.local == unused))
    say("local         no local training, because [local] workers is 1; the other keys of [local] ",
        "have no effect");
  if (c.run.audit_every > 0)
    say("audits        every ", with_commas(c.run.audit_every),
        " steps a second forward and backward pass, at most ",
        percent(1 / static_cast<double>(c.run.audit_every)),
        " of the time; after wrong numbers: ", name_of(c.run.audit));
}

/// The keys that a prediction of times needs and the machine file lacks; "" if there are none.
std::string missing_speeds(const deck::Config& c, const plan::Machine& machine) {
  return machine.time_mistake(c.precision, c.parallel.ranks());
}

void print_time(const deck::Config& c, const architecture::Architecture& a,
                const schedule::Program& program, const plan::Machine& machine) {
  if (machine.file.empty()) return;
  if (c.parallel.has_servers())
    return say("\ntime of a step: not predicted with strategy = \"server\"");
  const std::string missing = missing_speeds(c, machine);
  if (missing.empty())
    say("\ntime of a step\n", time_report(c, plan::predict_step(c, a, program, machine), machine));
  else
    say("\ntime of a step: not predicted, because ", machine.file, " does not set ", missing);
}

void print_report(const PlannedRun& run, const plan::Plan& plan, const plan::Machine& machine,
                  const std::string& texts) {
  const deck::Deck& deck = run.deck;
  const deck::Config& c = deck.config;
  const architecture::Architecture& a = plan.architecture;
  const schedule::Program& program = plan.programs.back();
  const std::vector<plan::RankPlan>& ranks = plan.ranks;

  say("deck          ", deck.file_name, ": no mistakes");
  print_machine(c.parallel, machine);
  print_grid(c);
  if (const std::string chosen = layout_text(deck); !chosen.empty())
    say("layout        chosen: ", chosen);
  const bool encoder = c.model.encoder.present();
  say("model         ", name_of(c.model.family), ", ",
      encoder ? text(c.model.encoder.layers, " layers of the encoder and ", c.model.layers,
                     " of the decoder")
              : text(c.model.layers, " layers"),
      c.model.modules() > 0
          ? text(" and ", c.model.modules(), c.model.modules() == 1 ? " module" : " modules",
                 " of further predicted tokens")
          : "",
      ", hidden ", c.model.hidden, ", ", c.model.heads, " heads of ", c.model.head_size(),
      c.model.key_value_heads < c.model.heads
          ? text(", ", c.model.key_value_heads, " key/value heads")
          : "",
      feed_forward_text(c.model), ", sequence ",
      encoder ? text(c.model.encoder.sequence, " → ") : "", c.model.sequence, ", vocabulary ",
      c.model.vocabulary, ", ", name_of(c.precision.compute));
  if (const deck::VisionConfig& v = c.model.vision; v.present())
    say("vision        ", name_of(v.family), ", ", v.layers, " layers, hidden ", v.hidden, ", ",
        v.heads, " heads of ", v.hidden / v.heads, ", feed-forward ", v.feed_forward, ", ",
        v.images == 1 ? text("an image") : text("up to ", v.images, " images"), " of ", v.image,
        " × ", v.image, " pixels per sample, each ", v.tokens(), " tokens");
  std::int64_t trained = 0;
  for (const architecture::ArraySpec& array : a.arrays)
    if (!array.frozen) trained += array.elements();
  say("parameters    ", with_commas(a.parameters()),
      a.has_frozen ? text(", of which ", with_commas(trained), " are trained") : "",
      c.model.experts.present()
          ? text(", of which a token uses ", with_commas(a.active_parameters()))
          : "");
  print_experts(c, plan, machine);
  print_schedule(c, program, plan::stage_flops(a, c.parallel), ranks);
  print_ramp(c, plan.programs);
  print_step(c, a);
  print_blend(deck, run.training);
  print_packing(deck, run.training);
  if (!texts.empty()) say("texts         ", texts);
  print_recompute(c, a, ranks, machine);
  print_notes(c, machine);
  say("\nstages\n", stages_report(plan::group_stages(a, c.parallel), c.parallel));
  say(c.parallel.has_servers() ? "\nmemory per rank of a worker\n" : "\nmemory per rank\n",
      memory_report(ranks, c.parallel, machine));
  say("\ncommunication per step of the rank with the most bytes\n",
      traffic_report(ranks, c.parallel));
  if (c.parallel.workers > 1) say("\nlocal training\n", workers_report(c, a, ranks, machine));
  if (c.parallel.has_servers()) {
    say("\nmemory per rank of a server\n", memory_report(plan.servers, c.parallel, machine));
    say("\ncommunication per step of the first server's rank\n",
        traffic_report(plan.servers, c.parallel));
  }
  if (c.checkpoint.local_every > 0)
    say("\nlocal checkpoints: at most, on a disk of each node\n", local_report(ranks, c, machine));
  print_time(c, a, program, machine);
}

/// Largest memory of a rank: of its process or, with `arrays_only`, of the arrays of its kernels.
Bytes most_bytes(const std::vector<plan::RankPlan>& ranks, bool arrays_only) {
  return arrays_only ? plan::device_total(plan::most_memory(ranks).memory)
                     : plan::most_at_peak(ranks).peak();
}

/// The most memory that a rank or server needs, counted as the limit counts it.
Bytes needed_bytes(const plan::Plan& plan, const plan::MemoryLimit& limit) {
  std::vector<plan::RankPlan> ranks = plan.ranks;
  ranks.insert(ranks.end(), plan.servers.begin(), plan.servers.end());
  return most_bytes(ranks, limit.arrays_only);
}

/// ", or …" that names [experts] rows if many more rows than on average are planned.
std::string remedy_of_experts(const deck::Config& c, const plan::Plan& plan,
                              const plan::Machine& machine) {
  const deck::ExpertsConfig& e = c.model.experts;
  if (!e.present() || e.has_rounds()) return "";
  const architecture::RankSizes sizes =
      plan::typed_sizes(c, architecture::make_shard(plan.architecture, c.parallel, 0, 0), machine);
  const architecture::Rows routed =
      architecture::rows_of_experts(architecture::Rows::routed, c.model);
  const std::int64_t most = rows_of(routed, sizes), mean = mean_rows_of(routed, sizes);
  if (most < 2 * mean) return "";
  return text(", or set [experts] rows = 1: a layer's experts have ", with_commas(most),
              " rows at most, ", with_commas(mean), " on average");
}

/// Throws an Error with exit_code_of_no_fit unless every rank fits into [parallel] memory_limit or
/// the machine's memory; UsageError if neither is known.
void expect_fit(const deck::Config& c, const plan::Plan& plan, const plan::Machine& machine) {
  const plan::MemoryLimit limit = plan::memory_limit(c.parallel, machine, 0);
  check_usage(limit.bytes > 0,
              "--must-fit needs the memory of a rank; give --machine FILE, or set ",
              "parallel.memory_limit");
  const Bytes needed = needed_bytes(plan, limit);
  if (needed <= limit.bytes) return;
  throw Error(text("the plan does not fit: a rank needs ", human_bytes(needed), " of ",
                   human_bytes(limit.bytes), "; use more tensor or pipeline ranks, set recompute, ",
                   "shard or offload in [parallel], or reduce [batch] micro",
                   remedy_of_experts(c, plan, machine)),
              exit_code_of_no_fit);
}

void write_json(const deck::Config& c, const plan::Plan& plan, const plan::Machine& machine,
                const std::string& path) {
  const plan::MemoryLimit limit = plan::memory_limit(c.parallel, machine, 0);
  std::optional<plan::StepTime> time;
  if (!c.parallel.has_servers() && missing_speeds(c, machine).empty())
    time = predict_step(c, plan.architecture, plan.programs.back(), machine);
  io::write_json(
      path, plan_json(c, time ? &*time : nullptr, needed_bytes(plan, limit), limit.bytes, machine)
                .dump(2));
}

void print_layer(const deck::Config& c, const plan::Plan& plan, const plan::Machine& machine) {
  const auto shard = architecture::make_shard(plan.architecture, c.parallel, 0, 0);
  const auto needs = plan::training_needs(plan.programs);
  say(layer_report(c, plan.architecture, shard, needs.front().split_backward, machine));
}

void check_deck(const CheckOptions& options) {
  const plan::Machine machine =
      options.machine.empty() ? installation::this_machine() : plan::load_machine(options.machine);
  const PlannedRun run = deck_for_ranks(options.deck, options.overrides, options.ranks, machine,
                                        /*elsewhere=*/!options.machine.empty());
  const deck::Deck& deck = run.deck;
  expect_restart(deck);
  const std::string texts = describe_texts(deck, run.training, !options.machine.empty());
  if (options.resolved) {
    log::line(deck::resolved_toml(deck));
    return;
  }
  const plan::Plan plan = plan::make_plan(deck.config, machine);
  if (!options.json.empty()) write_json(deck.config, plan, machine, options.json);
  if (options.json != "-") {
    if (options.layer)
      print_layer(deck.config, plan, machine);
    else
      print_report(run, plan, machine, texts);
  }
  if (options.must_fit) expect_fit(deck.config, plan, machine);
}

}  // namespace

void add_check(CLI::App& app) {
  const auto options = std::make_shared<CheckOptions>();
  CLI::App* command = app.add_subcommand(
      "check", "Check a deck and plan its run for any number of ranks, without MPI or a device");
  add_deck_arguments(*command, options->deck, options->overrides);
  command
      ->add_option("--ranks", options->ranks,
                   "Number of ranks; default: the product of the deck's axes")
      ->check(CLI::Range(std::int64_t{1}, deck::ranks_limit));
  command
      ->add_option("--machine", options->machine,
                   "Machine file to plan for (TOML; `trireme help machine` lists its keys); "
                   "default: this installation")
      ->type_name("FILE");
  command->add_flag("--resolved", options->resolved,
                    "Print the resolved deck instead: every key with its value");
  command->add_flag(
      "--layer", options->layer,
      "Print the operations of the embedding, a layer and the head instead: shapes on a "
      "rank, what is kept or recomputed, messages and FLOPs");
  command
      ->add_option("--json", options->json,
                   "Also write the predicted time, its shares and the memory as JSON; - prints "
                   "them instead of the report")
      ->type_name("FILE");
  command->add_flag("--must-fit", options->must_fit,
                    "Exit code 3 if a rank needs more memory than parallel.memory_limit or the "
                    "machine has");
  command->footer(
      "Examples:\n  trireme check inputs/gpt2_124m.toml --ranks 8 batch.micro=4\n"
      "  trireme check inputs/gpt2_124m.toml --ranks 8 --machine inputs/machines/h100.toml");
  command->callback([options] { check_deck(*options); });
}

}  // namespace trireme::commands
