// `trireme init`: tokenizes a text, chooses a first run on it and writes its deck.
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/init/first_run.hpp>
#include <trireme/data/token_source.hpp>
#include <trireme/data/tokenize.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/deck/checks.hpp>
#include <trireme/deck/families.hpp>
#include <trireme/deck/value.hpp>
#include <trireme/hugging_face/config_json.hpp>
#include <trireme/installation/this_installation.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/input_file.hpp>
#include <trireme/plan/machine_file.hpp>

#include <CLI/CLI.hpp>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <vector>

namespace trireme::commands {
namespace {

namespace fs = std::filesystem;

struct InitOptions {
  std::vector<std::string> inputs;
  std::string deck;
  std::string validation;
  std::string family = "llama";
  std::string tokenizer;
  std::int64_t vocabulary = 0;
  std::string separator;
  std::string chat;
  std::int64_t ranks = 0;
  std::string machine;
  std::string time = "1:00:00";
  bool lora = false;
};

bool is_model_folder(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::path(path) / "config.json", error);
}

bool is_token_file(const std::string& path) {
  return (path.ends_with(".h5") || path.ends_with(".idx")) && data::tokens_exist(path);
}

/// Removes the Hugging Face folder from the inputs and returns it; "" if there is none.
std::string take_model(std::vector<std::string>& inputs) {
  std::string model;
  std::erase_if(inputs, [&](const std::string& input) {
    if (!is_model_folder(input)) return false;
    check_usage(model.empty(), model, " and ", input, " are both model folders; give only one");
    model = input;
    return true;
  });
  return model;
}

/// Number of cores that this process may use.
std::int64_t own_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));  // there are more cores than fit into the set
}

