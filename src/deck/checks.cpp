// Conditions on several keys of a deck.
#include <trireme/deck/checks.hpp>

#include <trireme/base/check.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/deck/model_checks.hpp>
#include <trireme/deck/parallel_checks.hpp>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <vector>

namespace trireme::deck {
namespace {

// Limit of parameters and of activations: their bytes and FLOPs are counted in 64 bits.
constexpr double count_limit = 1e15;

class CrossCheck {
 public:
  CrossCheck(const Deck& deck, const std::set<std::string>& invalid, Diagnostics& diagnostics)
      : deck_(deck), invalid_(invalid), diagnostics_(diagnostics) {}

  bool valid(std::initializer_list<const char*> names) const {
    return std::ranges::none_of(
        names, [&](const char* name) { return invalid_.contains(name) || open(name); });
  }
  /// Whether this is a key of [parallel] that layout = "auto" has yet to choose.
  bool open(std::string_view name) const {
    return name.starts_with("parallel.") &&
           is_open(deck_, "parallel", name.substr(name.find('.') + 1));
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
    // The largest number that an ArrayCut can hold.
    constexpr std::int64_t most = std::numeric_limits<std::int16_t>::max();
    if (valid({"model.heads", "model.key_value_heads"}) && m.heads / m.key_value_heads > most)
      report(deck_.cite("model", "heads"), " has more than ", most, " heads for each of ",
             deck_.cite("model", "key_value_heads"), "; choose more key_value_heads");
    if (valid({"model.positions", "model.hidden", "model.heads", "model.head_size",
               "model.rope_theta", "model.rope_scaling", "model.rope_factor",
               "model.rope_original_sequence", "model.rope_low_frequency_factor",
               "model.rope_high_frequency_factor", "model.rope_beta_fast", "model.rope_beta_slow",
               "model.rope_mscale", "model.rope_mscale_all", "model.key_value_rank"}))
      for (const std::string& mistake : rotary_mistakes(deck_)) report(mistake);
    if (valid({"model.mask", "model.objective", "model.window", "model.norm", "model.positions",
               "model.zero_centered_gains", "model.full_attention_every", "model.window_rope_theta",
               "model.logit_softcap", "model.layers", "model.shared_layers", "data.packing",
               "model.activation", "model.activation_limit"}))
      for (const std::string& mistake : property_mistakes(deck_)) report(mistake);
    if (valid({"model.predicts", "model.predict_weight", "model.objective", "model.sequence",
               "model.norm_placement", "model.shared_layers", "adapter.kind", "parallel.vocabulary",
               "precision.products"}))
      for (const std::string& mistake : module_mistakes(deck_)) report(mistake);
    if (valid({"model.key_value_rank", "model.query_rank", "model.rotary_size", "model.value_size",
               "model.heads", "model.key_value_heads", "model.hidden", "model.head_size",
               "model.positions", "model.query_key_norm", "model.biases", "model.window",
               "adapter.kind", "optimizer.kind", "precision.products"}) &&
        (m.explicit_head_size > 0 || m.hidden % m.heads == 0))
      for (const std::string& mistake : latent_mistakes(deck_)) report(mistake);
    if (valid({"experts.number", "experts.active", "experts.first_layer", "model.layers",
               "experts.groups", "experts.active_groups", "experts.score", "experts.z_weight",
               "experts.bias_rate", "experts.choice_bias", "batch.global", "model.sequence",
               "local.workers", "parallel.strategy", "experts.shared_feed_forward",
               "adapter.targets", "optimizer.kind", "precision.products"}))
      for (const std::string& mistake : expert_mistakes(deck_)) report(mistake);
    if (valid({"encoder.layers",        "encoder.sequence",
               "encoder.noise",         "encoder.span",
               "model.objective",       "model.positions",
               "model.sequence",        "model.vocabulary",
               "model.norm_placement",  "model.mask",
               "model.window",          "model.attention_softcap",
               "model.attention_sinks", "model.key_value_rank",
               "model.shared_layers",   "experts.number",
               "adapter.kind",          "data.packing",
               "data.start_token",      "data.end_token",
               "data.sentinel_token",   "precision.products"}))
      for (const std::string& mistake : encoder_mistakes(deck_)) report(mistake);
    if (valid({"vision.layers", "vision.hidden", "vision.heads", "vision.feed_forward",
               "vision.image", "vision.patch", "vision.images", "encoder.layers", "model.objective",
               "model.mask", "model.sequence", "model.norm_placement", "model.shared_layers",
               "model.predicts", "data.packing", "precision.products"}))
      for (const std::string& mistake : vision_mistakes(deck_)) report(mistake);
    if (m.predicts_masked_tokens()) pairs();
  }

