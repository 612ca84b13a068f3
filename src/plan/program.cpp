#include <trireme/base/check.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/lower.hpp>
#include <trireme/schedule/validate.hpp>

namespace trireme::plan {

schedule::Program step_program(const deck::Config& config) {
  const deck::ParallelConfig& p = config.parallel;
  const deck::BatchConfig& b = config.batch;
  const schedule::ProgramLayout layout{static_cast<int>(p.pipeline),
                                       static_cast<int>(b.global / (b.micro * p.data)),
                                       static_cast<int>(p.chunks)};
  schedule::Program program = schedule::generate(p.schedule, layout);
  schedule::lower(program, {.tied = config.model.tied_embeddings});
  const auto mistakes = schedule::validate(program);
  check(mistakes.empty(), "the schedule is not valid: ", join(mistakes, "; "));
  return program;
}

}  // namespace trireme::plan
