#include <trireme/base/log.hpp>
#include <trireme/commands/engine.hpp>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstdlib>
#include <functional>

namespace {

using namespace trireme;

/// Parses the same way on every rank; only rank 0 prints usage errors and help.
struct Parsed {
  ExitCode code = ExitCode::finished;
  std::function<ExitCode(grid::Runtime&)> command;
};

Parsed parse(grid::Runtime& runtime, int argc, char** argv) {
  CLI::App app("trireme-engine: trains, evaluates and samples; started by `trireme`", "trireme");
  app.require_subcommand(1);
  commands::TrainOptions train;
  commands::EvalOptions eval;
  commands::GenerateOptions generate;
  const CLI::App* train_command = commands::add_train_options(app, train);
  const CLI::App* eval_command = commands::add_eval_options(app, eval);
  const CLI::App* generate_command = commands::add_generate_options(app, generate);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const bool help = e.get_exit_code() == 0;
    if (runtime.rank() == 0) app.exit(e);
    return {help ? ExitCode::finished : ExitCode::usage, nullptr};
  }
  if (train_command->parsed())
    return {ExitCode::finished, [train](grid::Runtime& r) { return commands::train(r, train); }};
  if (eval_command->parsed())
    return {ExitCode::finished, [eval](grid::Runtime& r) { return commands::evaluate(r, eval); }};
  if (generate_command->parsed())
    return {ExitCode::finished, [generate](grid::Runtime& r) { return commands::generate(r, generate); }};
  return {ExitCode::usage, nullptr};
}

ExitCode run(grid::Runtime& runtime, int argc, char** argv) {
  const Parsed parsed = parse(runtime, argc, argv);
  if (!parsed.command) return parsed.code;
  try {
    return parsed.command(runtime);
  } catch (const grid::SilentError& e) {
    return e.code();  // all ranks threw together, and another one reports
  } catch (const grid::SharedError& e) {
    log::set_speaking(true);
    log::error(e.what());
    return e.code();
  } catch (const Error& e) {
    runtime.abort(e);
  } catch (const std::exception& e) {
    runtime.abort(Error(e.what()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  // One rank, one core: without this every rank's OpenMP libraries would start a thread per core.
  setenv("OMP_NUM_THREADS", "1", 0);
  try {
    grid::Runtime runtime(argc, argv);
    const ExitCode code = run(runtime, argc, argv);
    return static_cast<int>(code);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "trireme: error: %s\n", e.what());
    return 1;
  }
}