  /// Samples with masked tokens are [CLS] A [SEP] B [SEP], where A and B are segments of text.
  void pairs() {
    const ModelConfig& m = deck_.config.model;
    if (valid({"model.objective", "model.sequence"}) && m.text_tokens() < 2)
      report(deck_.cite("model", "sequence"),
             " has no room for two segments and their 3 special tokens; choose 5 or more");
    if (!valid({"model.vocabulary", "data.class_token", "data.separator_token", "data.mask_token"}))
      return;
    if (m.vocabulary == 0) return;  // checked once the token file is known
    for (const std::string& mistake : mistakes_of_special_tokens(deck_)) report(mistake);
  }

  /// Limits the numbers of parameters and of activations to count_limit.
  void size() {
    const ModelConfig& m = deck_.config.model;
    if (!valid({"model.layers", "model.hidden", "model.feed_forward", "model.sequence",
                "model.vocabulary", "model.heads", "model.head_size", "batch.micro",
                "experts.number", "experts.active", "experts.feed_forward",
                "experts.shared_feed_forward", "vision.layers", "vision.hidden",
                "vision.feed_forward"}))
      return;
    const auto D = static_cast<double>(m.hidden);
    const auto S = static_cast<double>(m.sequence);
    const auto V = static_cast<double>(m.vocabulary);
    const auto F = static_cast<double>(m.feed_forward);
    const auto L = static_cast<double>(m.all_layers());
    const auto A = static_cast<double>(std::max(m.hidden, m.heads * m.head_size()));
    const ExpertsConfig& e = m.experts;
    const double of_experts = e.present() ? static_cast<double>(e.number) *
                                                    (3 * static_cast<double>(e.feed_forward) + 1) +
                                                3 * static_cast<double>(e.shared_feed_forward)
                                          : 0;
    const VisionConfig& v = m.vision;
    const auto Dv = static_cast<double>(v.hidden);
    const double of_images =
        static_cast<double>(v.layers) * Dv * (4 * Dv + 2 * static_cast<double>(v.feed_forward));
    const double parameters = L * D * (4 * A + 3 * F + of_experts) + (2 * V + S) * D + of_images;
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
    if (valid({"precision.compute", "precision.tf32", "precision.attention", "precision.products",
               "model.dropout"}))
      for (const std::string& mistake : precision_mistakes(deck_)) report(mistake);
    if (valid({"precision.products", "model.hidden", "model.heads", "model.head_size",
               "model.feed_forward", "model.sequence", "parallel.tensor", "batch.micro"}))
      for (const std::string& mistake : fp8_mistakes(deck_)) report(mistake);
  }

  void adapter() {
    if (valid({"adapter.kind", "adapter.rank", "adapter.targets", "adapter.parts",
               "model.activation", "encoder.layers", "vision.layers"}))
      for (const std::string& mistake : adapter_mistakes(deck_)) report(mistake);
  }

