// Programs of a run's training steps and evaluations: generated or read from a file, lowered and
// validated; and the memory that they need.
#include <trireme/plan/program.hpp>

#include <trireme/architecture/architecture.hpp>
#include <trireme/base/check.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/plan/choices.hpp>
#include <trireme/plan/cost.hpp>
#include <trireme/plan/program_search.hpp>
#include <trireme/plan/text_file.hpp>
#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/lower.hpp>
#include <trireme/schedule/share_vocabulary.hpp>
#include <trireme/schedule/text_format.hpp>
#include <trireme/schedule/validate.hpp>

#include <algorithm>

namespace trireme::plan {
namespace {

schedule::Program program_of_file(const std::string& path, const schedule::ProgramLayout& layout) {
  const std::string content =
      read_text_file(path, text("[parallel] program = \"", path, "\""),
                     "; `trireme draw DECK --format program -o FILE` writes one to start from");
  return schedule::read_program(content, path, layout);
}

/// The first mistakes, and the number of the others.
std::string listed(const std::vector<std::string>& mistakes) {
  constexpr std::size_t most = 20;
  std::string out;
  for (std::size_t i = 0; i < std::min(most, mistakes.size()); ++i) out += "\n  " + mistakes[i];
  if (mistakes.size() > most) out += text("\n  and ", mistakes.size() - most, " more");
  return out;
}

schedule::ProgramLayout layout_of(const deck::Config& config, std::int64_t global) {
  const deck::ParallelConfig& p = config.parallel;
  schedule::ProgramLayout layout;
  layout.ranks = static_cast<int>(p.pipeline);
  layout.micro_batches = static_cast<int>(config.micro_batches(global));
  layout.chunks = static_cast<int>(p.chunks);
  layout.placement = p.stage_map().placement;
  layout.shares_vocabulary = p.shares_vocabulary();
  return layout;
}

schedule::Cost flops_of(const deck::Config& config) {
  return flop_cost(stage_flops(architecture::describe(config.model), config.parallel));
}

/// The named schedule with the passes of a shared vocabulary, which are placed by their FLOPs.
schedule::Program named_program(const deck::Config& config, const schedule::ProgramLayout& layout) {
  schedule::Program program = schedule::generate(config.parallel.schedule, layout);
  if (layout.shares_vocabulary) schedule::share_vocabulary(program, flops_of(config));
  return program;
}

/// Transfers beside the passes of a shared vocabulary are ordered by FLOPs, as those passes are.
schedule::LowerOptions lowering(const deck::Config& config, const Machine& machine) {
  schedule::LowerOptions options{config.model.tied_embeddings, transport(config.parallel, machine)};
  if (config.parallel.shares_vocabulary()) options.cost = flops_of(config);
  return options;
}

schedule::Program program_of(const deck::Config& config, std::int64_t global,
                             const Machine& machine) {
  const deck::ParallelConfig& p = config.parallel;
  const schedule::ProgramLayout layout = layout_of(config, global);
  if (p.schedule == ScheduleKind::automatic)
    return fastest_program(config, layout, machine).program;
  const bool by_hand = p.schedule == ScheduleKind::file;
  schedule::Program program =
      by_hand ? program_of_file(p.program, layout) : named_program(config, layout);
  for (const auto& row : program.ranks)
    for (const schedule::Instr& i : row)
      check_usage(i.op != schedule::Op::evaluate, p.program, ": ", i,
                  " does not train; a program for training has F, B, I and W");
  schedule::lower(program, lowering(config, machine));
  const auto mistakes = schedule::validate(program);
  check_usage(!by_hand || mistakes.empty(), p.program,
              ": the program cannot run:", listed(mistakes));
  check(mistakes.empty(), "the schedule ", name_of(p.schedule), " with a global batch of ", global,
        " samples, ", layout.micro_batches,
        " micro-batches per rank and step, cannot run:", listed(mistakes));
  return program;
}

}  // namespace

schedule::Program generated_program(const deck::Config& config, const Machine& machine) {
  schedule::Program program = named_program(config, layout_of(config, config.batch.global));
  schedule::lower(program, lowering(config, machine));
  return program;
}

schedule::Program step_program(const deck::Config& config, const Machine& machine) {
  return program_of(config, config.batch.global, machine);
}

std::vector<schedule::Program> step_programs(const deck::Config& config, const Machine& machine) {
  std::vector<schedule::Program> programs;
  for (const deck::BatchPhase& phase : deck::BatchSchedule(config.batch).phases())
    programs.push_back(program_of(config, phase.global, machine));
  return programs;
}

schedule::Program evaluation_program(const schedule::ProgramLayout& layout, int micro_batches) {
  schedule::ProgramLayout evaluation = layout;
  evaluation.micro_batches = micro_batches;
  evaluation.tied = false;
  evaluation.steps = 1;
  schedule::Program program = schedule::generate_evaluation(evaluation);
  if (layout.shares_vocabulary) schedule::share_vocabulary(program, schedule::unit_cost);
  schedule::lower(program, {.transport = layout.transport});
  return program;
}

std::vector<schedule::Needs> evaluation_needs(const schedule::ProgramLayout& layout) {
  constexpr int rounds = 4;      // more micro-batches than stages need no more slots,
  constexpr int most = 1 << 16;  // and the deepest pipelines need fewer than they have stages
  return schedule::needs(evaluation_program(
      layout, std::min(rounds * layout.ranks, std::max(rounds, most / layout.stages()))));
}

std::vector<schedule::Needs> training_needs(std::span<const schedule::Program> programs) {
  check(!programs.empty(), "the needs of no program");
  std::vector<schedule::Needs> all = schedule::needs(programs.back());
  for (const schedule::Program& program : programs.first(programs.size() - 1)) {
    const std::vector<schedule::Needs> other = schedule::needs(program);
    for (std::size_t r = 0; r < all.size(); ++r) all[r].include(other[r]);
  }
  const std::vector<schedule::Needs> evaluating = evaluation_needs(programs.back().layout);
  for (std::size_t r = 0; r < all.size(); ++r) {
    all[r].received_activations =
        std::max(all[r].received_activations, evaluating[r].received_activations);
    all[r].handed_over = std::max(all[r].handed_over, evaluating[r].handed_over);
  }
  return all;
}

}  // namespace trireme::plan
