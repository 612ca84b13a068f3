// The program trireme. It runs the commands that need no MPI. For the other commands it replaces
// itself by trireme-engine in the same folder.
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/doctor.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/options.hpp>
#include <trireme/installation/this_installation.hpp>

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {
namespace {

/// Options of commands that need MPI and Kokkos.
struct EngineOptions {
  commands::TrainOptions train;
  commands::EvalOptions eval;
  commands::GenerateOptions generate;
  commands::BenchOptions bench;
  commands::DoctorOptions doctor;
};

void add_engine_commands(CLI::App& app, EngineOptions& options) {
  commands::add_train_options(app, options.train);
  commands::add_eval_options(app, options.eval);
  commands::add_generate_options(app, options.generate);
  commands::add_bench_options(app, options.bench);
  commands::add_doctor_options(app, options.doctor);
}

/// Whether the engine runs this command. This program answers --help; the engine reports mistakes,
/// on one rank.
bool is_for_engine(int argc, char** argv) {
  constexpr std::array<std::string_view, 5> commands{"train", "eval", "generate", "bench",
                                                     "doctor"};
  if (argc < 2 || std::ranges::find(commands, argv[1]) == commands.end()) return false;
  CLI::App app;
  EngineOptions options;
  add_engine_commands(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success&) {
    return false;
  } catch (const CLI::ParseError&) {
    return true;
  }
  return true;
}

/// Blocks SIGUSR1, by which a batch system asks a run to save and stop: the signal would kill a run
/// that is starting. train::StopSignals unblocks it.
void hold_stop_signal() {
  sigset_t held;
  sigemptyset(&held);
  sigaddset(&held, SIGUSR1);
  sigprocmask(SIG_BLOCK, &held, nullptr);
}

/// Error if this node lacks the driver library with which the engine is linked; one process per
/// node reports it. For doctor, the error becomes a finding, and the process exits.
void expect_driver(int argc, char** argv) {
  const char* library = installation::driver_library(installation::this_machine().device.kind);
  if (library == nullptr) return;
  const std::string missing = installation::missing_driver(library);
  if (!missing.empty() && std::string_view(argv[1]) == "doctor")
    std::exit(static_cast<int>(commands::report_no_start(argc, argv, "driver", missing)));
  log::set_speaking(missing.empty() || commands::is_first_on_node());
  check(missing.empty(), missing);
}

[[noreturn]] void start_engine(int argc, char** argv) {
  expect_driver(argc, argv);
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  check(!error,
        "cannot determine the path of the trireme executable: /proc/self/exe: ", error.message());
  const std::string engine = (self.parent_path() / "trireme-engine").string();
  check(std::filesystem::exists(engine, error), "`trireme ", argv[1], "` needs ", engine,
        ", which is missing; install both programs into one folder");
  // Without this variable, UCX would print a C backtrace when another rank dies.
  setenv("UCX_HANDLE_ERRORS", "none", 0);
  execv(engine.c_str(), argv);
  throw Error(text("cannot start ", engine, ": ", std::strerror(errno)));
}

/// UsageError for a missing or unknown command; CLI11 would only report that a command is required.
void refuse_unknown_command(const CLI::App& app, int argc, char** argv) {
  check_usage(argc >= 2, "no command is given\n\n", commands::help_text(app));
  if (argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  if (std::ranges::find(names, argv[1]) != names.end()) return;
  const std::string best = nearest(argv[1], names);
  throw UsageError(
      text("unknown command \"", argv[1], "\"; ",
           best.empty() ? "the commands are " + join(names, ", ") : "did you mean " + best + "?"));
}

void run_host_command(int argc, char** argv) {
  CLI::App app(
      "Trireme trains transformer language models with tensor, pipeline and data parallelism.");
  app.name("trireme");
  app.set_version_flag("--version", commands::version_text);
  app.footer("`trireme <command> --help` shows a command's options and an example.");
  app.require_subcommand(1);

  EngineOptions engine;
  add_engine_commands(app, engine);
  commands::add_check(app);
  commands::add_draw(app);
  commands::add_init(app);
  commands::add_inspect(app);
  commands::add_plan(app);
  commands::add_predict(app);
  commands::add_report(app);
  commands::add_export(app);
  commands::add_import(app);
  commands::add_tokenize(app);
  commands::add_completion(app);
  commands::add_help(app);

  refuse_unknown_command(app, argc, argv);
  commands::parse_command_line(app, argc, argv);
}

/// Under a launcher, all processes run the same command; only the first process prints.
void speak_once() {
  if (commands::is_first_process()) return;
  log::set_speaking(false);
  const bool silent = std::freopen("/dev/null", "w", stdout) != nullptr;
  check(silent, "cannot open /dev/null: ", std::strerror(errno));
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "train") trireme::hold_stop_signal();
  std::signal(SIGXFSZ,
              SIG_IGN);  // writes above a file-size limit return EFBIG; execv keeps this setting
  try {
    if (trireme::is_for_engine(argc, argv)) trireme::start_engine(argc, argv);
    trireme::speak_once();
    trireme::run_host_command(argc, argv);
    std::cout.flush();
    const bool written = std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
    trireme::check(written, "cannot write to standard output");
    return static_cast<int>(trireme::ExitCode::finished);
  } catch (const trireme::Error& error) {
    trireme::log::error(error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    trireme::log::error(trireme::plain_message(error));
    return static_cast<int>(trireme::ExitCode::failed);
  }
}
