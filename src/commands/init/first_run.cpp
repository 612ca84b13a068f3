// Chooses the size of a first run by published rules and predicted times, and writes its deck.
#include <trireme/commands/init/first_run.hpp>

#include <trireme/architecture/architecture.hpp>
#include <trireme/base/check.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/deck/value.hpp>
#include <trireme/installation/this_installation.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

namespace trireme::commands {
namespace {

constexpr std::int64_t least_steps = 100;
constexpr std::int64_t least_sequence = 32;

/// Layers and width. Width / layers grows with the width, as in published models: 4 layers of width
/// 192, 12 of 768, 24 of 2048, 32 of 4096.
struct Shape {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
};

std::vector<Shape> shapes() {
  std::vector<Shape> out;
  for (const std::int64_t hidden :
       {64,   96,   128,  192,  256,  384,  512,  640,  768,  896,   1024, 1280,
        1536, 1792, 2048, 2560, 3072, 4096, 5120, 6144, 8192, 10240, 12288}) {
    const double width = static_cast<double>(hidden);
    std::int64_t layers = std::max<std::int64_t>(2, std::llround(width / (48 + width / 48)));
    if (layers > 3) layers = 2 * ((layers + 1) / 2);
    out.push_back({layers, hidden, hidden / (hidden < 256 ? 32 : hidden < 4096 ? 64 : 128)});
  }
  return out;
}

/// Suitable number of tokens per sample for a model with this many parameters.
std::int64_t suitable_sequence(double parameters) {
  return parameters < 5e6 ? 256 : parameters < 5e7 ? 512 : parameters < 5e8 ? 1024 : 2048;
}

/// Best batch, in tokens, and best learning rate for a run of this many FLOPs (Bi et al. 2024,
/// DeepSeek LLM, arXiv 2401.02954, section 3.1). The learning rate is capped at its value for
/// 1.4e16 FLOPs.
double suitable_batch(double flops) {
  return 0.292 * std::pow(flops, 0.3271);
}
double suitable_learning_rate(double flops) {
  return std::min(3e-3, 0.3118 * std::pow(flops, -0.125));
}

/// Rounds down to two significant digits, at least 1.
std::int64_t rounded(double number) {
  const double unit =
      std::pow(10, std::max(0.0, std::floor(std::log10(std::max(1.0, number))) - 1));
  return std::max<std::int64_t>(1, std::llround(std::floor(number / unit) * unit));
}

std::string two_digits(double number) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.1e", number);
  return buffer;
}

std::string head_text(const Wish& wish) {
  const std::string& deck = wish.deck;
  std::string out = installation::schema_line("deck") +
                    "# Written by `trireme init`. `trireme help deck` explains all keys.\n#\n";
  if (!wish.imported.empty()) out += text("#   trireme import ", wish.imported, " ", deck, "\n");
  out += text("#   trireme check ", deck, " --ranks ", wish.ranks, "\n#   ", wish.launcher,
              "trireme train ", deck,
              "     # the same command continues a run that was interrupted\n");
  if (!wish.validation.empty()) out += text("#   ", wish.launcher, "trireme eval ", deck, "\n");
  return out + text("#   trireme report runs/", wish.name, "\n");
}

std::string model_text(const Wish& wish, const FirstRun& run, const Shape& shape) {
  if (!wish.imported.empty()) {
    std::string out = wish.imported_model;
    const std::size_t at = out.find("\nsequence = ");
    check(at != out.npos, wish.imported, ": its model has no sequence");
    const std::size_t end = std::min(out.find('\n', at + 1), out.size());
    return out.replace(at, end - at, text("\nsequence = ", run.sequence)) + "\n";
  }
  return text(
      "[model]\nfamily = \"", wish.family, "\"\nlayers = ", shape.layers,
      "\nhidden = ", shape.hidden, "\nheads = ", shape.heads, "\nsequence = ", run.sequence,
      "             # tokens per sample\n",
      wish.model.predicts_masked_tokens() ? "" : text("vocabulary = ", wish.vocabulary, "\n"),
      run.epochs > 4 ? "dropout = 0.1              # the run has more than 4 epochs\n" : "");
}

std::string adapter_text(const Wish& wish) {
  if (!wish.lora) return "";
  const deck::ModelConfig& m = wish.model;
  const char* feed_forward = m.experts.present() ? ""
                             : m.gated() ? ", \"feed_forward.gate_up\", \"feed_forward.down\""
                                         : ", \"feed_forward.up\", \"feed_forward.down\"";
  return text("\n[adapter]\nkind = \"lora\"\nrank = 16\nalpha = 32\ntargets = [",
              m.gated() ? "\"attention.query\", \"attention.key_value\", \"attention.output\""
                        : "\"attention.query_key_value\", \"attention.output\"",
              feed_forward, "]\n");
}

std::string optimizer_text(const Wish& wish, const FirstRun& run) {
  const bool tunes = !wish.imported.empty();
  return text("\n[optimizer]\nlearning_rate = ", two_digits(run.learning_rate),
              tunes ? "" : text("\nminimum_learning_rate = ", two_digits(run.learning_rate / 10)),
              "\nwarmup_steps = ", std::clamp<std::int64_t>(run.steps / 20, 1, 2000),
              tunes ? "\n" : "\nweight_decay = 0.1\n");
}

/// Text of the deck. With layout = "auto", the run may continue with another number of ranks.
std::string deck_text(const Wish& wish, const FirstRun& run, const Shape& shape) {
  const std::int64_t interval = rounded(static_cast<double>(run.steps) / 10);
  // Checkpoints are about a minute or more apart. An evaluation reads at most 20 batches.
  const std::int64_t saved = std::clamp(rounded(60 / std::max(run.layout.seconds(), 1e-6)),
                                        interval, std::max(interval, run.steps));
  const std::int64_t evaluated = std::clamp<std::int64_t>(interval / 5, 1, 20);
  std::string out = head_text(wish);
  out += text("\n[run]\ndirectory = ", deck::in_quotes("runs/" + wish.name),
              "\nsteps = ", run.steps, "               # ", with_commas(run.tokens()),
              " tokens: ", fixed(run.epochs, 1), " epochs of the text\nlog_every = ",
              std::max<std::int64_t>(1, rounded(static_cast<double>(run.steps) / 200)), "\n");
  if (!wish.validation.empty())
    out += text("evaluate_every = ", interval, "\nevaluate_batches = ", evaluated,
                "      # `trireme eval` evaluates the whole file\n");
  out += "\n" + model_text(wish, run, shape) + adapter_text(wish);
  out +=
      "\n[parallel]\nlayout = \"auto\"            # chosen by the planner for the ranks of each "
      "start\n";
  if (!wish.machine.file.empty())
    out += text("machine = ", deck::in_quotes(wish.machine.file), "\n");
  out += text("\n[batch]\nglobal = ", run.samples,
              "                # samples per optimizer step, over all ranks\n");
  if (wish.machine.on_device())
    out += "\n[precision]\ncompute = \"bf16\"           # with fp32 master weights\n";
  out += optimizer_text(wish, run);
  out += text("\n[data]\ntrain = ", deck::in_quotes(wish.train), "\n");
  if (!wish.validation.empty())
    out += text("validation = ", deck::in_quotes(wish.validation), "\n");
  out += text("tokenizer = ", deck::in_quotes(wish.tokenizer), "\n");
  if (wish.longest_chat > 0)
    out += "packing = \"documents\"      # a token sees its own conversation alone\n";
  out += text("\n[checkpoint]\nevery = ", saved,
              "\nkeep = 2\nrestart = \"latest\"         # the same command starts the run and ",
              "continues it\n");
  return out;
}

/// Whether a model computes another function for samples of another length.
bool depends_on_sequence(const deck::ModelConfig& model) {
  deck::ModelConfig shorter = model;
  shorter.sequence = 1;
  return deck::effect_of_sequence(model, shorter).effect != deck::Effect::numbers;
}

/// Chooses the run for a model of a given shape.
class Sizing {
 public:
  explicit Sizing(const Wish& wish) : wish_(wish) {}