  void optimizer() {
    const OptimizerConfig& o = deck_.config.optimizer;
    if (valid({"optimizer.learning_rate", "optimizer.minimum_learning_rate"}) &&
        o.minimum_learning_rate > o.learning_rate)
      report(deck_.cite("optimizer", "minimum_learning_rate"), " is larger than ",
             deck_.cite("optimizer", "learning_rate"), "; choose at most ", o.learning_rate);
    cooldown();
    rate_factors();
    if (valid({"optimizer.kind", "optimizer.nesterov", "optimizer.momentum"}) && o.nesterov &&
        (!o.rule().has_nesterov || o.momentum == 0))
      report(deck_.cite("optimizer", "nesterov"),
             " needs [optimizer] kind = ", rules::readers_of("nesterov", " or ", "\""),
             ", and a momentum above 0, but the deck has ", deck_.cite("optimizer", "kind"),
             " and ", deck_.cite("optimizer", "momentum"), "; remove nesterov, or change these");
    rows_and_columns();
    if (valid({"optimizer.moments", "precision.compute"}) && o.moments == Moments::bf16 &&
        deck_.config.precision.compute == DType::fp64)
      report(deck_.cite("optimizer", "moments"), " needs master weights in fp32, but the deck has ",
             deck_.cite("precision", "compute"),
             "; choose moments = \"full\", or compute = \"fp32\" or \"bf16\"");
    const bool steps_valid =
        valid({"run.steps", "optimizer.warmup_steps", "optimizer.decay_steps"});
    const bool decays = o.schedule != LearningRateSchedule::constant &&
                        o.schedule != LearningRateSchedule::inverse_square_root;
    if (steps_valid && decays && o.warmup_steps > o.decay_steps)
      report(deck_.cite("optimizer", "warmup_steps"), " is larger than ",
             deck_.cite("optimizer", "decay_steps"), "; choose a warmup_steps of at most ",
             o.decay_steps, ", or more decay_steps");
  }

  /// Each entry is a factor and a pattern.
  void rate_factors() {
    for (const std::string& entry : deck_.config.optimizer.rate_factors)
      if (!rate_factor_of(entry))
        report(deck_.cite("optimizer", "rate_factors"), ": \"", entry,
               "\" is not a factor above 0, a space and a pattern of names of arrays; write an "
               "entry such as \"0.1 embedding\"");
  }

  /// Conditions on rules with state of rows and columns, which ranks sum over whole arrays.
  void rows_and_columns() {
    const Config& c = deck_.config;
    if (!valid({"optimizer.kind", "local.workers", "parallel.vocabulary"}) ||
        !c.optimizer.rule().has(rules::PassKind::means, c.optimizer))
      return;
    const auto excludes = [&](const char* section, const char* name, const char* why,
                              const char* remedy) {
      report(deck_.cite("optimizer", "kind"), " cannot be combined with ",
             deck_.cite(section, name), ", ", why, "; choose ", remedy, ", or kind = \"adamw\"");
    };
    if (c.parallel.workers > 1)
      excludes("local", "workers", "whose workers have different state of rows and columns",
               "workers = 1");
    if (c.parallel.vocabulary != VocabularyPlacement::stage)
      excludes("parallel", "vocabulary", "which divides a table's rows among stages",
               "vocabulary = \"stage\"");
  }

  /// Conditions on the cooldown of warmup_stable_decay.
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

  /// Each tensor rank needs a part of every dimension that the tensor axis divides.
  void tensor() {
    const ModelConfig& m = deck_.config.model;
    const std::int64_t tensor = deck_.config.parallel.tensor;
    const auto enough = [&](const char* section, const char* name, std::int64_t size) {
      if (!valid({"parallel.tensor"}) || invalid_.contains(text(section, ".", name))) return;
      if (size > 0 && tensor > size)
        report(deck_.cite("parallel", "tensor"), " is larger than ", deck_.cite(section, name),
               "; choose a tensor of at most ", size);
    };
    enough("model", "heads", m.heads);
    if (!m.only_experts()) enough("model", "feed_forward", m.feed_forward);
    if (m.experts.split)
      enough("experts", "feed_forward", m.experts.feed_forward);
    else
      enough("experts", "number", m.experts.number);
    if (m.experts.shares()) enough("experts", "shared_feed_forward", m.experts.shared_feed_forward);
    enough("model", "vocabulary", m.vocabulary);
    enough("vision", "heads", m.vision.heads);
    if (m.vision.present()) enough("vision", "feed_forward", m.vision.feed_forward);
    if (is_open(deck_, "batch", "micro") ||
        !valid({"parallel.tensor", "parallel.context", "batch.micro", "model.sequence"}))
      return;
    const std::int64_t ranks = deck_.config.parallel.context;
    const std::int64_t tokens = deck_.config.batch.micro * (m.sequence / ranks);
    if (ranks <= m.sequence && tensor > tokens)
      report(deck_.cite("parallel", "tensor"), " is larger than the ", tokens,
             " tokens of a micro-batch, ", deck_.cite("batch", "micro"), " · ",
             deck_.cite("model", "sequence"),
             ranks > 1 ? text(" / ", deck_.cite("parallel", "context")) : "",
             "; choose a tensor of at most ", tokens);
  }

