// Command line of the engine's commands, and parsing for both programs.
#include <trireme/commands/options.hpp>

#include <trireme/base/bf16_instructions.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/input.hpp>
#include <trireme/base/terminal.hpp>
#include <trireme/data/chat.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/deck/key_file.hpp>
#include <trireme/io/image_resize.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <string_view>

namespace trireme::commands {
namespace {

constexpr std::int64_t largest = std::int64_t{1} << 40;

void add_checkpoint(CLI::App& command, std::string& checkpoint, bool& as_deck) {
  command
      .add_option("--checkpoint", checkpoint,
                  "Checkpoint folder, or \"latest\": the newest in the deck's checkpoint directory")
      ->default_val("latest")
      ->type_name("FOLDER");
  command.add_flag("--as-deck", as_deck,
                   "Compute the deck's model where it differs from the checkpoint's, for example "
                   "with other scaled rotary positions");
}

/// Message about text that is not a finite number of at least 0, otherwise "".
std::string finite_and_not_negative(const std::string& written) {
  char* end = nullptr;
  const double value = std::strtod(written.c_str(), &end);
  const bool whole = end != written.c_str() && *end == '\0';
  return whole && std::isfinite(value) && value >= 0
             ? ""
             : "expected a number of at least 0, found " + written;
}

std::string share(const std::string& written) {
  const std::string mistake = finite_and_not_negative(written);
  return mistake.empty() && std::strtod(written.c_str(), nullptr) <= 1
             ? ""
             : "expected a number from 0 to 1, found " + written;
}

std::string share_above_zero(const std::string& written) {
  return share(written).empty() && std::strtod(written.c_str(), nullptr) > 0
             ? ""
             : "expected a number above 0, at most 1, found " + written;
}

std::string not_empty(const std::string& written) {
  return written.empty() ? "expected a text that is not empty" : "";
}

/// The value after an unknown option: "10" in `--steps 10`; "" if no value follows.
std::string value_after(const std::string& option, int argc, const char* const* argv) {
  for (int i = 1; i + 1 < argc; ++i)
    if (argv[i] == option && argv[i + 1][0] != '-' && std::strchr(argv[i + 1], '=') == nullptr)
      return argv[i + 1];
  return "";
}

/// CLI11's message about a mistake; for an unknown option, a message that suggests a key of the
/// deck or a similar option.
std::string complaint(const CLI::App& app, const CLI::ParseError& error, int argc,
                      const char* const* argv) {
  const bool unexpected = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (!unexpected || app.get_subcommands().empty()) return error.what();
  const CLI::App& command = *app.get_subcommands().front();
  const std::vector<std::string> words = command.remaining();
  const auto unknown =
      std::ranges::find_if(words, [](const std::string& w) { return w.starts_with("-"); });
  if (unknown == words.end()) return error.what();
  const std::size_t equals = unknown->find('=');
  const std::string option = unknown->substr(0, equals);
  std::vector<std::string> names;
  for (const CLI::Option* known : command.get_options())
    for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
  const std::string best = nearest(option, names);
  const std::string meant =
      command.get_option_no_throw("OVERRIDES") == nullptr || best.starts_with(option)
          ? ""
          : deck::deck_kind().override_for(
                option.substr(std::min(option.find_first_not_of('-'), option.size())),
                equals == std::string::npos ? value_after(option, argc, argv)
                                            : unknown->substr(equals + 1));
  return text("unknown option ", option,
              !meant.empty()  ? text("; keys of the deck are set without dashes: ", meant)
              : !best.empty() ? text("; did you mean ", best, "?")
                              : "");
}

/// Makes CLI11 reject paths of files and folders that a shell would have expanded, such as ~/runs.
void check_paths(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    const bool names_path = type == "FILE" || type == "FOLDER" || type == "PATH" ||
                            (option->get_positional() && option->get_name() != "OVERRIDES");
    if (names_path) option->check([](const std::string& path) { return unexpanded(path); });
  }
  for (CLI::App* command : app.get_subcommands({})) check_paths(*command);
}

}  // namespace

