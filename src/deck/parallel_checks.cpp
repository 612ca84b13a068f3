// Conditions on a deck's layout, some of which need the number of ranks.
#include <trireme/deck/parallel_checks.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/deck/checks.hpp>

#include <algorithm>
#include <numeric>
#include <vector>

namespace trireme::deck {
namespace {

/// Place of parallel.data if its value follows from the number of ranks.
constexpr const char* from_ranks = "from the number of ranks";

// Limit of activations in a step of a replica: their bytes are counted in 64 bits.
constexpr double step_limit = 1e17;

/// The divisors of n that are possible sizes of an axis.
std::vector<std::int64_t> possible(const Config& config, Axis axis, std::int64_t n) {
  const ModelConfig& m = config.model;
  std::int64_t most = n;
  switch (axis) {
    case Axis::tensor:
      most = m.most_tensor_ranks();
      break;
    case Axis::context:
      most = m.sequence;
      break;
    case Axis::pipeline:
      most = stages_limit / config.parallel.chunks;
      break;
    case Axis::data:
      break;
  }
  std::vector<std::int64_t> sizes = divisors(n);
  std::erase_if(sizes, [most](std::int64_t size) { return size > most; });
  return sizes;
}

/// Calls f(axis, size) for the axes that split the model and that messages name.
template <class F>
void for_model_axes(const ParallelConfig& p, F f) {
  const layout::AxisList sizes = p.sizes();
  for (const layout::AxisSize& a : sizes.axes())
    if (layout::traits_of(a.axis).splits_model && a.is_named()) f(a.axis, a.size);
}

/// "tensor of 1, 2 or 4, or a pipeline of 1 or 3": sizes of one axis with which the product of the
/// model's axes divides `ranks`.
std::string dividing_axes(const Config& config, std::int64_t ranks) {
  const ParallelConfig& p = config.parallel;
  std::vector<std::string> axes;
  for_model_axes(p, [&](Axis axis, std::int64_t size) {
    const std::int64_t others = p.model_ranks() / size;
    if (ranks % others == 0)
      axes.push_back(
          text(name_of(axis), " of ", choices(possible(config, axis, ranks / others), size)));
  });
  return join(axes, ", or a ");
}

/// "data = 4 (or remove it), or tensor = 2": changes of one axis that give `ranks` ranks.
std::string fitting_axes(const Config& config, std::int64_t ranks) {
  const ParallelConfig& p = config.parallel;
  std::vector<std::string> axes;
  if (ranks % p.model_ranks() == 0)
    axes.push_back(text("data = ", ranks / p.model_ranks(), " (or remove it)"));
  for_model_axes(p, [&](Axis axis, std::int64_t size) {
    const std::int64_t others = p.ranks() / size;
    if (ranks % others != 0) return;
    const auto sizes = possible(config, axis, ranks / others);
    if (sizes.back() == ranks / others) axes.push_back(text(name_of(axis), " = ", ranks / others));
  });
  return join(axes, ", or ");
}

std::string ranks_text(std::int64_t ranks) {
  return text(ranks, ranks == 1 ? " rank" : " ranks");
}

/// Commands that start this many ranks.
std::string launch(std::int64_t ranks) {
  return text(" (mpiexec -n ", ranks, " trireme ..., or srun -n ", ranks, " trireme ...)");
}

/// "start 1, 2 or 4 ranks, or choose ": rank counts with which micro · data divides the global
/// batch. "" if no rank count helps.
std::string dividing_ranks(const Deck& deck) {
  const ParallelConfig& p = deck.config.parallel;
  const BatchConfig& b = deck.config.batch;
  if (deck.places.at("parallel.data") != from_ranks || b.global % b.micro != 0) return "";
  std::vector<std::int64_t> numbers;
  for (const std::int64_t data : divisors(b.global / b.micro))
    if (const std::int64_t n = (data + p.server_places()) * p.model_ranks(); n <= ranks_limit)
      numbers.push_back(n);
  return text("start ", choices(numbers, p.ranks()), numbers.back() == 1 ? " rank" : " ranks",
              ", or choose ");
}

/// With servers: sets parallel.data, the number of workers, from the number of ranks if it is 0.
/// Checks that tensor · pipeline · (data + servers) is the number of ranks.
void resolve_server_axes(Deck& deck, std::int64_t ranks) {
  ParallelConfig& p = deck.config.parallel;
  const std::int64_t model_ranks = p.model_ranks();
  const std::string factors =
      text(deck.cite("parallel", "pipeline"), " · ", deck.cite("parallel", "tensor"));
  if (p.data == 0) {
    const std::int64_t places = ranks / model_ranks;
    const std::int64_t least = model_ranks * (p.servers + 1);
    check_usage(places > p.servers, deck.cite("parallel", "servers"), " and one worker, with ",
                factors, ", need ", least, " ranks, but the run has ", ranks_text(ranks),
                "; start at least ", least, " ranks (mpiexec -n ", least,
                " trireme ...), or choose fewer servers");
    check_usage(ranks % model_ranks == 0, factors, " = ", model_ranks, " does not divide the ",
                "run's ", ranks_text(ranks), "; start ", places * model_ranks, " or ",
                (places + 1) * model_ranks, " ranks");
    p.data = places - p.servers;
    deck.places["parallel.data"] = from_ranks;
    return;
  }
  const std::int64_t all = model_ranks * (p.data + p.servers);
  check_usage(all == ranks, factors, " · (", deck.cite("parallel", "data"), " workers + ",
              deck.cite("parallel", "servers"), ") = ", all, ", but the run has ",
              ranks_text(ranks), "; start ", ranks_text(all),
              ranks % model_ranks == 0 && ranks / model_ranks > p.servers
                  ? text(", or choose data = ", ranks / model_ranks - p.servers)
                  : "");
}

/// Sets parallel.data from the number of ranks if it is 0, and checks the product of the axes.
void resolve_axes(Deck& deck, std::int64_t ranks) {
  ParallelConfig& p = deck.config.parallel;
  if (p.has_servers()) return resolve_server_axes(deck, ranks);
  const std::int64_t model_ranks = p.model_ranks();
  std::vector<std::string> cited;
  for_model_axes(
      p, [&](Axis axis, std::int64_t) { cited.push_back(deck.cite("parallel", name_of(axis))); });
  const std::string factors = join(cited, " · ");
  if (p.data == 0) {
    const std::string axes = dividing_axes(deck.config, ranks);
    const std::int64_t below = ranks / model_ranks * model_ranks;
    check_usage(ranks % model_ranks == 0, factors, " = ", model_ranks,
                " does not divide the run's ", ranks_text(ranks), "; ",
                axes.empty() ? "" : text("choose a ", axes, ", or "), "start ",
                below > 0 ? text(below, " or ") : "", ranks_text(below + model_ranks),
                ranks > model_ranks ? "" : launch(model_ranks));
    p.data = ranks / model_ranks;
    deck.places["parallel.data"] = from_ranks;
    return;
  }
  const std::string axes = fitting_axes(deck.config, ranks);
  check_usage(model_ranks * p.data == ranks, factors, " · ", deck.cite("parallel", "data"), " = ",
              model_ranks * p.data, ", but the run has ", ranks_text(ranks), "; ",
              axes.empty() ? "" : text("choose ", axes, ", or "), "start ",
              ranks_text(model_ranks * p.data),
              ranks > model_ranks * p.data ? "" : launch(model_ranks * p.data));
}

/// Each worker of local training must have an equal number of ranks, or each rank an equal number
/// of workers, and each worker an equal part of every batch.
void check_workers(const Deck& deck) {
  const ParallelConfig& p = deck.config.parallel;
  const BatchConfig& b = deck.config.batch;
  if (p.workers == 1) return;
  std::vector<std::int64_t> fitting;
  for (std::int64_t n = 1; n <= std::max(p.data, p.workers); ++n)
    if (n % p.workers == 0 || p.workers % n == 0) fitting.push_back(n);
  check_usage(p.data % p.workers == 0 || p.workers % p.data == 0, deck.cite("local", "workers"),
              " is neither a multiple nor a divisor of ", deck.cite("parallel", "data"),
              "; choose data of ", choices(fitting, p.data), ", or ",
              choices(divisors(p.data), p.workers), " workers");
  for (const BatchPhase& phase : BatchSchedule(b).phases())
    check_usage(phase.global % (b.micro * p.workers) == 0, "a global batch of ", phase.global,
                " samples (", deck.cite("batch", "global"), ") is not a multiple of ",
                deck.cite("batch", "micro"), " · ", deck.cite("local", "workers"), " = ",
                b.micro * p.workers, "; choose ",
                choices(divisors(phase.global / b.micro), p.workers), " workers, or another batch");
}

/// shard_group must divide the number of replicas.
void check_shard_group(const Deck& deck) {
  const ParallelConfig& p = deck.config.parallel;
  if (p.shard_group == 0) return;
  const bool context = p.context > 1;
  check_usage(p.replicas() % p.shard_group == 0, deck.cite("parallel", "shard_group"),
              " does not divide the ", p.replicas(), " replicas of ",
              p.workers > 1 ? text("each of ", deck.cite("local", "workers"), ", with ") : "",
              deck.cite("parallel", "data"),
              context ? text(" · ", deck.cite("parallel", "context")) : "", "; choose ",
              choices(divisors(p.replicas()), p.shard_group));
}

/// The replicas that divide the experts must divide all replicas, and those that divide the state.
void check_experts(const Deck& deck) {
  const ParallelConfig& p = deck.config.parallel;
  if (p.expert == 1) return;
  const std::int64_t replicas = p.replicas();
  std::vector<std::int64_t> fitting = divisors(replicas);
  std::erase_if(fitting, [&](std::int64_t n) {
    return n > deck.config.model.experts.most_replicas(p.tensor) || p.shard_ranks() % n != 0;
  });
  const bool divided = p.divides_state() && p.shard_group > 0;
  check_usage(replicas % p.expert == 0, deck.cite("parallel", "expert"), " does not divide the ",
              replicas, " replicas of ",
              p.workers > 1 ? text("each of ", deck.cite("local", "workers"), ", with ") : "",
              deck.cite("parallel", "data"),
              p.context > 1 ? text(" · ", deck.cite("parallel", "context")) : "",
              "; choose an expert of ", choices(fitting, p.expert));
  check_usage(
      !divided || p.shard_group % p.expert == 0, deck.cite("parallel", "expert"),
      " does not divide ", deck.cite("parallel", "shard_group"),
      ", so that ranks with the same state would have different experts; choose an expert of ",
      choices(fitting, p.expert), ", or a shard_group that is a multiple of ", p.expert);
}

/// Limits the micro-batches, forward passes and activations of a step. With 2bw, a step needs as
/// many micro-batches as pipeline ranks.
void check_passes(const Deck& deck) {
  const ParallelConfig& p = deck.config.parallel;
  const BatchConfig& b = deck.config.batch;
  const std::int64_t micro_batches = deck.config.micro_batches();
  check_usage(micro_batches <= micro_batches_limit, deck.cite("batch", "global"), " is ",
              micro_batches, " times ", deck.cite("batch", "micro"), " · ",
              p.workers > p.data ? deck.cite("local", "workers") : deck.cite("parallel", "data"),
              ", but a rank takes at most ", micro_batches_limit,
              " micro-batches in a step; choose a larger micro or more data");
  const std::int64_t stages = p.stages();
  std::int64_t programs = 0;  // micro-batches in the programs of all sizes of the global batch
  for (const BatchPhase& phase : BatchSchedule(b).phases())
    programs += deck.config.micro_batches(phase.global);
  check_usage(stages * programs <= passes_limit || programs == micro_batches,
              deck.cite("batch", "ramp_increment"), ": the programs of all sizes of the global ",
              "batch have ", stages * programs, " forward passes, more than ", passes_limit,
              "; choose a larger ramp_increment, fewer stages, a larger micro or more data");
  check_usage(stages * micro_batches <= passes_limit, deck.cite("parallel", "pipeline"), " · ",
              deck.cite("parallel", "chunks"), " = ", stages, " stages with ", micro_batches,
              " micro-batches are ", stages * micro_batches,
              " forward passes in a step, more than ", passes_limit,
              "; choose fewer stages, a larger micro or more data");
  if (p.overlaps_steps())
    for (const BatchPhase& phase : BatchSchedule(b).phases()) {
      const std::int64_t count = phase.global / (b.micro * p.data);
      check_usage(count >= p.pipeline, deck.cite("parallel", "schedule"),
                  " needs as many micro-batches in a step as pipeline ranks, but a batch of ",
                  phase.global, " samples with ", deck.cite("batch", "micro"), " and ",
                  deck.cite("parallel", "data"), " has ", count, " for ",
                  deck.cite("parallel", "pipeline"), "; choose a larger global (or ramp_start), a ",
                  "smaller micro, less data or a smaller pipeline, or schedule = \"1f1b\"");
    }
  const double activations = activations_of(deck.config) * static_cast<double>(micro_batches);
  check_usage(activations <= step_limit, deck.cite("batch", "global"), " with ",
              deck.cite("parallel", "data"), " gives ", activations,
              " activations in a step of a replica, more than ", step_limit,
              "; choose a smaller global or more data");
}

}  // namespace

double activations_of(const Config& config) {
  const ModelConfig& m = config.model;
  const double per_layer =
      4 * static_cast<double>(m.hidden) + 4 * static_cast<double>(m.heads * m.head_size()) +
      2 * static_cast<double>(m.feed_forward) +
      (m.experts.present() ? 3 * static_cast<double>(m.experts.active * m.experts.feed_forward +
                                                     m.experts.shared_feed_forward)
                           : 0);
  const double per_token =
      static_cast<double>(m.all_layers()) * per_layer + static_cast<double>(m.vocabulary);
  const VisionConfig& v = m.vision;
  const double per_row =
      8 * static_cast<double>(v.hidden) + 2 * static_cast<double>(v.feed_forward);
  const double of_images = v.patch == 0 ? 0
                                        : static_cast<double>(v.images * v.rows()) *
                                              static_cast<double>(v.layers) * per_row;
  return static_cast<double>(config.batch.micro) *
         (static_cast<double>(m.sequence) * per_token + of_images);
}

void resolve_parallel(Deck& deck, std::int64_t ranks) {
  check(ranks >= 1, "resolve_parallel: ranks = ", ranks, ", expected at least 1");
  resolve_axes(deck, ranks);
  const ParallelConfig& p = deck.config.parallel;
  const BatchConfig& b = deck.config.batch;
  if (b.global % (b.micro * p.data) == 0) {
    const std::string mistake = ramp_mistake(deck, p.data);
    check_usage(mistake.empty(), mistake);
    check_workers(deck);
    check_shard_group(deck);
    check_experts(deck);
    check_passes(deck);
    return;
  }
  std::string remedy = dividing_ranks(deck);
  if (remedy.empty()) remedy = "choose ";
  if (b.global % p.data == 0)
    remedy += text("a micro of ", choices(divisors(b.global / p.data), b.micro), ", or ");
  const std::int64_t below = b.global / (b.micro * p.data) * (b.micro * p.data);
  throw UsageError(text(deck.cite("batch", "global"), " is not a multiple of ",
                        deck.cite("batch", "micro"), " · ", deck.cite("parallel", "data"), " = ",
                        b.micro * p.data, "; ", remedy, "data of ",
                        choices(divisors(b.global / b.micro), p.data), ", or a global of ",
                        below > 0 ? text(below, " or ") : "", below + b.micro * p.data));
}

// Conditions on a deck with parameter servers ([parallel] strategy = "server").

namespace {

/// Messages about keys that the deck sets although they only have an effect with servers.
std::vector<std::string> unused_keys(const Deck& deck) {
  const ParallelConfig& p = deck.config.parallel;
  std::vector<std::string> mistakes;
  const auto needs_servers = [&](bool is_set, const char* name, const char* remedy) {
    if (is_set)
      mistakes.push_back(text(deck.cite("parallel", name), " needs strategy = \"server\", not ",
                              deck.cite("parallel", "strategy"), "; set strategy, or ", remedy));
  };
  needs_servers(p.servers > 1, "servers", "leave servers out");
  needs_servers(p.staleness > 0, "staleness", "choose staleness = 0");
  needs_servers(p.updates == ServerUpdates::push, "updates", "choose updates = \"step\"");
  needs_servers(!p.replay.empty(), "replay", "leave replay out");
  return mistakes;
}

}  // namespace

std::vector<std::string> server_mistakes(const Deck& deck) {
  const Config& c = deck.config;
  const ParallelConfig& p = c.parallel;
  if (!p.has_servers()) return unused_keys(deck);
  std::vector<std::string> mistakes;
  const auto excludes = [&](bool is_set, const char* section, const char* name,
                            const char* remedy) {
    if (is_set)
      mistakes.push_back(text(deck.cite("parallel", "strategy"), " cannot be combined with ",
                              deck.cite(section, name), "; choose ", remedy,
                              ", or strategy = \"all_reduce\""));
  };
  excludes(p.layout == LayoutMode::automatic, "parallel", "layout", "layout = \"given\"");
  excludes(p.shard != Sharding::none, "parallel", "shard", "shard = \"none\"");
  excludes(p.overlaps_steps(), "parallel", "schedule", "schedule = \"1f1b\"");
  excludes(p.context > 1, "parallel", "context", "context = 1");
  excludes(p.vocabulary != VocabularyPlacement::stage, "parallel", "vocabulary",
           "vocabulary = \"stage\"");
  excludes(p.offload == Offload::optimizer || p.offload == Offload::both, "parallel", "offload",
           "offload = \"none\" or \"activations\"");
  excludes(c.model.shared_layers > 0, "model", "shared_layers", "shared_layers = 0");
  excludes(c.precision.products == Products::fp8, "precision", "products",
           "products = \"compute\"");
  excludes(!c.optimizer.rule().needs_whole_replicas.empty(), "optimizer", "kind",
           "kind = \"adamw\"");
  excludes(c.run.audit_every > 0, "run", "audit_every", "audit_every = 0");
  excludes(c.run.timeline, "run", "timeline", "timeline = false");
  excludes(c.run.gradient_noise_scale, "run", "gradient_noise_scale",
           "gradient_noise_scale = false");
  excludes(c.checkpoint.local_every > 0, "checkpoint", "local_every", "local_every = 0");
  if (p.records_events() && c.precision.compute == DType::fp16 &&
      c.precision.loss_scale_interval > 0)
    mistakes.push_back(text(deck.cite("parallel", p.staleness > 0 ? "staleness" : "updates"),
                            " needs a constant loss scale, but ",
                            deck.cite("precision", "loss_scale_interval"),
                            " changes it; choose loss_scale_interval = 0, or compute = \"bf16\""));
  if (!p.replay.empty() && !p.records_events())
    mistakes.push_back(text(deck.cite("parallel", "replay"), " has no effect with ",
                            deck.cite("parallel", "staleness"), " and ",
                            deck.cite("parallel", "updates"),
                            ", because every run then has the same order; leave replay out"));
  return mistakes;
}

// Conditions on a ramp-up of the global batch.

namespace {

constexpr std::int64_t sizes_limit = 1024;  // each size has a program

std::string cite(const Deck& deck, const char* key) {
  return deck.cite("batch", key);
}

/// "[batch] micro = 2 (a.toml:8) · [parallel] data = 4 (a.toml:9) = 8"
std::string round_text(const Deck& deck, std::int64_t data, std::int64_t round) {
  if (data == 0) return cite(deck, "micro");
  return text(cite(deck, "micro"), " · ", deck.cite("parallel", "data"), " = ", round);
}

/// Multiples of `round` that lead, as increments, from ramp_start to global.
std::string increments(const BatchConfig& b, std::int64_t round, std::int64_t wanted) {
  std::vector<std::int64_t> found = divisors((b.global - b.ramp_start) / round);
  for (std::int64_t& d : found) d *= round;
  return choices(found, wanted);
}

/// Multiples of `round` from which ramp_increment leads to global.
std::string starts(const BatchConfig& b, std::int64_t round) {
  constexpr std::int64_t each_side = 6;
  const std::int64_t stride = std::lcm(b.ramp_increment, round);
  const std::int64_t nearest = (b.global - b.ramp_start) / stride;
  const std::int64_t last = std::max<std::int64_t>(0, nearest - each_side);
  std::vector<std::int64_t> found;
  for (std::int64_t k = std::min(nearest + each_side, (b.global - 1) / stride); k >= last; --k)
    found.push_back(b.global - k * stride);
  return choices(found, b.ramp_start);
}

/// Values of data (of micro if `data` is 0) with which micro · data divides every global batch.
std::string dividing(const Deck& deck, std::int64_t data) {
  const BatchConfig& b = deck.config.batch;
  std::int64_t common = std::gcd(b.global, b.ramp_start);
  if (ramp_sizes(b) > 2) common = std::gcd(common, b.ramp_increment);
  if (data == 0) return text("a micro of ", choices(divisors(common), b.micro));
  return text("data of ", choices(divisors(common / b.micro), data));
}

/// Message about a key of the ramp-up that is missing or has no effect, or about a ramp_start above
/// global; "" if there is no such mistake.
std::string incomplete(const Deck& deck) {
  const BatchConfig& b = deck.config.batch;
  if (b.ramp_start == 0) {
    const char* key = b.ramp_increment > 0 ? "ramp_increment" : "ramp_samples";
    return b.ramp_increment == 0 && b.ramp_samples == 0
               ? ""
               : text(cite(deck, key), " has no effect without a ramp-up, but the deck has ",
                      cite(deck, "ramp_start"), "; choose a ramp_start of 1 or more, or remove ",
                      key);
  }
  if (b.ramp_start > b.global)
    return text(cite(deck, "ramp_start"), " is larger than ", cite(deck, "global"),
                "; choose a ramp_start of at most ", b.global);
  const char* missing = b.ramp_increment == 0 ? "ramp_increment" : "ramp_samples";
  if (b.ramp_start < b.global && (b.ramp_increment == 0 || b.ramp_samples == 0))
    return text(cite(deck, "ramp_start"), " needs ", cite(deck, missing),
                " to be 1 or more; set it, or remove ramp_start");
  return "";
}

}  // namespace

std::string ramp_mistake(const Deck& deck, std::int64_t data) {
  const BatchConfig& b = deck.config.batch;
  if (std::string mistake = incomplete(deck); !mistake.empty()) return mistake;
  if (b.ramp_start == 0 || b.ramp_start == b.global) return "";
  const std::int64_t way = b.global - b.ramp_start;
  if (way % b.ramp_increment != 0)
    return text(cite(deck, "ramp_increment"), " does not divide the ", way, " samples between ",
                cite(deck, "ramp_start"), " and ", cite(deck, "global"),
                "; choose a ramp_increment of ", choices(divisors(way), b.ramp_increment));
  const std::int64_t sizes = ramp_sizes(b);
  if (sizes > sizes_limit)
    return text(cite(deck, "ramp_increment"), " gives ", sizes, " sizes from ",
                cite(deck, "ramp_start"), " to ", cite(deck, "global"), ", more than ", sizes_limit,
                "; choose a ramp_increment of at least ",
                (way + sizes_limit - 2) / (sizes_limit - 1));
  const std::int64_t round = b.micro * std::max<std::int64_t>(1, data);
  if (b.ramp_start % round != 0)
    return text(cite(deck, "ramp_start"), " is not a multiple of ", round_text(deck, data, round),
                "; choose a ramp_start of ", starts(b, round), ", or ", dividing(deck, data));
  if (sizes > 2 && b.ramp_increment % round != 0)
    return text("the global batch of ", b.ramp_start + b.ramp_increment, " samples, ",
                cite(deck, "ramp_start"), " + ", cite(deck, "ramp_increment"),
                ", is not a multiple of ", round_text(deck, data, round),
                "; choose a ramp_increment of ", increments(b, round, b.ramp_increment), ", or ",
                dividing(deck, data));
  if (deck.config.parallel.reads_program())
    return text(deck.cite("parallel", "schedule"), " runs one program for one size of the global ",
                "batch, but the deck has ", cite(deck, "ramp_start"),
                "; remove ramp_start, or choose another schedule");
  return "";
}

bool may_divide_experts(const Config& c) {
  return c.model.experts.present() && !c.parallel.has_servers() && c.run.audit_every == 0 &&
         !c.run.gradient_noise_scale;
}

std::vector<std::string> expert_axis_mistakes(const Deck& deck) {
  const Config& c = deck.config;
  const ParallelConfig& p = c.parallel;
  const ExpertsConfig& e = c.model.experts;
  std::vector<std::string> mistakes;
  if (p.expert == 1) return mistakes;
  const std::string expert = deck.cite("parallel", "expert");
  if (!e.present())
    return {text(expert, " divides experts, but the deck has ", deck.cite("experts", "number"),
                 "; choose expert = 1, or set number")};
  if (e.split && p.expert > e.number)
    mistakes.push_back(text(expert, " is larger than ", deck.cite("experts", "number"),
                            "; choose an expert of at most ", e.number));
  if (!e.split && p.tensor <= e.number && p.expert > e.most_replicas(p.tensor))
    mistakes.push_back(text(expert, " · ", deck.cite("parallel", "tensor"), " = ",
                            p.expert * p.tensor, " ranks, but ", deck.cite("experts", "number"),
                            ": each rank needs an expert; choose an expert of at most ",
                            e.most_replicas(p.tensor), ", or [experts] split = true"));
  const auto excludes = [&](const char* section, const char* name, std::string_view why,
                            const char* remedy) {
    mistakes.push_back(text(expert, " cannot be combined with ", deck.cite(section, name), ", ",
                            why, "; choose ", remedy, ", or expert = 1"));
  };
  if (p.has_servers())
    excludes("parallel", "strategy", "whose workers do not wait for one another",
             "strategy = \"all_reduce\"");
  if (c.run.audit_every > 0)
    excludes("run", "audit_every", "which compares whole replicas", "audit_every = 0");
  if (c.run.gradient_noise_scale)
    excludes("run", "gradient_noise_scale", "which needs whole gradients of each replica",
             "gradient_noise_scale = false");
  return mistakes;
}

std::vector<std::string> overlap_mistakes(const Deck& deck) {
  const Config& c = deck.config;
  std::vector<std::string> mistakes;
  if (!c.parallel.overlaps_steps()) return mistakes;
  const auto excludes = [&](const char* section, const char* name, const char* remedy) {
    mistakes.push_back(text(deck.cite("parallel", "schedule"), " cannot be combined with ",
                            deck.cite(section, name), "; choose schedule = \"1f1b\", or ", remedy));
  };
  if (c.precision.products == Products::fp8)
    excludes("precision", "products", "products = \"compute\"");
  if (c.parallel.offload != Offload::none) excludes("parallel", "offload", "offload = \"none\"");
  if (c.model.shared_layers > 0) excludes("model", "shared_layers", "shared_layers = 0");
  if (c.run.audit_every > 0) excludes("run", "audit_every", "audit_every = 0");
  if (c.parallel.shard == Sharding::weights) excludes("parallel", "shard", "shard = \"gradients\"");
  return mistakes;
}

std::vector<std::string> sharding_mistakes(const Deck& deck) {
  const Config& c = deck.config;
  if (c.run.audit_every == 0 || c.parallel.shard < Sharding::gradients) return {};
  return {text(deck.cite("run", "audit_every"), " cannot be combined with ",
               deck.cite("parallel", "shard"),
               ", because audits compare whole weights and gradients; choose shard = "
               "\"optimizer\" or audit_every = 0")};
}

std::vector<std::string> noise_mistakes(const Deck& deck) {
  const Config& c = deck.config;
  std::vector<std::string> mistakes;
  if (!c.run.gradient_noise_scale) return mistakes;
  const auto excludes = [&](const char* section, const char* name, const char* remedy) {
    mistakes.push_back(text(deck.cite("run", "gradient_noise_scale"), " cannot be combined with ",
                            deck.cite(section, name), "; choose ", remedy,
                            " or gradient_noise_scale = false"));
  };
  if (c.parallel.context > 1) excludes("parallel", "context", "context = 1");
  if (c.parallel.overlaps_steps()) excludes("parallel", "schedule", "schedule = \"1f1b\"");
  if (c.model.shared_layers > 0) excludes("model", "shared_layers", "shared_layers = 0");
  if (c.run.audit_every > 0) excludes("run", "audit_every", "audit_every = 0");
  const std::int64_t least = c.batch.ramp_start > 0 ? c.batch.ramp_start : c.batch.global;
  if (c.batch.micro > 0 && least <= c.batch.micro)
    mistakes.push_back(text(deck.cite("run", "gradient_noise_scale"),
                            " compares micro-batches with batches of several, but a batch of ",
                            least, " samples is one of ", deck.cite("batch", "micro"),
                            "; choose a smaller micro or a larger batch"));
  return mistakes;
}

std::vector<std::string> local_mistakes(const Deck& deck) {
  const Config& c = deck.config;
  const LocalConfig& l = c.local;
  std::vector<std::string> mistakes;
  if (c.parallel.workers == 1) return mistakes;
  const auto excludes = [&](const char* section, const char* name, const char* remedy) {
    mistakes.push_back(text(deck.cite("local", "workers"), " cannot be combined with ",
                            deck.cite(section, name), "; choose ", remedy, ", or workers = 1"));
  };
  if (c.parallel.overlaps_steps()) excludes("parallel", "schedule", "schedule = \"1f1b\"");
  if (c.parallel.has_servers()) excludes("parallel", "strategy", "strategy = \"all_reduce\"");
  if (c.parallel.layout == LayoutMode::automatic)
    excludes("parallel", "layout", "layout = \"given\"");
  if (c.precision.products == Products::fp8)
    excludes("precision", "products", "products = \"compute\"");
  if (c.run.audit_every > 0) excludes("run", "audit_every", "audit_every = 0");
  if (c.run.gradient_noise_scale)
    excludes("run", "gradient_noise_scale", "gradient_noise_scale = false");
  // Local checkpoints need the same slices of state after every step. The slices of local training
  // differ between steps.
  if (c.checkpoint.local_every > 0) excludes("checkpoint", "local_every", "local_every = 0");
  if (l.fragments > l.inner_steps)
    mistakes.push_back(text(deck.cite("local", "fragments"), " is larger than ",
                            deck.cite("local", "inner_steps"), "; choose at most ", l.inner_steps,
                            " fragments"));
  else if (const std::int64_t apart = l.inner_steps / l.fragments; l.delay > apart)
    mistakes.push_back(
        text(deck.cite("local", "delay"), " is larger than ", deck.cite("local", "inner_steps"),
             " / ", deck.cite("local", "fragments"), " = ", apart,
             ", the steps between two fragments; choose a delay of at most ", apart));
  return mistakes;
}

}  // namespace trireme::deck
