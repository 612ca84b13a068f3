#include <trireme/base/check.hpp>
#include <trireme/base/events.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/doctor.hpp>
#include <trireme/commands/engine.hpp>
#include <trireme/commands/launcher.hpp>
#include <trireme/grid/threads.hpp>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>

namespace trireme {
namespace {

using Command = std::function<ExitCode(grid::Runtime&)>;

/// The requested command; null if help was printed. A mistake on the command line ends all ranks.
Command parse(grid::Runtime& runtime, int argc, char** argv) {
  CLI::App app("Training, evaluation and generation; started by `trireme`", "trireme");
  app.require_subcommand(1);
  commands::TrainOptions train;
  commands::EvalOptions eval;
  commands::GenerateOptions generate;
  commands::BenchOptions bench;
  commands::DoctorOptions doctor;
  const CLI::App* train_command = commands::add_train_options(app, train);
  const CLI::App* eval_command = commands::add_eval_options(app, eval);
  const CLI::App* generate_command = commands::add_generate_options(app, generate);
  const CLI::App* bench_command = commands::add_bench_options(app, bench);
  const CLI::App* doctor_command = commands::add_doctor_options(app, doctor);
  bool asked = false;
  runtime.together([&] { asked = commands::parse_command_line(app, argc, argv); });
  if (!asked) return nullptr;
  if (train_command->parsed())
    return [train](grid::Runtime& r) { return commands::train(r, train); };
  if (eval_command->parsed())
    return [eval](grid::Runtime& r) { return commands::evaluate(r, eval); };
  if (bench_command->parsed())
    return [bench](grid::Runtime& r) { return commands::bench(r, bench); };
  if (doctor_command->parsed())
    return [doctor](grid::Runtime& r) { return commands::doctor(r, doctor); };
  check(generate_command->parsed(), "no command");
  return [generate](grid::Runtime& r) { return commands::generate(r, generate); };
}

ExitCode run(grid::Runtime& runtime, int argc, char** argv) {
  try {
    return runtime.guard([&] {
      const Command command = parse(runtime, argc, argv);
      return command ? command(runtime) : ExitCode::finished;
    });
  } catch (const grid::SharedError& e) {
    log::set_speaking(true);
    log::error(e.what());
    events::record(events::Stop{events::StopCause::error, static_cast<int>(e.code()), e.what()});
    return e.code();
  } catch (const grid::SilentError& e) {
    return e.code();  // all ranks threw together; another rank reports
  }
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  // One thread per rank by default: otherwise OpenMP libraries would start a thread per core on
  // every rank.
  if (!trireme::grid::ranks_have_threads) setenv("OMP_NUM_THREADS", "1", 0);
  const bool doctor = argc > 1 && std::string_view(argv[1]) == "doctor";
  try {
    trireme::grid::Runtime runtime(argc, argv);
    if (!doctor &&
        trireme::commands::is_started_by_another_mpi(runtime.ranks(), runtime.software().mpi))
      return static_cast<int>(runtime.ends_with(trireme::ExitCode::usage));
    return static_cast<int>(runtime.ends_with(trireme::run(runtime, argc, argv)));
  } catch (const std::exception& e) {
    const std::string message = trireme::plain_message(e);
    if (doctor)
      return static_cast<int>(trireme::commands::report_no_start(argc, argv, "start", message));
    std::fprintf(stderr, "trireme: error: %s\n", message.c_str());
    return 1;
  }
}