/// Peak fp32 rate of a core's products, FLOP/s, from its clock and its vector units; 0: unknown.
double core_peak() {
  std::ifstream in("/proc/cpuinfo");
  double clock = 0;
  if (std::ifstream highest("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
      highest >> clock)
    clock *= 1e3;
  double per_cycle = 0;
  for (std::string line; std::getline(in, line) && (clock == 0 || per_cycle == 0);) {
    if (clock == 0 && line.starts_with("cpu MHz"))
      clock = std::atof(line.c_str() + line.find(':') + 1) * 1e6;
    if (!line.starts_with("flags")) continue;
    const auto has = [&](const char* flag) { return line.find(flag) != line.npos; };
    per_cycle = has(" avx512f") ? 48 : has(" fma") ? 32 : has(" avx") ? 16 : 8;
  }
  return clock * per_cycle;
}

/// The machine of --machine, or else this machine with typical speeds.
plan::Machine machine_of(const InitOptions& options, std::int64_t ranks) {
  if (!options.machine.empty()) return plan::load_machine(options.machine);
  plan::Machine machine = installation::this_machine();
  if (!machine.on_device()) {
    machine.device.peak_fp32 = core_peak();
    const auto pages = static_cast<Bytes>(sysconf(_SC_PHYS_PAGES));
    machine.device.memory = pages * sysconf(_SC_PAGESIZE) / 10 * 8 / ranks;
  }
  return plan::with_usual_speeds(machine);
}

/// Seconds of a duration: "2h", "30m", "90s" or "12:00:00". UsageError for any other text.
Seconds wanted_seconds(const std::string& written) {
  Seconds seconds = 0;
  char* end = nullptr;
  const double number = std::strtod(written.c_str(), &end);
  const std::string unit = end;
  if (unit == "h" || unit == "m" || unit == "min" || unit == "s")
    seconds = number * (unit == "h" ? 3600 : unit == "s" ? 1 : 60);
  else
    seconds = deck::parse_duration(written).value_or(0);
  check_usage(seconds >= 1 && seconds < 1e9, "--time ", written,
              ": expected a duration such as 90m, 2h or 12:00:00");
  return seconds;
}

std::string folder_of(const Wish& wish) {
  return "data/" + wish.name;
}

/// Paths of the token files and tokenizer to create. UsageError if one of them exists.
std::vector<std::string> own_files(const InitOptions& options, const Wish& wish) {
  const std::string folder = folder_of(wish);
  const std::string train = folder + "/train.h5";
  const std::string validation = folder + "/validation.h5";
  std::vector<std::string> files{train, validation};
  if (options.tokenizer.empty() && wish.imported.empty())
    files.push_back(folder + "/tokenizer.json");
  for (const std::string& file : files) {
    std::error_code error;
    check_usage(!fs::exists(file, error), file, " exists already; to use it, run `trireme init ",
                train, " --validation ", validation, " -o ", options.deck,
                "`; otherwise remove it, or choose another name for the deck");
  }
  return files;
}

/// Files and folders besides the deck that the destructor removes unless keep() was called.
class NewFiles {
 public:
  NewFiles(std::string folder, std::vector<std::string> files)
      : folder_(std::move(folder)), files_(std::move(files)) {
    std::error_code error;
    for (fs::path path = folder_; !path.empty(); path = path.parent_path())
      if (!fs::exists(path, error)) folders_.push_back(path);
  }
  ~NewFiles() {
    std::error_code ignored;
    if (kept_) return;
    for (const std::string& file : files_) fs::remove(file, ignored);
    for (const fs::path& folder : folders_) fs::remove(folder, ignored);  // only if it is empty
  }
  NewFiles(const NewFiles&) = delete;
  NewFiles& operator=(const NewFiles&) = delete;
  void keep() { kept_ = true; }

 private:
  std::string folder_;
  std::vector<std::string> files_;
  std::vector<fs::path> folders_;  ///< innermost first
  bool kept_ = false;
};

std::int64_t bytes_of_texts(const std::vector<std::string>& inputs, const std::string& folder) {
  std::int64_t bytes = 0;
  std::vector<char> buffer(1 << 20);
  for (const std::string& path : data::input_files(inputs, {folder + "/train.h5"})) {
    check_usage(path != "-", "`trireme init` reads texts twice; give files in place of -");
    io::TextReader reader(path);
    while (const std::size_t more = reader.read(buffer)) bytes += static_cast<std::int64_t>(more);
  }
  return bytes;
}

/// Writes the token files to data/NAME/, where NAME is the name of the deck.
void tokenize_texts(const InitOptions& options, Wish& wish) {
  check_usage(options.validation.empty(),
              "--validation is for token files; `trireme init` divides texts itself: leave it out");
  const std::string folder = folder_of(wish);
  data::TokenizeOptions o;
  o.inputs = options.inputs;
  o.output = folder + "/train.h5";
  o.validation_output = folder + "/validation.h5";
  o.validation_fraction = options.chat.empty() ? 0.02 : 0.05;
  o.document_separator = options.separator;
  if (!options.chat.empty()) o.chat = data::chat_format(options.chat);
  o.tokenizer = !options.tokenizer.empty() ? options.tokenizer
                : wish.imported.empty()    ? "bytes"
                                           : wish.imported;
  if (o.tokenizer == "bytes" && options.tokenizer.empty()) {
    o.train_bpe = options.vocabulary > 0
                      ? options.vocabulary
                      : suitable_vocabulary(bytes_of_texts(options.inputs, folder));
    if (o.train_bpe > 0) o.tokenizer = folder + "/tokenizer.json";
  }
  tokenize_and_report(o, "");
  wish.train = o.output;
  wish.validation = o.validation_output;
}

/// Sets wish.train and wish.validation to existing files. UsageError for options that do not fit.
void use_token_files(const InitOptions& options, Wish& wish) {
  check_usage(options.inputs.size() == 1, options.inputs.front(), " is a token file, and ",
              options.inputs.back(),
              " comes with it; give one token file, or texts only; a blend "
              "of token files is written as [data] train in the deck");
  check_usage(options.vocabulary == 0 && options.separator.empty() && options.chat.empty(),
              options.inputs.front(), " is tokenized already; leave --vocabulary, --chat and ",
              "--document-separator out");
  wish.train = options.inputs.front();
  wish.validation = options.validation;
  check_usage(wish.validation.empty() || data::tokens_exist(wish.validation), "--validation ",
              wish.validation, ": no such token file");
}

std::int64_t longest_document(const data::TokenSource& file) {
  std::vector<std::int64_t> begins(1 << 16);
  std::int64_t longest = 0;
  const std::int64_t step = std::ssize(begins) - 1;
  for (std::int64_t first = 0; first < file.documents(); first += step) {
    const auto count = static_cast<std::size_t>(std::min(step, file.documents() - first)) + 1;
    file.read_document_offsets(first, std::span(begins).first(count));
    for (std::size_t i = 1; i < count; ++i) longest = std::max(longest, begins[i] - begins[i - 1]);
  }
  return longest;
}

/// Sets the numbers of tokens, the tokenizer and the vocabulary size in `wish`.
void read_token_files(const InitOptions& options, Wish& wish) {
  const auto train = data::open_tokens(wish.train);
  wish.tokens = train->tokens();
  if (train->has_mask()) wish.longest_chat = longest_document(*train);
  if (!wish.validation.empty()) wish.held_out = data::open_tokens(wish.validation)->tokens();
  wish.tokenizer = options.tokenizer.empty() ? train->tokenizer_source().path : options.tokenizer;
  check_usage(!wish.tokenizer.empty(), wish.train,
              " does not name its tokenizer; set --tokenizer to the tokenizer that made it");
  const auto tokenizer = data::make_tokenizer(wish.tokenizer);
  check_usage(train->tokenizer().empty() || train->tokenizer() == tokenizer->name(), wish.train,
              " was made with the tokenizer ", train->tokenizer(), ", but ", wish.tokenizer, " is ",
              tokenizer->name(), "; set --tokenizer to the tokenizer that made it");
  wish.vocabulary = std::max<std::int64_t>(train->vocabulary(), tokenizer->vocabulary());
}

void read_model(const InitOptions& options, Wish& wish) {
  if (wish.imported.empty()) {
    check_usage(!options.lora, "--lora tunes a model; give its Hugging Face folder too");
    wish.family = options.family;
    wish.model = deck::preset(*parse<Family>(options.family));
    check_usage(wish.model.objective != Objective::corrupted_spans, "--family ", options.family,
                " is a model with an encoder, for which init writes no deck; begin with "
                "inputs/tiny_t5.toml");
    return;
  }
  const std::string path = wish.imported + "/config.json";
  const auto file = hugging_face::parse_config(io::read_text_file(path, 1 << 20), path);
  check_usage(!file.model.vision.present(), path,
              ": the model sees images, and init makes token files of texts; write a deck with the "
              "output of `trireme import ",
              wish.imported, "`, and token files with `trireme tokenize`");
  wish.imported_model = hugging_face::model_toml(file);
  wish.model = file.model;
  wish.lora = options.lora;
}

std::string why(const Wish& wish, const FirstRun& run) {
  if (run.seconds() > wish.seconds * 1.05)
    return "the smallest useful run, which takes longer than --time";
  if (!wish.imported.empty())
    return run.bound == Bound::time && run.epochs < tuning_epochs * 0.99
               ? "fewer epochs than usual, because of --time"
               : text("fine-tuning reads the data ", tuning_epochs, " times");
  switch (run.bound) {
    case Bound::time:
      return text("the largest model that sees ", tokens_per_parameter,
                  " tokens per parameter or more in this time");
    case Bound::data:
      return text("the amount of text limits the model: more than ", most_epochs,
                  " epochs gain little; more text allows a larger model");
    case Bound::memory:
      return "the largest model that fits into the memory";
  }
  return "";
}

void report(const InitOptions& options, const Wish& wish, const FirstRun& run) {
  say("model       ", wish.imported.empty() ? wish.family : wish.imported,
      wish.imported.empty() ? text(", ", run.layers, " layers, hidden ", run.hidden) : "", ", ",
      with_commas(run.parameters), " parameters, sequence ", run.sequence,
      wish.lora ? ", low-rank adapters" : "");
  say("run         ", with_commas(run.steps), " steps of ", run.samples,
      run.samples == 1 ? " sample: " : " samples: ", with_commas(run.tokens()), " tokens, ",
      fixed(run.epochs, 1), " epochs");
  say("why         ", why(wish, run));
  const plan::Layout& l = run.layout.layout;
  say("layout      data ", l.data, " · pipeline ", l.pipeline, " · tensor ", l.tensor,
      ", micro-batches of ", l.micro, " on ", wish.ranks, wish.ranks == 1 ? " rank" : " ranks");
  say("time        about ", human_seconds(run.seconds()), ", ",
      fixed(run.layout.seconds(), run.layout.seconds() < 1 ? 3 : 1), " s per step",
      wish.machine.file.empty()
          ? ", by typical speeds; the lines of `trireme train` show the real time"
          : "");
  say("wrote       ", options.deck, "; continue with");
  if (!wish.imported.empty()) say("  trireme import ", wish.imported, " ", options.deck);
  say("  ", wish.launcher, "trireme train ", options.deck);
  say("  ", wish.launcher, "trireme generate ", options.deck,
      options.chat.empty() ? "" : " --chat " + options.chat, " --prompt \"...\"");
  say("  trireme report runs/", wish.name);
}

void run(InitOptions options) {
  std::error_code error;
  check_usage(!fs::exists(options.deck, error), options.deck,
              " exists already; choose another name, or remove it");
  check_usage(options.deck.ends_with(".toml"), "-o ", options.deck,
              ": the name of a deck ends with .toml; write -o ", options.deck, ".toml");
  Wish wish;
  wish.deck = options.deck;
  wish.name = fs::path(options.deck).stem().string();
  wish.seconds = wanted_seconds(options.time);
  wish.ranks = options.ranks > 0 ? options.ranks : own_cores();
  if (wish.ranks > 1) wish.launcher = text("mpiexec -n ", wish.ranks, " ");
  wish.machine = machine_of(options, wish.ranks);
  wish.imported = take_model(options.inputs);
  check_usage(!options.inputs.empty(), wish.imported,
              " is a model; give the texts or the token file to tune it with, too");
  read_model(options, wish);
  const bool tokenized = std::ranges::any_of(options.inputs, is_token_file);
  NewFiles files(folder_of(wish),
                 tokenized ? std::vector<std::string>{} : own_files(options, wish));
  if (tokenized)
    use_token_files(options, wish);
  else
    tokenize_texts(options, wish);
  read_token_files(options, wish);
  deck::PrecisionConfig precision;
  if (wish.machine.on_device()) precision.compute = DType::bf16;  // as in the deck that is written
  const std::string missing = wish.machine.time_mistake(precision, wish.ranks);
  check_usage(missing.empty(), wish.machine.called(), " does not give ", missing,
              ", without which no time can be predicted; measure it by `trireme bench DECK "
              "--machine-file FILE`");
  const FirstRun chosen = choose_first_run(wish);
  io::replace_file(options.deck, chosen.deck);
  files.keep();
  report(options, wish, chosen);
}

}  // namespace

