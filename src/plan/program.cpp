#include <trireme/base/check.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/text_file.hpp>
#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/lower.hpp>
#include <trireme/schedule/text_format.hpp>
#include <trireme/schedule/validate.hpp>

#include <algorithm>

namespace trireme::plan {
namespace {

schedule::Program program_of_file(const std::string& path, const schedule::ProgramLayout& layout) {
  return schedule::read_program(read_text_file(path, text("[parallel] program = \"", path, "\"")),
                                path, layout);
}

/// The first of many, and how many more there are.
std::string listed(const std::vector<std::string>& mistakes) {
  constexpr std::size_t most = 20;
  std::string out;
  for (std::size_t i = 0; i < std::min(most, mistakes.size()); ++i) out += "\n  " + mistakes[i];
  if (mistakes.size() > most) out += text("\n  and ", mistakes.size() - most, " more");
  return out;
}

}  // namespace

schedule::Program step_program(const deck::Config& config) {
  const deck::ParallelConfig& p = config.parallel;
  const deck::BatchConfig& b = config.batch;
  const schedule::ProgramLayout layout{static_cast<int>(p.pipeline),
                                       static_cast<int>(b.global / (b.micro * p.data)),
                                       static_cast<int>(p.chunks)};
  const bool by_hand = p.schedule == ScheduleKind::file;
  schedule::Program program =
      by_hand ? program_of_file(p.program, layout) : schedule::generate(p.schedule, layout);
  for (const auto& row : program.ranks)
    for (const schedule::Instr& i : row)
      check_usage(i.op != schedule::Op::evaluate, p.program, ": ", i,
                  " does not train; a program for training has F, B, I and W");
  schedule::lower(program, {.tied = config.model.tied_embeddings});
  const auto mistakes = schedule::validate(program);
  check_usage(!by_hand || mistakes.empty(), p.program,
              ": the program cannot run:", listed(mistakes));
  check(mistakes.empty(), "the schedule ", name_of(p.schedule), " cannot run:", listed(mistakes));
  return program;
}

schedule::Program evaluation_program(const schedule::ProgramLayout& layout, int micro_batches) {
  schedule::Program program =
      schedule::generate_evaluation({layout.ranks, micro_batches, layout.chunks});
  schedule::lower(program);
  return program;
}

std::vector<schedule::Needs> evaluation_needs(const schedule::ProgramLayout& layout) {
  constexpr int rounds = 4;      // more micro-batches than fit into the pipeline need no more,
  constexpr int most = 1 << 16;  // and the deepest pipelines fill with fewer than they hold
  return schedule::needs(evaluation_program(
      layout, std::min(rounds * layout.ranks, std::max(rounds, most / layout.stages()))));
}

std::vector<schedule::Needs> training_needs(const schedule::Program& program) {
  std::vector<schedule::Needs> all = schedule::needs(program);
  const std::vector<schedule::Needs> evaluating = evaluation_needs(program.layout);
  for (std::size_t r = 0; r < all.size(); ++r)
    all[r].received_activations =
        std::max(all[r].received_activations, evaluating[r].received_activations);
  return all;
}

}  // namespace trireme::plan
