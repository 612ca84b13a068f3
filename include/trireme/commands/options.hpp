#pragma once

#include <trireme/data/tokenize.hpp>
#include <trireme/io/image_resize.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

/// Command-line options of the engine's commands, for `trireme` to answer --help and for
/// `trireme-engine` to parse its arguments.
namespace trireme::commands {

struct TrainOptions {
  std::string deck;
  std::vector<std::string> overrides;  ///< "section.key=value"
};

struct EvalOptions {
  std::string deck;
  std::vector<std::string> overrides;
  std::string checkpoint;  ///< folder, or "latest"
  bool as_deck = false;    ///< accept another function of the same weights (Effect::function)
  std::string data;        ///< token file; "": [data] validation, or none if there are tasks
  std::vector<std::string> tasks = {};  ///< JSON lines files
  std::string prefix = {};  ///< special token before texts without context; "": end-of-document
  std::string output = {};  ///< output file for the measures; "": none
  std::string log_likelihoods = {};  ///< output file for all log-likelihoods; "": none
  std::string json = {};  ///< file for losses and measures; "-": standard output; "": none
};

/// How images become squares and stand in texts. Without a value: as in the training, or the
/// default of data::TokenizeImages.
struct ImageOptions {
  std::optional<io::ImageFit> fit = {};
  std::optional<std::string> token = {}, begin = {}, end = {};
};

struct GenerateOptions {
  std::string deck;
  std::vector<std::string> overrides;
  std::string checkpoint;
  bool as_deck = false;
  std::string prompt;
  std::string prompts;  ///< file of prompts; "": use `prompt`
  std::string output;   ///< output file; "": standard output
  std::vector<std::string> stops;
  std::int64_t tokens = 200;
  std::int64_t samples = 1;
  double temperature = 1.0;  ///< 0: always the most likely token
  std::int64_t top_k = 0;    ///< 0: all tokens
  double top_p = 1;          ///< 1: all tokens
  double min_p = 0;          ///< 0: all tokens
  std::int64_t seed = 1;
  std::int64_t batch = 8;           ///< texts that a replica continues at a time
  std::string chat;                 ///< format of the conversations; "": prompts are plain texts
  std::string prefix;               ///< token before a prompt, or "none"; "": tokenizer's default
  std::vector<std::string> images;  ///< files with the images of `prompt`
  ImageOptions image_form = {};
};

struct BenchOptions {
  std::string deck;
  std::vector<std::string> overrides;
  std::vector<std::string> only;  ///< sections to measure; empty: the default sections
  std::int64_t rounds = 3;
  std::string json;          ///< output file for the results; "": none
  std::string machine_file;  ///< output file for the machine's description; "": none
};

struct DoctorOptions {
  std::string folder = ".";
  std::string json = {};  ///< file for the findings; "-": standard output; "": none
};

/// Adds the options of how images become squares and stand in texts, which need the option `size`
/// unless it is null. `of_training`: the defaults are those of the model's training. `images` must
/// outlive the command.
void add_image_text_options(CLI::App& command, ImageOptions& images, CLI::Option* size,
                            bool of_training);

/// Each function adds one subcommand that stores its values in `options`, and returns this
/// subcommand.
CLI::App* add_train_options(CLI::App& app, TrainOptions& options);
CLI::App* add_eval_options(CLI::App& app, EvalOptions& options);
CLI::App* add_generate_options(CLI::App& app, GenerateOptions& options);
CLI::App* add_bench_options(CLI::App& app, BenchOptions& options);
CLI::App* add_doctor_options(CLI::App& app, DoctorOptions& options);

/// Adds the positional arguments `DECK [section.key=value ...]` that most commands take.
void add_deck_arguments(CLI::App& command, std::string& deck, std::vector<std::string>& overrides);
/// Adds the option --json; `what` names the content of the JSON in the help.
void add_json_option(CLI::App& command, std::string& json, const std::string& what);

/// The help of the program or of one of its commands, wrapped at the terminal's width. Lines of
/// examples that are wider continue after a backslash.
std::string help_text(const CLI::App& app);

/// Parses the command line, which also runs the callback of a host command. Returns false if help
/// or the version was requested and has been printed, otherwise true. Every mistake on the command
/// line is a UsageError.
bool parse_command_line(CLI::App& app, int argc, const char* const* argv);

/// Whether this process prints: false if a launcher's environment (mpiexec, srun, PALS) gives it a
/// rank other than 0.
bool is_first_process();
/// Whether this process reports problems that only some nodes have: false if a launcher's
/// environment gives it a rank within its node other than 0.
bool is_first_on_node();

}  // namespace trireme::commands
