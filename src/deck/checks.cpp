// Conditions on several keys of a deck, and on its layout once the number of ranks is known.
#include <trireme/deck/checks.hpp>

#include <trireme/base/check.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/deck/choices.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/deck/precision_checks.hpp>
#include <trireme/deck/ramp_check.hpp>
#include <trireme/deck/special_tokens.hpp>

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace trireme::deck {
namespace {

// Parameters, activations and FLOPs of a token are counted in 64 bits.
constexpr double count_limit = 1e15;
constexpr double step_limit = 1e17;  // activations of a replica's step; their bytes are counted too

/// Activations of the forward pass of one micro-batch.
double activations_of(const Config& config) {
  const ModelConfig& m = config.model;
  const double per_layer = 4 * static_cast<double>(m.hidden) +
                           4 * static_cast<double>(m.heads * m.head_size()) +
                           2 * static_cast<double>(m.feed_forward);
  const double per_token =
      static_cast<double>(m.layers) * per_layer + static_cast<double>(m.vocabulary);
  return static_cast<double>(config.batch.micro) * static_cast<double>(m.sequence) * per_token;
}

class CrossCheck {
 public:
  CrossCheck(const Deck& deck, const std::set<std::string>& invalid, Diagnostics& diagnostics)
      : deck_(deck), invalid_(invalid), diagnostics_(diagnostics) {}

  bool valid(std::initializer_list<const char*> names) const {
    return std::ranges::none_of(
        names, [&](const char* name) { return invalid_.contains(name) || open(name); });
  }
  /// layout = "auto" is yet to choose the value. Until then batch.micro has its smallest value,
  /// with which most conditions can be checked.
  bool open(std::string_view name) const {
    if (deck_.config.parallel.layout != LayoutMode::automatic || !name.starts_with("parallel."))
      return false;
    const auto is_key = [&](const Key* key) { return key->full_name() == name; };
    return std::ranges::any_of(layout_keys(), is_key) &&
           !is_fixed(deck_, "parallel", name.substr(name.find('.') + 1));
  }
  template <class... Parts>
  void report(const Parts&... parts) {
    diagnostics_.add(text(parts...));
  }

  void model() {
    const ModelConfig& m = deck_.config.model;
    if (valid({"model.hidden", "model.heads", "model.head_size"}) && m.explicit_head_size == 0 &&
        m.hidden % m.heads != 0)
      report(deck_.cite("model", "heads"), " does not divide ", deck_.cite("model", "hidden"),
             "; choose ", choices(divisors(m.hidden), m.heads), " heads, or set head_size");
    if (valid({"model.heads", "model.key_value_heads"}) && m.heads % m.key_value_heads != 0)
      report(deck_.cite("model", "key_value_heads"), " does not divide ",
             deck_.cite("model", "heads"), "; choose ",
             choices(divisors(m.heads), m.key_value_heads), " key_value_heads");
    if (valid({"model.positions", "model.hidden", "model.heads", "model.head_size"})) rotary();
    properties();
    if (m.predicts_masked_tokens()) pairs();
  }

  void rotary() {
    const ModelConfig& m = deck_.config.model;
    if (m.positions != Positions::rotary || m.head_size() % 2 == 0) return;
    if (m.explicit_head_size > 0)
      report(deck_.cite("model", "head_size"),
             " is odd, and rotary positions need an even number; choose ", m.head_size() + 1);
    else if (m.hidden % m.heads == 0)
      report(deck_.cite("model", "hidden"), " / ", deck_.cite("model", "heads"),
             " is a head size of ", m.head_size(), ", and rotary positions need an even one; ",
             m.hidden % 2 == 0 ? text("choose ", choices(divisors(m.hidden / 2), m.heads),
                                      " heads, or set head_size")
                               : text("set an even head_size, or choose an even hidden"));
  }

  /// Properties that contradict one another.
  void properties() {
    const ModelConfig& m = deck_.config.model;
    if (valid({"model.mask", "model.objective"}) && !m.causal() && !m.predicts_masked_tokens())
      report(deck_.cite("model", "mask"), " lets each token see the one that ",
             deck_.cite("model", "objective"),
             " predicts; choose mask = \"causal\", or objective = \"masked_token\"");
    if (valid({"model.mask", "model.window"}) && !m.causal() && m.window > 0)
      report(deck_.cite("model", "window"), " needs mask = \"causal\", but ",
             deck_.cite("model", "mask"), "; choose window = 0, or mask = \"causal\"");
    if (valid({"model.layers", "model.shared_layers"}) && m.shared_layers > m.layers)
      report(deck_.cite("model", "shared_layers"), " is more than ", deck_.cite("model", "layers"),
             "; choose at most ", m.layers);
  }

  /// Samples with masked tokens are [CLS] A [SEP] B [SEP].
  void pairs() {
    const ModelConfig& m = deck_.config.model;
    if (valid({"model.objective", "model.sequence"}) && m.text_tokens() < 2)
      report(deck_.cite("model", "sequence"),
             " has no room for two segments and their 3 special tokens; choose 5 or more");
    if (!valid({"model.vocabulary", "data.class_token", "data.separator_token", "data.mask_token"}))
      return;
    if (m.vocabulary == 0) return;  // checked when the token file is known
    for (const std::string& mistake : mistakes_of_special_tokens(deck_)) report(mistake);
  }

  /// Sizes in bytes must fit into 64 bits, which large values of several keys would exceed.
  void size() {
    const ModelConfig& m = deck_.config.model;
    if (!valid({"model.layers", "model.hidden", "model.feed_forward", "model.sequence",
                "model.vocabulary", "model.heads", "model.head_size", "batch.micro"}))
      return;
    const auto D = static_cast<double>(m.hidden);
    const auto S = static_cast<double>(m.sequence);
    const auto V = static_cast<double>(m.vocabulary);
    const auto F = static_cast<double>(m.feed_forward);
    const auto L = static_cast<double>(m.layers);
    const auto A = static_cast<double>(std::max(m.hidden, m.heads * m.head_size()));
    const double parameters = L * D * (4 * A + 3 * F) + (2 * V + S) * D;
    const double activations = activations_of(deck_.config);
    if (parameters > count_limit)
      report("[model] has ", parameters, " parameters, more than ", count_limit,
             "; choose fewer or smaller layers");
    if (activations > count_limit)
      report("[model] and ", deck_.cite("batch", "micro"), " need ", activations,
             " activations, more than ", count_limit, "; choose a smaller micro or model");
  }

  void batch() {
    const BatchConfig& b = deck_.config.batch;
    if (!valid({"batch.global", "batch.micro"})) return;
    if (b.global % b.micro != 0)
      report(deck_.cite("batch", "micro"), " does not divide ", deck_.cite("batch", "global"),
             "; choose a micro of ", choices(divisors(b.global), b.micro));
    else if (valid({"batch.ramp_start", "batch.ramp_increment", "batch.ramp_samples"}))
      if (const std::string mistake = ramp_mistake(deck_, 0); !mistake.empty()) report(mistake);
  }

  void precision() {
    if (valid({"precision.compute", "precision.tf32", "precision.attention", "model.dropout"}))
      for (const std::string& mistake : precision_mistakes(deck_)) report(mistake);
  }

  void optimizer() {
    const OptimizerConfig& o = deck_.config.optimizer;
    if (valid({"optimizer.learning_rate", "optimizer.minimum_learning_rate"}) &&
        o.minimum_learning_rate > o.learning_rate)
      report(deck_.cite("optimizer", "minimum_learning_rate"), " is larger than ",
             deck_.cite("optimizer", "learning_rate"), "; choose at most ", o.learning_rate);
    cooldown();
    if (valid({"optimizer.kind", "optimizer.nesterov", "optimizer.momentum"}) && o.nesterov &&
        (o.kind != OptimizerKind::sgd || o.momentum == 0))
      report(deck_.cite("optimizer", "nesterov"),
             " needs [optimizer] kind = \"sgd\" and a momentum above 0, but the deck has ",
             deck_.cite("optimizer", "kind"), " and ", deck_.cite("optimizer", "momentum"),
             "; remove nesterov, or change these");
    const bool steps_valid =
        valid({"run.steps", "optimizer.warmup_steps", "optimizer.decay_steps"});
    const bool decays = o.schedule != LearningRateSchedule::constant &&
                        o.schedule != LearningRateSchedule::inverse_square_root;
    if (steps_valid && decays && o.warmup_steps > o.decay_steps)
      report(deck_.cite("optimizer", "warmup_steps"), " is larger than ",
             deck_.cite("optimizer", "decay_steps"), "; choose a warmup_steps of at most ",
             o.decay_steps, ", or more decay_steps");
  }

  /// The phases of warmup_stable_decay follow one another.
  void cooldown() {
    const OptimizerConfig& o = deck_.config.optimizer;
    if (!valid({"optimizer.schedule", "optimizer.cooldown_steps"})) return;
    if (o.schedule != LearningRateSchedule::warmup_stable_decay) {
      if (o.cooldown_steps > 0)
        report(deck_.cite("optimizer", "cooldown_steps"),
               " applies to the schedule warmup_stable_decay, not to ",
               deck_.cite("optimizer", "schedule"),
               "; choose schedule = \"warmup_stable_decay\", or remove cooldown_steps");
      return;
    }
    if (o.cooldown_steps == 0)
      report(deck_.cite("optimizer", "schedule"), " needs ",
             deck_.cite("optimizer", "cooldown_steps"),
             " to be 1 or more; choose schedule = \"constant\" for a constant learning rate");
    if (!valid({"run.steps", "optimizer.warmup_steps", "optimizer.decay_steps"})) return;
    if (o.warmup_steps <= o.decay_steps && o.cooldown_steps > o.decay_steps - o.warmup_steps)
      report(deck_.cite("optimizer", "warmup_steps"), " and ",
             deck_.cite("optimizer", "cooldown_steps"), " together exceed ",
             deck_.cite("optimizer", "decay_steps"), "; choose a cooldown_steps of at most ",
             o.decay_steps - o.warmup_steps, ", or more decay_steps");
  }

  /// Each tensor rank needs a part of everything that the tensor axis divides.
  void tensor() {
    const ModelConfig& m = deck_.config.model;
    const std::int64_t tensor = deck_.config.parallel.tensor;
    const auto enough = [&](const char* name, std::int64_t size) {
      if (!valid({"parallel.tensor"}) || invalid_.contains(text("model.", name))) return;
      if (size > 0 && tensor > size)
        report(deck_.cite("parallel", "tensor"), " is larger than ", deck_.cite("model", name),
               "; choose a tensor of at most ", size);
    };
    enough("heads", m.heads);
    enough("feed_forward", m.feed_forward);
    enough("vocabulary", m.vocabulary);
    const std::int64_t tokens = deck_.config.batch.micro * m.sequence;
    if (deck_.config.parallel.layout == LayoutMode::automatic && !is_fixed(deck_, "batch", "micro"))
      return;
    if (valid({"parallel.tensor", "batch.micro", "model.sequence"}) && tensor > tokens)
      report(deck_.cite("parallel", "tensor"), " is larger than the ", tokens,
             " tokens of a micro-batch, ", deck_.cite("batch", "micro"), " · ",
             deck_.cite("model", "sequence"), "; choose a tensor of at most ", tokens);
  }

  /// There may be more stages than layers, but each stage has a row in every table.
  void stages() {
    const ParallelConfig& p = deck_.config.parallel;
    if (!valid({"parallel.pipeline", "parallel.chunks", "parallel.tensor", "parallel.data"}))
      return;
    if (p.pipeline * p.chunks > stages_limit)
      report(deck_.cite("parallel", "pipeline"), " · ", deck_.cite("parallel", "chunks"), " = ",
             p.pipeline * p.chunks, " stages are more than ", stages_limit, "; choose ",
             p.pipeline > stages_limit
                 ? text("a pipeline of at most ", stages_limit)
                 : text("at most ", stages_limit / p.pipeline, " chunks, or a smaller pipeline"));
    const std::int64_t data = std::max<std::int64_t>(1, p.data);
    if (p.tensor * p.pipeline * data > ranks_limit)
      report(deck_.cite("parallel", "tensor"), " · ", deck_.cite("parallel", "pipeline"), " · ",
             deck_.cite("parallel", "data"), " are ", p.tensor * p.pipeline * data,
             " ranks, more than ", ranks_limit, "; choose smaller axes");
  }

  void transport() {
    const ParallelConfig& p = deck_.config.parallel;
    if (valid({"parallel.transport", "parallel.share_devices"}) &&
        p.transport == TransportKind::nccl && p.share_devices)
      report(deck_.cite("parallel", "transport"), " needs one device per rank, but ",
             deck_.cite("parallel", "share_devices"),
             " lets ranks share one; choose transport = \"mpi\", or share_devices = false");
  }

  void layout() {
    for (const char* name :
         {"parallel.layout", "parallel.schedule", "parallel.data", "batch.global", "batch.micro",
          "batch.ramp_start", "batch.ramp_increment"})
      if (invalid_.contains(name)) return;
    for (const std::string& mistake : layout_mistakes(deck_)) report(mistake);
  }

  void schedule() {
    const ParallelConfig& p = deck_.config.parallel;
    if (p.layout == LayoutMode::automatic && p.schedule == ScheduleKind::file) return;
    if (!valid({"parallel.schedule", "parallel.chunks", "parallel.program"})) return;
    const bool file = p.schedule == ScheduleKind::file;
    if (p.schedule == ScheduleKind::interleaved && p.chunks < 2)
      report(deck_.cite("parallel", "schedule"), " needs 2 chunks or more, not ",
             deck_.cite("parallel", "chunks"), "; choose chunks = 2, or schedule = \"1f1b\"");
    if (p.schedule != ScheduleKind::interleaved && !file && p.chunks != 1)
      report(deck_.cite("parallel", "chunks"),
             " applies to the schedules interleaved and file, not to ",
             deck_.cite("parallel", "schedule"),
             "; choose schedule = \"interleaved\", or chunks = 1");
    if (file == p.program.empty())
      report(deck_.cite("parallel", "schedule"), file ? " needs " : " does not read ",
             deck_.cite("parallel", "program"),
             file ? "; set program to the path of a program file"
                  : "; choose schedule = \"file\", or leave program out");
  }

 private:
  const Deck& deck_;
  const std::set<std::string>& invalid_;
  Diagnostics& diagnostics_;
};

}  // namespace

void cross_check(const Deck& deck, const std::set<std::string>& invalid, Diagnostics& diagnostics) {
  CrossCheck checks(deck, invalid, diagnostics);
  checks.model();
  checks.size();
  checks.batch();
  checks.precision();
  checks.optimizer();
  checks.tensor();
  checks.stages();
  checks.layout();
  checks.schedule();
  checks.transport();
}

namespace {

/// The divisors of n that an axis of the model may have; each tensor rank needs a part of all.
std::vector<std::int64_t> possible(const Config& config, std::string_view axis, std::int64_t n) {
  const ModelConfig& m = config.model;
  const std::int64_t most =
      axis == "tensor" ? std::min(m.heads, m.feed_forward) : stages_limit / config.parallel.chunks;
  std::vector<std::int64_t> sizes = divisors(n);
  std::erase_if(sizes, [most](std::int64_t size) { return size > most; });
  return sizes;
}

/// "tensor of 1, 2 or 4, or a pipeline of 1 or 3": one axis so that the product divides `ranks`.
std::string dividing_axes(const Config& config, std::int64_t ranks) {
  const ParallelConfig& p = config.parallel;
  std::vector<std::string> axes;
  const auto add = [&](const char* name, std::int64_t size, std::int64_t other) {
    if (ranks % other == 0)
      axes.push_back(text(name, " of ", choices(possible(config, name, ranks / other), size)));
  };
  add("tensor", p.tensor, p.pipeline);
  add("pipeline", p.pipeline, p.tensor);
  return join(axes, ", or a ");
}

/// "data = 4 (or remove it), or tensor = 2": changes of one axis that make the product `ranks`.
std::string fitting_axes(const Config& config, std::int64_t ranks) {
  const ParallelConfig& p = config.parallel;
  std::vector<std::string> axes;
  if (ranks % (p.tensor * p.pipeline) == 0)
    axes.push_back(text("data = ", ranks / (p.tensor * p.pipeline), " (or remove it)"));
  const auto add = [&](const char* name, std::int64_t others) {
    if (ranks % others != 0) return;
    const auto sizes = possible(config, name, ranks / others);
    if (sizes.back() == ranks / others) axes.push_back(text(name, " = ", ranks / others));
  };
  add("tensor", p.pipeline * p.data);
  add("pipeline", p.tensor * p.data);
  return join(axes, ", or ");
}

std::string ranks_text(std::int64_t ranks) {
  return text(ranks, ranks == 1 ? " rank" : " ranks");
}

/// Fills parallel.data, and checks the product of the axes.
void resolve_axes(Deck& deck, std::int64_t ranks) {
  ParallelConfig& p = deck.config.parallel;
  const std::int64_t model_ranks = p.tensor * p.pipeline;
  const std::string factors =
      text(deck.cite("parallel", "tensor"), " · ", deck.cite("parallel", "pipeline"));
  if (p.data == 0) {
    const std::string axes = dividing_axes(deck.config, ranks);
    const std::int64_t below = ranks / model_ranks * model_ranks;
    check_usage(
        ranks % model_ranks == 0, factors, " = ", model_ranks, " does not divide the run's ",
        ranks_text(ranks), "; ", axes.empty() ? "" : text("choose a ", axes, ", or "), "start ",
        below > 0 ? text(below, " or ") : "", ranks_text(below + model_ranks),
        ranks > 1 ? "" : text(" (mpiexec -n ", model_ranks, " or srun -n ", model_ranks, ")"));
    p.data = ranks / model_ranks;
    deck.places["parallel.data"] = "from the number of ranks";
    return;
  }
  const std::string axes = fitting_axes(deck.config, ranks);
  check_usage(model_ranks * p.data == ranks, factors, " · ", deck.cite("parallel", "data"), " = ",
              model_ranks * p.data, ", but the run has ", ranks_text(ranks), "; ",
              axes.empty() ? "" : text("choose ", axes, ", or "), "start ",
              ranks_text(model_ranks * p.data));
}

/// A step's program lists every pass of every stage.
void check_passes(const Deck& deck) {
  const ParallelConfig& p = deck.config.parallel;
  const BatchConfig& b = deck.config.batch;
  const std::int64_t micro_batches = b.global / (b.micro * p.data);
  check_usage(micro_batches <= micro_batches_limit, deck.cite("batch", "global"), " is ",
              micro_batches, " times ", deck.cite("batch", "micro"), " · ",
              deck.cite("parallel", "data"), ", but a rank takes at most ", micro_batches_limit,
              " micro-batches in a step; choose a larger micro or more data");
  const std::int64_t stages = p.pipeline * p.chunks;
  std::int64_t programs = 0;  // each size of the global batch has its own
  for (const BatchPhase& phase : BatchSchedule(b).phases())
    programs += phase.global / (b.micro * p.data);
  check_usage(stages * programs <= passes_limit || programs == micro_batches,
              deck.cite("batch", "ramp_increment"), ": the programs of all sizes of the global ",
              "batch have ", stages * programs, " forward passes, more than ", passes_limit,
              "; choose a larger ramp_increment, fewer stages, a larger micro or more data");
  check_usage(stages * micro_batches <= passes_limit, deck.cite("parallel", "pipeline"), " · ",
              deck.cite("parallel", "chunks"), " = ", stages, " stages with ", micro_batches,
              " micro-batches are ", stages * micro_batches,
              " forward passes in a step, more than ", passes_limit,
              "; choose fewer stages, a larger micro or more data");
  const double activations = activations_of(deck.config) * static_cast<double>(micro_batches);
  check_usage(activations <= step_limit, deck.cite("batch", "global"), " with ",
              deck.cite("parallel", "data"), " gives ", activations,
              " activations in a step of a replica, more than ", step_limit,
              "; choose a smaller global or more data");
}

}  // namespace

void resolve_parallel(Deck& deck, std::int64_t ranks) {
  check(ranks >= 1, "resolve_parallel: ranks = ", ranks, ", expected at least 1");
  resolve_axes(deck, ranks);
  const ParallelConfig& p = deck.config.parallel;
  const BatchConfig& b = deck.config.batch;
  if (b.global % (b.micro * p.data) == 0) {
    const std::string mistake = ramp_mistake(deck, p.data);
    check_usage(mistake.empty(), mistake);
    check_passes(deck);
    return;
  }
  std::string remedy = "choose ";
  if (b.global % p.data == 0)
    remedy += text("a micro of ", choices(divisors(b.global / p.data), b.micro), ", or ");
  const std::int64_t below = b.global / (b.micro * p.data) * (b.micro * p.data);
  throw UsageError(text(deck.cite("batch", "global"), " is not a multiple of ",
                        deck.cite("batch", "micro"), " · ", deck.cite("parallel", "data"), " = ",
                        b.micro * p.data, "; ", remedy, "data of ",
                        choices(divisors(b.global / b.micro), p.data), ", or a global of ",
                        below > 0 ? text(below, " or ") : "", below + b.micro * p.data));
}

}  // namespace trireme::deck