void add_deck_arguments(CLI::App& command, std::string& deck, std::vector<std::string>& overrides) {
  command.add_option("DECK", deck, "Input deck (TOML); `trireme help deck` lists its keys")
      ->required()
      ->type_name("");
  command.add_option("OVERRIDES", overrides, "Keys of the deck to override: section.key=value ...")
      ->type_name("")
      ->option_text("[section.key=value ...]");
}

void add_json_option(CLI::App& command, std::string& json, const std::string& what) {
  command
      .add_option("--json", json,
                  text("Also write ", what,
                       " to this file as JSON; - prints the JSON instead of the "
                       "text"))
      ->type_name("FILE");
}

CLI::App* add_train_options(CLI::App& app, TrainOptions& options) {
  CLI::App* command = app.add_subcommand("train", "Train the model of a deck");
  add_deck_arguments(*command, options.deck, options.overrides);
  command->footer(
      "Each process is one rank. Metrics, log, resolved deck and checkpoints are written to the "
      "deck's run.directory. Exit code 75 means that the run stopped early; continue it with "
      "checkpoint.restart=latest.\n"
      "\nExample:\n  mpiexec -n 4 trireme train inputs/tiny.toml run.steps=200 "
      "checkpoint.restart=latest");
  return command;
}

CLI::App* add_eval_options(CLI::App& app, EvalOptions& options) {
  CLI::App* command = app.add_subcommand(
      "eval", "Compute losses of a checkpoint on a token file, or its accuracy in tasks");
  add_deck_arguments(*command, options.deck, options.overrides);
  add_checkpoint(*command, options.checkpoint, options.as_deck);
  command
      ->add_option("--data", options.data,
                   "Token file; default: the deck's data.validation, unless there are --tasks")
      ->type_name("FILE");
  CLI::Option* tasks =
      command
          ->add_option("--tasks", options.tasks,
                       "File of JSON lines to score by log-likelihood: multiple choice, "
                       "continuations or texts; may be given several times")
          ->allow_extra_args(false)
          ->type_name("FILE");
  command
      ->add_option("--prefix", options.prefix,
                   "Special token before a text without context, such as <s>; default: "
                   "end-of-document")
      ->type_name("TOKEN")
      ->needs(tasks);
  command
      ->add_option("-o,--output", options.output,
                   "Write the measures of the tasks to this JSON file")
      ->type_name("FILE")
      ->needs(tasks);
  command
      ->add_option("--log-likelihoods", options.log_likelihoods,
                   "Write the log-likelihood of each request to this file, as JSON lines")
      ->type_name("FILE")
      ->needs(tasks);
  add_json_option(*command, options.json, "losses and measures");
  command->footer(
      "Examples:\n  mpiexec -n 2 trireme eval inputs/tiny.toml --checkpoint "
      "run/checkpoints/step_00000100 --data test.h5\n  mpiexec -n 4 trireme eval deck.toml --tasks "
      "questions.jsonl --tasks stories.jsonl -o results.json");
  return command;
}

void add_image_text_options(CLI::App& command, ImageOptions& images, CLI::Option* size,
                            bool of_training) {
  const auto add = [&](const char* name, const auto& set, const char* help, const char* otherwise,
                       const char* type) {
    const std::string standard = of_training ? "that of the training, else " : "";
    CLI::Option* option = command.add_option_function<std::string>(
        name, set, text(help, ". Default: ", standard, otherwise));
    option->type_name(type);
    if (size != nullptr) option->needs(size);
    return option;
  };
  add(
      "--image-fit", [&images](const std::string& word) { images.fit = io::image_fit(word); },
      "How an image becomes a square: crop cuts its centre out, as CLIP; stretch, as SigLIP; pad "
      "adds black bars",
      "crop", "FIT")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(io::image_fit_names),
                                                     std::end(io::image_fit_names)))
                  .description(""));
  add(
      "--image-token", [&images](const std::string& name) { images.token = name; },
      "Special token that stands for images, and marks their places in texts", "<image>", "TOKEN");
  add(
      "--image-begin", [&images](const std::string& words) { images.begin = words; },
      "Text before an image, such as the special token <start_of_image>", "none", "TEXT");
  add(
      "--image-end", [&images](const std::string& words) { images.end = words; },
      "Text after an image", "none", "TEXT");
}