  /// Conditions on context > 1. Each context rank needs at least one token of every sample.
  void context() {
    const ParallelConfig& p = deck_.config.parallel;
    if (!valid({"parallel.context"}) || p.context == 1) return;
    const auto excludes = [&](const char* section, const char* name, const char* remedy) {
      report(deck_.cite("parallel", "context"), " cannot be combined with ",
             deck_.cite(section, name), "; choose ", remedy);
    };
    if (valid({"model.sequence"}) && p.context > deck_.config.model.sequence)
      report(deck_.cite("parallel", "context"), " is larger than ", deck_.cite("model", "sequence"),
             "; choose a context of at most ", deck_.config.model.sequence);
    if (valid({"parallel.layout"}) && p.layout == LayoutMode::automatic)
      excludes("parallel", "layout", "context = 1, or layout = \"given\"");
    if (valid({"precision.products"}) && deck_.config.precision.products == Products::fp8)
      excludes("precision", "products", "context = 1, or products = \"compute\"");
  }

  void expert() {
    if (valid({"parallel.expert", "parallel.tensor", "parallel.strategy", "experts.number",
               "run.audit_every", "run.gradient_noise_scale"}))
      for (const std::string& mistake : expert_axis_mistakes(deck_)) report(mistake);
  }

  void overlapped_steps() {
    if (!valid({"parallel.schedule"})) return;
    for (const std::string& mistake : overlap_mistakes(deck_)) report(mistake);
    for (const std::string& mistake : sharding_mistakes(deck_)) report(mistake);
    if (valid({"batch.global", "batch.micro", "batch.ramp_start"}))
      for (const std::string& mistake : noise_mistakes(deck_)) report(mistake);
  }

  void local() {
    if (valid({"local.workers", "local.inner_steps", "local.fragments", "local.delay"}))
      for (const std::string& mistake : local_mistakes(deck_)) report(mistake);
  }

  /// Conditions on vocabulary = "pipeline". Each part of the vocabulary must have a row.
  void vocabulary() {
    const ParallelConfig& p = deck_.config.parallel;
    if (!valid({"parallel.vocabulary"}) || p.vocabulary == VocabularyPlacement::stage) return;
    const auto excludes = [&](const char* section, const char* name, const std::string& remedy) {
      report(deck_.cite("parallel", "vocabulary"), " cannot be combined with ",
             deck_.cite(section, name), "; choose ", remedy, ", or vocabulary = \"stage\"");
    };
    if (valid({"parallel.layout"}) && p.layout == LayoutMode::automatic)
      excludes("parallel", "layout", "layout = \"given\"");
    if (!valid({"parallel.pipeline", "parallel.schedule"}) || !p.shares_vocabulary()) return;
    const auto possible = [](const schedule::Schedule& s) {
      return s.generate != nullptr && s.most_chunks == 1 &&
             !schedule::traits_of(s.kind).overlaps_steps;
    };
    if (!possible(schedule::schedule_of(p.schedule)))
      excludes("parallel", "schedule",
               "schedule = " + schedule::schedule_words(possible, " or ", "\""));
    if (valid({"parallel.context"}) && p.context > 1)
      excludes("parallel", "context", "context = 1");
    if (valid({"model.family"}) && deck_.config.model.predicts_masked_tokens())
      excludes("model", "family", "family = \"gpt\" or \"llama\"");
    if (valid({"model.scaled_logits"}) && deck_.config.model.scaled_logits)
      excludes("model", "scaled_logits", "scaled_logits = false");
    const std::int64_t ids = deck_.config.model.vocabulary;
    if (valid({"model.vocabulary", "parallel.tensor"}) && ids > 0 && ids < p.vocabulary_parts())
      report(deck_.cite("parallel", "vocabulary"), " divides ", deck_.cite("model", "vocabulary"),
             " among ", p.vocabulary_parts(), " ranks; choose vocabulary = \"stage\"");
  }

