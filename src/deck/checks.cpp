#include <trireme/deck/checks.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace trireme::deck {
namespace {

constexpr std::int64_t micro_batches_limit = 65536;  // a step's program lists them all

/// Numbers that are counted in 64 bits: parameters, activations, FLOPs of a token.
constexpr double count_limit = 1e15;

/// All divisors of n >= 1, ascending.
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

/// "1, 2, 5 or 10": the candidates, or of many the six around `wanted`.
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

class CrossCheck {
 public:
  CrossCheck(const Deck& deck, const std::set<std::string>& invalid, Diagnostics& diagnostics)
      : deck_(deck), invalid_(invalid), diagnostics_(diagnostics) {}

  bool valid(std::initializer_list<const char*> names) const {
    return std::ranges::none_of(names, [&](const char* name) { return invalid_.contains(name); });
  }
  template <class... Parts>
  void report(const Parts&... parts) {
    diagnostics_.add(text(parts...));
  }

  void model() {
    const ModelConfig& m = deck_.config.model;
    if (valid({"model.hidden", "model.heads"}) && m.hidden % m.heads != 0)
      report(deck_.cite("model", "heads"), " does not divide ", deck_.cite("model", "hidden"),
             "; choose ", choices(divisors(m.hidden), m.heads), " heads");
  }

  /// Each key may be large, but not all together: sizes in bytes must fit into 64 bits.
  void size() {
    const ModelConfig& m = deck_.config.model;
    if (!valid({"model.layers", "model.hidden", "model.feed_forward", "model.sequence",
                "model.vocabulary", "batch.micro"}))
      return;
    const auto D = static_cast<double>(m.hidden);
    const auto S = static_cast<double>(m.sequence);
    const auto V = static_cast<double>(m.vocabulary);
    const auto F = static_cast<double>(m.feed_forward);
    const auto L = static_cast<double>(m.layers);
    const double parameters = L * D * (4 * D + 2 * F) + (2 * V + S) * D;
    const double activations =
        static_cast<double>(deck_.config.batch.micro) * S * (L * (8 * D + 2 * F) + V);
    if (parameters > count_limit)
      report("[model] describes ", parameters, " parameters, more than ", count_limit,
             "; choose fewer or smaller layers");
    if (activations > count_limit)
      report("[model] and ", deck_.cite("batch", "micro"), " need ", activations,
             " activations, more than ", count_limit, "; choose a smaller micro or model");
  }

  void batch() {
    const BatchConfig& b = deck_.config.batch;
    if (!valid({"batch.global", "batch.micro"}) || b.global % b.micro == 0) return;
    report(deck_.cite("batch", "micro"), " does not divide ", deck_.cite("batch", "global"),
           "; choose a micro of ", choices(divisors(b.global), b.micro));
  }

  void optimizer() {
    const OptimizerConfig& o = deck_.config.optimizer;
    if (valid({"optimizer.learning_rate", "optimizer.minimum_learning_rate"}) &&
        o.minimum_learning_rate > o.learning_rate)
      report(deck_.cite("optimizer", "minimum_learning_rate"), " is larger than ",
             deck_.cite("optimizer", "learning_rate"), "; choose at most ", o.learning_rate);
    const bool steps_valid =
        valid({"run.steps", "optimizer.warmup_steps", "optimizer.decay_steps"});
    if (steps_valid && o.warmup_steps > o.decay_steps)
      report(deck_.cite("optimizer", "warmup_steps"), " is larger than ",
             deck_.cite("optimizer", "decay_steps"), "; choose a warmup_steps of at most ",
             o.decay_steps, ", or more decay_steps");
  }

