#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// What can be said on the command line to the commands of the engine. Both programs use these
/// definitions: `trireme` to answer --help without starting the engine, `trireme-engine` to read
/// its arguments.
namespace trireme::commands {

struct TrainOptions {
  std::string deck;
  std::vector<std::string> overrides;  ///< "section.key=value"
};

struct EvalOptions {
  std::string deck;
  std::vector<std::string> overrides;
  std::string checkpoint;  ///< a folder, or "latest" of the deck's checkpoint directory
  std::string data;        ///< token file; "": the deck's validation file
};

struct GenerateOptions {
  std::string deck;
  std::vector<std::string> overrides;
  std::string checkpoint;
  std::string prompt;
  std::int64_t tokens = 200;
  std::int64_t samples = 1;
  double temperature = 1.0;  ///< 0: always the likeliest token
  std::int64_t top_k = 0;    ///< 0: all tokens
  std::int64_t seed = 1;
};

struct BenchOptions {
  std::string deck;
  std::vector<std::string> overrides;
  std::vector<std::string> only;  ///< sections; none: all
  std::int64_t rounds = 3;
  std::string json;  ///< file for the figures; "": none
};

/// Each adds one subcommand, whose values go to `options`, and returns it.
CLI::App* add_train_options(CLI::App& app, TrainOptions& options);
CLI::App* add_eval_options(CLI::App& app, EvalOptions& options);
CLI::App* add_generate_options(CLI::App& app, GenerateOptions& options);
CLI::App* add_bench_options(CLI::App& app, BenchOptions& options);

/// The positional arguments `DECK [section.key=value ...]` that most commands take.
void add_deck_arguments(CLI::App& command, std::string& deck, std::vector<std::string>& overrides);

/// Reads the command line into what was added to `app`. Returns true if a command is to run; false
/// if help or the version was asked for and has been printed. Every mistake is a UsageError.
bool parse_command_line(CLI::App& app, int argc, const char* const* argv);

/// Whether this process is to print: not where a launcher's environment (mpiexec, srun, PALS) says
/// that it is another rank than 0. Commands without MPI know nothing else of their neighbours.
bool is_first_process();

}  // namespace trireme::commands