  /// Limits the numbers of stages and of ranks.
  void stages() {
    const ParallelConfig& p = deck_.config.parallel;
    if (!valid({"parallel.pipeline", "parallel.chunks", "parallel.tensor", "parallel.context",
                "parallel.data"}))
      return;
    if (p.stages() > stages_limit)
      report(deck_.cite("parallel", "pipeline"), " · ", deck_.cite("parallel", "chunks"), " = ",
             p.stages(), " stages are more than ", stages_limit, "; choose ",
             p.pipeline > stages_limit
                 ? text("a pipeline of at most ", stages_limit)
                 : text("at most ", stages_limit / p.pipeline, " chunks, or a smaller pipeline"));
    const std::int64_t ranks =
        p.model_ranks() * (std::max<std::int64_t>(1, p.data) + p.server_places());
    if (ranks <= ranks_limit) return;
    std::vector<std::string> axes;
    const layout::AxisList sizes = p.sizes();
    for (const layout::AxisSize& a : sizes.axes())
      if (a.is_named()) axes.push_back(deck_.cite("parallel", name_of(a.axis)));
    report(join(axes, " · "), " are ", ranks, " ranks, more than ", ranks_limit,
           "; choose smaller axes");
  }

  /// `partition` must list all layers of the model and, with layout = "given", every stage.
  void partition() {
    const ParallelConfig& p = deck_.config.parallel;
    if (p.partition.empty() || !valid({"parallel.partition", "parallel.pipeline", "parallel.chunks",
                                       "parallel.layout", "model.layers", "model.predicts"}))
      return;
    const auto stages = std::ssize(p.partition);
    const std::int64_t layers = std::reduce(p.partition.begin(), p.partition.end());
    const ModelConfig& m = deck_.config.model;
    if (layers != m.all_layers())
      report(deck_.cite("parallel", "partition"), " has ", layers, " layers in all, but ",
             m.encoder.present()  ? text(deck_.cite("encoder", "layers"), " and ")
             : m.vision.present() ? text(deck_.cite("vision", "layers"), ", its projector and ")
                                  : "",
             deck_.cite("model", "layers"),
             m.modules() > 0
                 ? text(", and ", deck_.cite("model", "predicts"), " adds ", m.modules())
                 : "",
             "; change one of the stages");
    if (p.layout == LayoutMode::given && stages != p.stages())
      report(deck_.cite("parallel", "partition"), " has ", stages,
             stages == 1 ? " stage" : " stages", ", but ", deck_.cite("parallel", "pipeline"),
             " · ", deck_.cite("parallel", "chunks"), " = ", p.stages(), "; list ", p.stages(),
             p.stages() == 1 ? " number of layers" : " numbers of layers",
             ", or leave partition out");
  }

  void servers() {
    if (valid({"parallel.strategy", "parallel.servers", "parallel.staleness", "parallel.updates"}))
      for (const std::string& mistake : server_mistakes(deck_)) report(mistake);
  }

  void local_checkpoints() {
    const CheckpointConfig& c = deck_.config.checkpoint;
    if (!valid({"checkpoint.local", "checkpoint.local_every"})) return;
    if (c.local.empty() == (c.local_every == 0)) return;
    if (c.local.empty())
      report(deck_.cite("checkpoint", "local_every"), " needs ", deck_.cite("checkpoint", "local"),
             " to name a folder; set local to a folder on a disk of each node, or leave "
             "local_every out");
    else
      report(deck_.cite("checkpoint", "local"), " needs ", deck_.cite("checkpoint", "local_every"),
             " to be 1 or more; set local_every, or leave local out");
  }

  /// Conditions on the texts that evaluations generate.
  void prompts() {
    if (deck_.config.run.prompts.empty() || !valid({"run.prompts"})) return;
    if (valid({"model.objective"}) && !deck_.config.model.predicts_next_token())
      report(deck_.cite("run", "prompts"), " needs a model that predicts the next token, not ",
             deck_.cite("model", "objective"),
             "; leave prompts out, or choose objective = \"next_token\"");
    if (valid({"parallel.strategy"}) && deck_.config.parallel.has_servers())
      report(deck_.cite("run", "prompts"), " cannot be combined with ",
             deck_.cite("parallel", "strategy"),
             "; leave prompts out, or choose strategy = \"all_reduce\"");
  }