  /// Each rank of the tensor axis needs a part of everything that it cuts.
  void tensor() {
    const ModelConfig& m = deck_.config.model;
    const std::int64_t tensor = deck_.config.parallel.tensor;
    const auto enough = [&](const char* name, std::int64_t size) {
      if (!valid({"parallel.tensor"}) || invalid_.contains(text("model.", name))) return;
      if (size > 0 && tensor > size)
        report(deck_.cite("parallel", "tensor"), " is more than ", deck_.cite("model", name),
               " can be cut into; choose a tensor of at most ", size);
    };
    enough("heads", m.heads);
    enough("feed_forward", m.feed_forward);
    enough("vocabulary", m.vocabulary);
  }

  void schedule() {
    const ParallelConfig& p = deck_.config.parallel;
    if (!valid({"parallel.schedule", "parallel.chunks", "parallel.program"})) return;
    const bool file = p.schedule == ScheduleKind::file;
    if (p.schedule == ScheduleKind::interleaved && p.chunks < 2)
      report(deck_.cite("parallel", "schedule"), " needs ", deck_.cite("parallel", "chunks"),
             " to be 2 or more; choose chunks = 2, or the schedule 1f1b");
    if (p.schedule != ScheduleKind::interleaved && !file && p.chunks != 1)
      report(deck_.cite("parallel", "chunks"), " is for the schedules interleaved and file, not ",
             deck_.cite("parallel", "schedule"),
             "; choose schedule = \"interleaved\", or chunks = 1");
    if (file == p.program.empty())
      report(deck_.cite("parallel", "schedule"), file ? " needs " : " does not read ",
             deck_.cite("parallel", "program"),
             file ? "; name the file of the program"
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
  checks.optimizer();
  checks.tensor();
  checks.schedule();
}

void resolve_parallel(Deck& deck, std::int64_t ranks) {
  check(ranks >= 1, "resolve_parallel: ranks = ", ranks, ", expected at least 1");
  ParallelConfig& p = deck.config.parallel;
  const std::int64_t model_ranks = p.tensor * p.pipeline;
  const std::string factors =
      text(deck.cite("parallel", "tensor"), " · ", deck.cite("parallel", "pipeline"));
  if (p.data == 0) {
    check_usage(ranks % model_ranks == 0, factors, " = ", model_ranks,
                " does not divide the run's ", ranks, " ranks; start a multiple of ", model_ranks,
                " ranks");
    p.data = ranks / model_ranks;
    deck.places["parallel.data"] = "from the number of ranks";
  } else if (model_ranks * p.data != ranks) {
    const std::string fit = ranks % model_ranks == 0 ? text("choose data = ", ranks / model_ranks,
                                                            " (or leave it out), or start ")
                                                     : std::string("start ");
    throw UsageError(text(factors, " · ", deck.cite("parallel", "data"), " = ",
                          model_ranks * p.data, ", but the run has ", ranks,
                          ranks == 1 ? " rank" : " ranks", "; ", fit, model_ranks * p.data,
                          model_ranks * p.data == 1 ? " rank" : " ranks"));
  }
  const BatchConfig& b = deck.config.batch;
  if (b.global % (b.micro * p.data) == 0) {
    check_usage(b.global / (b.micro * p.data) <= micro_batches_limit, deck.cite("batch", "global"),
                " is ", b.global / (b.micro * p.data), " times ", deck.cite("batch", "micro"),
                " · ", deck.cite("parallel", "data"), ", and a rank takes at most ",
                micro_batches_limit,
                " micro-batches in a step; choose a larger micro or more data");
    return;
  }
  std::string remedy;
  if (b.global % p.data == 0)
    remedy = text("choose a micro of ", choices(divisors(b.global / p.data), b.micro), ", or ");
  const std::int64_t below = b.global / (b.micro * p.data) * (b.micro * p.data);
  throw UsageError(text(deck.cite("batch", "global"), " is not a multiple of ",
                        deck.cite("batch", "micro"), " · ", deck.cite("parallel", "data"), " = ",
                        b.micro * p.data, "; ", remedy, "data of ",
                        choices(divisors(b.global / b.micro), p.data), ", or a global of ",
                        below > 0 ? text(below, " or ") : "", below + b.micro * p.data));
}

}  // namespace trireme::deck