void add_init(CLI::App& app) {
  auto* command =
      app.add_subcommand("init", "Write a deck for a first run on a text, with its token files");
  const auto options = std::make_shared<InitOptions>();
  command
      ->add_option("DATA", options->inputs,
                   "Text files, JSON lines or folders of such files, or a token file; with the "
                   "folder of a Hugging Face model in addition, the deck tunes that model")
      ->required()
      ->type_name("");
  command
      ->add_option("-o,--output", options->deck,
                   "Deck to write; its name is also the name of the run")
      ->required()
      ->type_name("FILE");
  command->add_option("--time", options->time, "Wanted duration, such as 30m, 2h or 12:00:00")
      ->capture_default_str()
      ->type_name("DURATION");
  command->add_option("--ranks", options->ranks, "Number of ranks; default: cores of this machine")
      ->check(CLI::Range(std::int64_t{1}, deck::ranks_limit));
  command
      ->add_option("--machine", options->machine,
                   "Machine file with the speeds of the machine to train on; default: this "
                   "machine, with typical speeds")
      ->type_name("FILE");
  command->add_option("--family", options->family, "Architecture of a new model")
      ->capture_default_str()
      ->check(
          CLI::IsMember(std::vector<std::string>(names<Family>().begin(), names<Family>().end()))
              .description(""));
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "bytes, or a tokenizer's file or folder; default: the tokenizer of the token "
                   "file or the model, or a BPE trained on the texts")
      ->type_name("PATH");
  command
      ->add_option("--vocabulary", options->vocabulary,
                   "Vocabulary size of the BPE; default: by the size of the texts")
      ->check(CLI::Range(std::int64_t{257}, std::int64_t{1} << 24))
      ->type_name("IDS");
  command
      ->add_option("--document-separator", options->separator,
                   "As for `trireme tokenize`: separates the documents of a file")
      ->type_name("PATTERN");
  command->add_option("--chat", options->chat, "As for `trireme tokenize`: format of conversations")
      ->check(CLI::IsMember(data::chat_format_names()).description(""))
      ->type_name("FORMAT");
  command
      ->add_option(
          "--validation", options->validation,
          "Token file for validation if DATA is a token file; texts are divided automatically")
      ->type_name("FILE");
  command->add_flag("--lora", options->lora, "Train only low-rank adapters of the model");
  command->footer(
      "Writes data/NAME/ with the token files and the deck NAME.toml, whose run is in runs/NAME.\n"
      "\nExamples:\n  trireme init my.txt -o my.toml --time 30m\n"
      "  trireme init model/ chats.jsonl --chat chatml --lora -o tuned.toml");
  command->callback([options] { run(*options); });
}

}  // namespace trireme::commands