  void order() {
    const std::string& order = deck_.config.parallel.order;
    std::string problem;
    if (valid({"parallel.order"}) && !layout::parse_order(order, problem))
      report(deck_.cite("parallel", "order"), ": ", problem);
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
    const bool chosen = p.layout == LayoutMode::automatic;
    if (chosen && p.placement != StagePlacement::automatic)
      report(deck_.cite("parallel", "placement"), " cannot be combined with ",
             deck_.cite("parallel", "layout"), "; leave placement out");
    if (chosen && (p.reads_program() || p.searches_program())) return;  // layout() reports it
    if (!valid({"parallel.schedule", "parallel.chunks", "parallel.program"})) return;
    const bool file = p.reads_program();
    const bool searched = p.searches_program();
    const schedule::Schedule& row = schedule::schedule_of(p.schedule);
    const auto any_chunks = [](const schedule::Schedule& s) { return !s.has_fixed_chunks(); };
    if (!row.accepts(p.chunks) && any_chunks(row))
      report(deck_.cite("parallel", "schedule"), " needs ", row.least_chunks,
             " chunks or more, not ", deck_.cite("parallel", "chunks"),
             "; choose chunks = ", row.least_chunks, ", or schedule = \"1f1b\"");
    else if (!row.accepts(p.chunks) && row.least_chunks > 1)
      report(deck_.cite("parallel", "schedule"), " has ", row.least_chunks, " chunks, not ",
             deck_.cite("parallel", "chunks"), "; leave chunks out");
    else if (!row.accepts(p.chunks))
      report(deck_.cite("parallel", "chunks"), " applies to the schedules ",
             schedule::schedule_words(any_chunks), ", not to ", deck_.cite("parallel", "schedule"),
             "; choose schedule = \"interleaved\", or chunks = 1");
    if (file == p.program.empty())
      report(deck_.cite("parallel", "schedule"),
             file ? " needs a program, but " : " does not read ", deck_.cite("parallel", "program"),
             file ? " names none; set program to the path of a program file"
                  : "; choose schedule = \"file\", or leave program out");
    const bool by_schedule =
        p.placement == StagePlacement::automatic || p.placement == row.placement;
    if (valid({"parallel.placement"}) && !file && !searched && !by_schedule)
      report(deck_.cite("parallel", "placement"), " does not apply to ",
             deck_.cite("parallel", "schedule"),
             "; leave placement out, or choose schedule = \"file\"");
    if (!searched && !p.timeline.empty())
      report(deck_.cite("parallel", "timeline"), " does not apply to ",
             deck_.cite("parallel", "schedule"), "; choose schedule = \"auto\", or leave it out");
    if (!searched) return;
    if (!p.timeline.empty() && !p.machine.empty())
      report(deck_.cite("parallel", "timeline"), " cannot be combined with ",
             deck_.cite("parallel", "machine"), ", because both give times; leave one of them out");
    if (valid({"parallel.recompute"}) && p.recompute == Recompute::automatic)
      report(deck_.cite("parallel", "recompute"), " cannot be combined with ",
             deck_.cite("parallel", "schedule"),
             ", because each depends on the other; choose the recomputation or the schedule");
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
  checks.adapter();
  checks.tensor();
  checks.context();
  checks.expert();
  checks.vocabulary();
  checks.stages();
  checks.partition();
  checks.order();
  checks.layout();
  checks.schedule();
  checks.overlapped_steps();
  checks.local();
  checks.servers();
  checks.transport();
  checks.local_checkpoints();
  checks.prompts();
}

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d != n / d) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::string choices(const std::vector<std::int64_t>& candidates, std::int64_t wanted) {
  constexpr std::ptrdiff_t most = 6;
  const auto above = std::ranges::lower_bound(candidates, wanted);
  auto first = above - std::min(most / 2, above - candidates.begin());
  const auto last = first + std::min(most, candidates.end() - first);
  first = last - std::min(most, last - candidates.begin());
  std::string out;
  for (auto it = first; it != last; ++it)
    out += text(it == first ? "" : it + 1 == last ? " or " : ", ", *it);
  return out;
}

}  // namespace trireme::deck