  /// The run of a model of this shape, with the fastest layout. UsageError if the text is too
  /// short, or if no layout fits the ranks and the memory.
  FirstRun of(const Shape& shape) const {
    FirstRun run;
    run.layers = shape.layers;
    run.hidden = shape.hidden;
    const bool tunes = !wish_.imported.empty();
    run.sequence = sequence_of(shape);
    const architecture::Architecture model = architecture_of(run, shape);
    run.parameters = model.parameters();
    const double text = static_cast<double>(wish_.tokens);
    const double wanted =
        tunes ? tuning_epochs * text : tokens_per_parameter * static_cast<double>(run.parameters);
    const double tokens = std::min(wanted, (tunes ? tuning_epochs : most_epochs) * text);
    run.bound = wanted > tokens ? Bound::data : Bound::time;
    const double flops = model.model_flops_per_token() * tokens;
    run.learning_rate = tunes ? (wish_.lora ? 2e-4 : 2e-5) : suitable_learning_rate(flops);
    set_steps(run, tokens,
              tunes ? 16.0 * static_cast<double>(run.sequence) : suitable_batch(flops));
    plan(run, shape);
    return run;
  }

  /// Adapts the number of steps to the wanted time: fewer steps if the run is too long, more if the
  /// model is new and the text suffices.
  void fill_time(FirstRun& run, const Shape& shape) const {
    const double steps = wish_.seconds / run.layout.seconds();
    const bool late = run.seconds() > wish_.seconds;
    if (!late && (run.bound == Bound::data || !wish_.imported.empty())) return;
    const double most = most_epochs * static_cast<double>(wish_.tokens) /
                        static_cast<double>(run.samples * run.sequence);
    run.steps = std::max(std::min(least_steps, run.steps), rounded(std::min(steps, most)));
    if (late) run.bound = Bound::time;
    count_epochs(run);
    run.deck = deck_text(wish_, run, shape);
  }