CLI::App* add_generate_options(CLI::App& app, GenerateOptions& options) {
  CLI::App* command =
      app.add_subcommand("generate", "Generate text from a checkpoint and a prompt");
  add_deck_arguments(*command, options.deck, options.overrides);
  add_checkpoint(*command, options.checkpoint, options.as_deck);
  CLI::Option* prompt =
      command->add_option("--prompt", options.prompt,
                          "Text to continue, or for a model with an encoder to read; default: an "
                          "empty text, which begins a document");
  command
      ->add_option("--prompts", options.prompts,
                   "File of texts to continue, plain or gzip: one per line, or in a .jsonl or "
                   ".jsonl.gz file one object with \"prompt\" per line, with --chat also "
                   "\"messages\"")
      ->type_name("FILE")
      ->excludes(prompt);
  command
      ->add_option("--image", options.images,
                   "Image of the prompt, PNG, JPEG or .npy, for a model that sees images; may be "
                   "given several times. Lines of --prompts name theirs as \"image\" or \"images\"")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->check(not_empty)
      ->needs(prompt);
  add_image_text_options(*command, options.image_form, nullptr, true);
  CLI::Option* chat =
      command
          ->add_option("--chat", options.chat,
                       text("Write the assistant's answers to the prompts, in this chat format: ",
                            join(data::chat_format_names(), ", ")))
          ->check(CLI::IsMember(data::chat_format_names()).description(""))
          ->type_name("FORMAT");
  command
      ->add_option("--prefix", options.prefix,
                   "Special token before a prompt, end-of-document, or none; default: the tokens "
                   "that the tokenizer's post_processor puts before a text")
      ->type_name("TOKEN")
      ->excludes(chat);
  command
      ->add_option("-o,--output", options.output,
                   "Write the texts to this file, as JSON lines; default: print them")
      ->type_name("FILE");
  command->add_option("--tokens", options.tokens, "Largest number of tokens of a text")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, largest));
  command
      ->add_option("--stop", options.stops,
                   "End a text before these words; may be given several times")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->check(not_empty);
  command->add_option("--samples", options.samples, "Number of texts to generate for each prompt")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, largest));
  command
      ->add_option("--temperature", options.temperature,
                   "Divisor of the logits; 0 always chooses the most likely token")
      ->capture_default_str()
      ->check(finite_and_not_negative);
  command
      ->add_option("--top-k", options.top_k,
                   "Sample from this number of most likely tokens; 0: from all tokens")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, largest));
  command
      ->add_option("--top-p", options.top_p,
                   "Sample from the most likely tokens whose probabilities reach this sum; 1: from "
                   "all tokens")
      ->capture_default_str()
      ->check(share_above_zero);
  command
      ->add_option("--min-p", options.min_p,
                   "Sample from tokens with at least this share of the highest probability; 0: "
                   "from all tokens")
      ->capture_default_str()
      ->check(share);
  command
      ->add_option("--batch", options.batch,
                   "Texts that the ranks of a replica continue at the same time")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, largest));
  command->add_option("--seed", options.seed, "Random seed; the same seed gives the same text")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()));
  command->footer(
      "Example:\n  trireme generate inputs/tiny.toml --prompt \"Once upon a time\" --tokens 100 "
      "--temperature 0.8\n  mpiexec -n 4 trireme generate inputs/tiny.toml --prompts questions.txt "
      "--top-p 0.9 --stop Question: -o answers.jsonl");
  return command;
}

