#include <trireme/base/check.hpp>
#include <trireme/plan/program.hpp>

namespace trireme::plan {

schedule::Program step_program(const deck::Config& config) {
  const deck::ParallelConfig& p = config.parallel;
  const deck::BatchConfig& b = config.batch;
  const schedule::ProgramLayout layout{static_cast<int>(p.pipeline),
                                       static_cast<int>(b.global / b.micro / p.data)};
  schedule::Program program = schedule::generate(p.schedule, layout);
  schedule::lower(program);
  const auto mistakes = schedule::validate(program);
  check(mistakes.empty(), "the schedule is not valid: ", join(mistakes, "; "));
  return program;
}

}  // namespace trireme::plan