 private:
  /// Number of tokens per sample.
  std::int64_t sequence_of(const Shape& shape) const {
    const bool tunes = !wish_.imported.empty();
    if (tunes && depends_on_sequence(wish_.model)) return wish_.model.sequence;
    const std::int64_t most = tunes ? wish_.model.sequence : 4096;
    if (wish_.longest_chat > 0) {
      const auto longest = static_cast<std::uint64_t>(wish_.longest_chat);
      return std::min<std::int64_t>(std::max<std::uint64_t>(64, std::bit_ceil(longest)), most);
    }
    std::int64_t sequence =
        tunes ? std::min<std::int64_t>(most, 1024)
              : suitable_sequence(12.0 * static_cast<double>(shape.layers) *
                                  static_cast<double>(shape.hidden * shape.hidden));
    const std::int64_t least =
        std::min(wish_.tokens / 8, wish_.validation.empty() ? wish_.tokens : wish_.held_out) - 1;
    while (sequence > least && sequence / 2 >= least_sequence) sequence /= 2;
    check_usage(
        sequence <= least, wish_.train, ": ", with_commas(wish_.tokens), " tokens for training",
        wish_.validation.empty() ? std::string()
                                 : text(" and ", with_commas(wish_.held_out), " for validation"),
        " are too few; a run needs ", 8 * (least_sequence + 1), " and ", least_sequence + 1,
        " at least, and some 100,000 to learn anything. Give more text");
    return sequence;
  }

  architecture::Architecture architecture_of(const FirstRun& run, const Shape& shape) const {
    FirstRun any = run;
    any.samples = any.steps = 1;
    return architecture::describe(read(any, shape).config.model);
  }

  deck::Deck read(const FirstRun& run, const Shape& shape) const {
    deck::Deck deck = deck::parse_deck(deck_text(wish_, run, shape), wish_.deck);
    if (deck.config.model.vocabulary == 0) deck.config.model.vocabulary = wish_.vocabulary + 3;
    return deck;
  }

  /// Sets the number of steps and the samples per step, a multiple of the ranks if the suitable
  /// batch has at least one sample per rank.
  void set_steps(FirstRun& run, double tokens, double batch) const {
    const auto sample = static_cast<double>(run.sequence);
    const auto most = static_cast<std::int64_t>(tokens / sample / least_steps);
    std::int64_t samples = std::llround(std::min(batch / sample, std::max(1.0, double(most))));
    samples = std::max<std::int64_t>(1, samples);
    const std::int64_t ranks = wish_.ranks;
    if (samples > 4 * ranks)
      samples -= samples % (4 * ranks);
    else if (samples > ranks)
      samples -= samples % ranks;
    else
      samples = std::max(samples, std::min(ranks, most));
    run.samples = std::max<std::int64_t>(1, samples);
    run.steps =
        std::max<std::int64_t>(20, rounded(tokens / sample / static_cast<double>(run.samples)));
    count_epochs(run);
  }

  void count_epochs(FirstRun& run) const {
    run.epochs = static_cast<double>(run.tokens()) / static_cast<double>(wish_.tokens);
  }

  void plan(FirstRun& run, const Shape& shape) const {
    const plan::SearchResult found = plan::search_layouts(
        read(run, shape), wish_.ranks, wish_.machine, {.best = 3, .of_front = 0});
    run.layout = found.candidates.front();
    run.deck = deck_text(wish_, run, shape);
  }

  const Wish& wish_;
};

}  // namespace

FirstRun choose_first_run(const Wish& wish) {
  const Sizing sizing(wish);
  const std::vector<Shape> all = wish.imported.empty() ? shapes() : std::vector<Shape>{Shape{}};
  Shape shape;
  std::optional<FirstRun> best;
  std::string problem;
  for (const Shape& next : all) {
    try {
      const FirstRun larger = sizing.of(next);
      if (best && larger.seconds() > wish.seconds) break;
      best = larger;
      shape = next;
    } catch (const UsageError& error) {
      problem = error.what();
      if (!best) continue;
      best->bound = Bound::memory;
      break;
    }
    if (best->bound == Bound::data) break;
  }
  check_usage(best.has_value(), problem);
  sizing.fill_time(*best, shape);
  return *best;
}

std::int64_t suitable_vocabulary(std::int64_t text_bytes) {
  struct Row {
    double bytes;
    std::int64_t ids;
  };
  constexpr std::array rows{Row{1e5, 0},    Row{1e7, 1024},   Row{1e8, 4096},
                            Row{1e9, 8192}, Row{1e10, 16384}, Row{1e11, 32768}};
  for (const Row& row : rows)
    if (static_cast<double>(text_bytes) < row.bytes) return row.ids;
  return 65536;
}

}  // namespace trireme::commands