CLI::App* add_bench_options(CLI::App& app, BenchOptions& options) {
  CLI::App* command = app.add_subcommand(
      "bench", "Measure kernels, messages and checkpoints with a deck's model on this machine");
  add_deck_arguments(*command, options.deck, options.overrides);
  command
      ->add_option_function<std::string>(
          "--only",
          [&options](const std::string& names) {
            for (std::size_t at = 0; at <= names.size();) {
              const std::size_t comma = std::min(names.find(',', at), names.size());
              options.only.push_back(names.substr(at, comma - at));
              at = comma + 1;
            }
          },
          "Sections, separated by commas: bandwidth, matmul, kernels, communication, checkpoint, "
          "background, index; default: all")
      ->type_name("SECTIONS");
  command
      ->add_option("--rounds", options.rounds,
                   "Number of measurements; the best or the median is reported")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1000}));
  command->add_option("--json", options.json, "Output file for the results")->type_name("FILE");
  command
      ->add_option("--machine-file", options.machine_file,
                   "Output file that describes this machine for check, plan and predict")
      ->type_name("FILE");
  command->footer(
      "With --machine-file, only the sections that it needs are measured unless --only names "
      "more.\n"
      "`checkpoint`, `background` and `index` write temporary files to the deck's checkpoint "
      "directory. `background` trains some steps on the deck's training file.\n"
      "\nExample:\n  mpiexec -n 2 trireme bench inputs/tiny.toml --only "
      "bandwidth,matmul,kernels,communication --json bench.json");
  return command;
}

CLI::App* add_doctor_options(CLI::App& app, DoctorOptions& options) {
  CLI::App* command = app.add_subcommand(
      "doctor", "Test launcher, cores, devices, file system, clocks and limits of a job");
  command
      ->add_option("--folder", options.folder,
                   "Existing folder on the file system of the runs, in which small files are "
                   "written and removed")
      ->capture_default_str()
      ->type_name("FOLDER");
  add_json_option(*command, options.json, "the findings");
  command->footer(
      "Run it as you will run `train`: with the same launcher, nodes and ranks. It prints one "
      "line\n"
      "per check: ok, warning or failure, what was found, and what to do. Exit code 1 means that "
      "a\n"
      "check failed.\n"
      "\nExamples:\n  mpiexec -n 2 trireme doctor\n  srun trireme doctor --folder $SCRATCH/runs");
  return command;
}

std::string help_text(const CLI::App& app) {
  // app.help() of `trireme help` would describe the subcommand that was used.
  const std::string name = (app.get_parent() == nullptr ? "" : "trireme ") + app.get_name();
  const std::string words = app.get_formatter()->make_help(&app, name, CLI::AppFormatMode::Normal);
  const std::size_t examples = std::min(words.find("\nExample"), words.size());
  const std::size_t columns = terminal::columns();
  return terminal::wrapped(words.substr(0, examples), columns) +
         terminal::wrapped(words.substr(examples), columns, " \\");
}

bool parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  terminal::expect_valid_variables();
  expect_valid_bf16_variable();
  check_paths(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto used = app.get_subcommands();
    std::cout << help_text(used.empty() ? app : *used.front());
    return false;
  } catch (const CLI::Success& success) {  // the version was requested
    app.exit(success, std::cout, std::cerr);
    return false;
  } catch (const CLI::ParseError& error) {
    std::string command;
    for (const CLI::App* used : app.get_subcommands()) command += " " + used->get_name();
    throw UsageError(text(complaint(app, error, argc, argv), "\n  `trireme", command,
                          " --help` lists arguments and options"));
  }
  return true;
}

namespace {

/// Whether none of these variables has a value above 0.
template <std::size_t n>
bool none_is_positive(const std::array<const char*, n>& names) {
  return std::ranges::none_of(names, [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && std::string_view(value).find_first_of("123456789") == 0;
  });
}

}  // namespace

bool is_first_process() {
  // Variables of Hydra (MPICH, Intel MPI) and Cray's PMI, of Open MPI, PMIx, PALS and Slurm.
  return none_is_positive(
      std::array{"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PALS_RANKID", "SLURM_PROCID"});
}

bool is_first_on_node() {
  return none_is_positive(std::array{"MPI_LOCALRANKID", "PMI_LOCAL_RANK",
                                     "OMPI_COMM_WORLD_LOCAL_RANK", "PALS_LOCAL_RANKID",
                                     "SLURM_LOCALID"});
}

}  // namespace trireme::commands
