// Conditions on a deck's layout once the number of ranks is known.
#include <trireme/base/check.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/deck/checks.hpp>
#include <trireme/deck/choices.hpp>
#include <trireme/deck/ramp_check.hpp>
#include <trireme/deck/server_checks.hpp>

#include <algorithm>
#include <vector>

namespace trireme::deck {
namespace {

constexpr double step_limit = 1e17;  // activations of a replica's step; their bytes are counted too

/// The divisors of n that an axis of the model may have; each tensor rank needs a part of all.
std::vector<std::int64_t> possible(const Config& config, Axis axis, std::int64_t n) {
  const ModelConfig& m = config.model;
  std::int64_t most = n;
  switch (axis) {
    case Axis::tensor:
      most = std::min(m.heads, m.feed_forward);
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

/// Calls f(axis, its size) for the axes that split the model, as far as messages name them.
template <class F>
void for_model_axes(const ParallelConfig& p, F f) {
  const layout::AxisList sizes = p.sizes();
  for (const layout::AxisSize& a : sizes.axes())
    if (layout::traits_of(a.axis).splits_model && a.is_named()) f(a.axis, a.size);
}

/// "tensor of 1, 2 or 4, or a pipeline of 1 or 3": one axis so that the product divides `ranks`.
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

/// "data = 4 (or remove it), or tensor = 2": changes of one axis that make the product `ranks`.
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

/// How to start more ranks than there are.
std::string launch(std::int64_t ranks) {
  return text(" (mpiexec -n ", ranks, " trireme ..., or srun -n ", ranks, " trireme ...)");
}

/// "start 1, 2 or 4 ranks, or ": numbers of ranks with a data axis that divides the batch, where it
/// is what the ranks leave.
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

/// Fills parallel.data, and checks the product of the axes.
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

/// A worker of local training has equal numbers of ranks, or a rank equal numbers of workers, and
/// each worker has an equal part of every batch.
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

/// Groups of replicas are equal, and none goes over the edge of another.
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

/// A step's program lists every pass of every stage.
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
  std::int64_t programs = 0;  // each size of the global batch has its own
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
  if (p.schedule == ScheduleKind::two_bw)
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
  const double per_layer = 4 * static_cast<double>(m.hidden) +
                           4 * static_cast<double>(m.heads * m.head_size()) +
                           2 * static_cast<double>(m.feed_forward);
  const double per_token =
      static_cast<double>(m.layers) * per_layer + static_cast<double>(m.vocabulary);
  return static_cast<double>(config.batch.micro) * static_cast<double>(m.sequence) * per_token;
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

}  // namespace trireme::deck
