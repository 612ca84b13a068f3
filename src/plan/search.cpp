// Estimates memory and time of all layouts by formulas, and simulates the best layouts. Candidates
// with the same schedule, stages and micro-batches share a program.
#include <trireme/plan/search.hpp>

#include <trireme/architecture/ends.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/plan/choices.hpp>
#include <trireme/plan/memory_estimate.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/ranks.hpp>
#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/lower.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <tuple>

namespace trireme::plan {
namespace {

using architecture::Architecture;

/// Largest number of forward passes in a program that is simulated for a layout on the Pareto
/// front.
constexpr std::int64_t front_passes = 1 << 16;

/// Estimates the times of layouts. Caches the times of the parts of the model.
class TimeEstimate {
 public:
  TimeEstimate(const Architecture& architecture, const Machine& machine)
      : architecture_(architecture), machine_(machine) {}

  StepCosts costs(const deck::Config& config) {
    const deck::ParallelConfig& p = config.parallel;
    const bool split = p.splits_backward();
    const auto [found, is_new] = parts_.try_emplace(
        {p.tensor, p.expert, p.expert > 1 ? p.data : 1, config.batch.micro, p.recompute,
         p.sequence_parallel, split, architecture::head_gradient(p)});
    if (is_new) found->second = part_times(config, architecture_, split, machine_);
    const auto [sizes, unknown] =
        sizes_.try_emplace({p.tensor, p.expert, p.pipeline, p.chunks, p.stage_map().placement});
    if (unknown) sizes->second = stage_sizes(config, architecture_);
    return step_costs(config, architecture_, found->second, sizes->second, machine_);
  }

 private:
  const Architecture& architecture_;
  const Machine& machine_;
  /// The places of the ranks that exchange tokens depend on the data axis.
  using Parts = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, Recompute, bool,
                           bool, architecture::HeadGradient>;
  std::map<Parts, BlockTimes> parts_;
  using Stages = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, StagePlacement>;
  std::map<Stages, StageSizes> sizes_;
};

Seconds since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The Pareto front of time and memory, given the candidates in ascending time.
std::vector<Candidate> front_of(const std::vector<Candidate>& ascending) {
  std::vector<Candidate> front;
  for (const Candidate& c : ascending)
    if (front.empty() || c.bytes < front.back().bytes) front.push_back(c);
  return front;
}

class LayoutSearch {
 public:
  LayoutSearch(const deck::Deck& deck, std::int64_t ranks, const Machine& machine,
               const SearchOptions& options)
      : deck_(deck),
        ranks_(ranks),
        machine_(machine),
        options_(options),
        config_(deck.config),
        architecture_(architecture::describe(config_.model)),
        limit_(memory_limit(config_.parallel, machine, options.memory_limit)),
        memory_(config_, architecture_, machine, limit_.arrays_only),
        times_(architecture_, machine) {
    config_.parallel.recomputed.clear();
    config_.parallel.program.clear();
  }

  SearchResult run() {
    const auto begin = std::chrono::steady_clock::now();
    SearchSpace space(deck_, architecture_, ranks_, machine_);
    space.visit([this](const Layout& layout) { estimate(layout); });
    result_.estimating = since(begin);
    result_.rejected = space.rejected();
    if (too_large_ == 0 && estimated_.empty()) deck::expect_layout(deck_, ranks_);
    expect_some();
    result_.evaluated = static_cast<std::int64_t>(estimated_.size());
    result_.limit = limit_.bytes;
    simulate_best();
    expect_some();
    if (too_large_ > 0) result_.rejected.push_back({"does not fit into the memory", too_large_});
    std::ranges::sort(result_.rejected, std::ranges::greater{}, &Rejection::layouts);
    result_.seconds = since(begin);
    return std::move(result_);
  }

 private:
  bool fits(Bytes bytes) const { return limit_.bytes == 0 || bytes <= limit_.bytes; }

  void refuse(const Candidate& candidate) {
    if (too_large_++ == 0 || candidate.bytes < smallest_.bytes) smallest_ = candidate;
  }

  void estimate(const Layout& layout) {
    layout.set(config_);
    if (!alike_but_shard(layout, former_)) alike_ = estimated_.size();
    former_ = layout;
    Candidate c{layout, 0, memory_.least_bytes(config_), false, {}};
    // The smallest of the layouts that do not fit is reported with its exact bytes.
    if (!fits(c.bytes) && too_large_ > 0 && c.bytes >= smallest_.bytes) return refuse(c);
    c.bytes = memory_.most_bytes(config_);
    if (!fits(c.bytes)) return refuse(c);
    const auto alike = [this] {
      return std::span(estimated_).subspan(alike_);  // by ascending shard
    };
    const auto is_larger = [&](const Estimated& e) { return e.bytes > c.bytes; };
    // Beyond the optimizer's state, replicas divide memory but no work.
    const auto costs_less = [&](const Estimated& e) {
      return !is_larger(e) && e.layout.shard < layout.shard;
    };
    if (layout.shard > Sharding::optimizer && std::ranges::any_of(alike(), costs_less)) return;
    c.estimate = least_seconds(config_, times_.costs(config_));
    for (const Estimated& e : alike())
      if (!is_larger(e) && e.seconds <= c.estimate) return;
    const auto is_worse = [&](const Estimated& e) {
      return is_larger(e) && e.seconds >= c.estimate;
    };
    estimated_.erase(std::remove_if(estimated_.begin() + static_cast<std::ptrdiff_t>(alike_),
                                    estimated_.end(), is_worse),
                     estimated_.end());
    estimated_.push_back({layout, c.estimate, c.bytes});
  }

  void expect_some() const {
    if (!estimated_.empty()) return;
    if (too_large_ == 0) {
      std::vector<std::string> reasons;
      for (const Rejection& rejection : result_.rejected) reasons.push_back(rejection.reason);
      throw UsageError(text("no layout of ", deck_.file_name, " can use ", ranks_,
                            ranks_ == 1 ? " rank" : " ranks", ": ", join(reasons, "; "),
                            "; fix fewer keys, or use another number of ranks"));
    }
    const Layout& l = smallest_.layout;
    throw UsageError(
        text("no layout of ", deck_.file_name, " fits into ", human_bytes(limit_.bytes),
             " per rank on ", ranks_, ranks_ == 1 ? " rank" : " ranks", ": the smallest needs ",
             human_bytes(smallest_.bytes), ", with tensor ", l.tensor, ", pipeline ", l.pipeline,
             ", data ", l.data, ", micro ", l.micro, ", recompute ", name_of(l.recompute),
             l.shard == Sharding::none ? "" : text(", shard ", name_of(l.shard)),
             l.shard_group == 0 ? "" : text(", shard_group ", l.shard_group),
             l.expert == 1 ? "" : text(", expert ", l.expert), "; ", remedy()));
  }

  std::string remedy() const {
    std::vector<std::string> ways{"use more ranks"};
    if (!deck::fixed_keys(deck_).empty())
      ways.push_back("fix fewer keys (" + join(deck::fixed_keys(deck_), ", ") + ")");
    if (size_of(config_.precision.compute) > 2) ways.push_back("set precision.compute=bf16");
    if (machine_.own_memory && config_.parallel.offload != Offload::both)
      ways.push_back("set parallel.offload=both");
    ways.push_back("choose a smaller model");
    ways.back() = "or " + ways.back();
    return join(ways, ", ");
  }

  /// `seconds` is a lower bound until estimate_best().
  struct Estimated {
    Layout layout;
    Seconds seconds;
    Bytes bytes;
  };

  /// Replaces the bounds of layouts by estimates, and removes the layouts that can neither be among
  /// the best nor on the Pareto front.
  void estimate_best() {
    std::ranges::stable_sort(estimated_, {},
                             [](const Estimated& e) { return std::tuple(e.seconds, e.bytes); });
    std::vector<Estimated> kept, front;
    std::vector<Seconds> best;  // ascending
    for (Estimated& e : estimated_) {
      const auto dominates = [&e](const Estimated& other) {
        return other.bytes <= e.bytes && other.seconds <= e.seconds;
      };
      const bool may_be_best = best.size() < options_.best || e.seconds < best[options_.best - 1];
      const bool may_be_in_front = options_.of_front > 0 && std::ranges::none_of(front, dominates);
      if (!may_be_best && !may_be_in_front) continue;
      e.layout.set(config_);
      e.seconds = played_.seconds(config_, times_.costs(config_));
      kept.push_back(e);
      best.insert(std::ranges::upper_bound(best, e.seconds), e.seconds);
      if (std::ranges::none_of(front, dominates)) front.push_back(e);
    }
    estimated_ = std::move(kept);
  }

  /// The layouts to simulate: the layouts with the best times, and layouts of the Pareto front.
  std::vector<Candidate> chosen() {
    estimate_best();
    std::ranges::stable_sort(estimated_, {},
                             [](const Estimated& e) { return std::tuple(e.seconds, e.bytes); });
    std::vector<Candidate> all, front;
    for (const Estimated& e : estimated_) {
      const Candidate c{e.layout, e.seconds, e.bytes, false, {}};
      if (all.size() < options_.best) all.push_back(c);
      if (front.empty() || c.bytes < front.back().bytes) front.push_back(c);
    }
    const std::size_t most = std::min(front.size(), options_.of_front);
    for (std::size_t i = 0; i < most; ++i) {
      const Candidate& c = front[i * (front.size() - 1) / std::max<std::size_t>(1, most - 1)];
      const auto same = [&](const Candidate& other) { return other.layout == c.layout; };
      if (std::ranges::any_of(all, same)) continue;
      const std::int64_t micro_batches = config_.batch.global / (c.layout.micro * c.layout.data);
      if (micro_batches * c.layout.pipeline * c.layout.chunks <= front_passes)
        all.push_back(c);
      else
        estimated_front_.push_back(c);
    }
    return all;
  }

  void simulate_best() {
    using Key = std::tuple<decltype(Layout::schedule), std::int64_t, std::int64_t, std::int64_t>;
    std::map<Key, std::vector<Candidate>> groups;
    for (const Candidate& c : chosen())
      groups[{c.layout.schedule, c.layout.pipeline, c.layout.chunks,
              c.layout.micro * c.layout.data}]
          .push_back(c);
    for (auto& [key, group] : groups) {
      group.front().layout.set(config_);
      const schedule::Program program = generated_program(config_, machine_);
      const auto needs = training_needs({&program, 1});
      for (Candidate& c : group) {
        c.layout.set(config_);
        c.bytes = most_bytes(config_, architecture_, needs, machine_, limit_.arrays_only, known_);
        if (!fits(c.bytes)) {
          refuse(c);
          continue;
        }
        c.time = simulated_time(config_, architecture_, times_.costs(config_), program);
        c.simulated = true;
        result_.candidates.push_back(c);
      }
    }
    if (result_.candidates.empty()) estimated_.clear();  // none fits
    std::ranges::stable_sort(result_.candidates, {}, [](const Candidate& c) {
      return std::tuple(c.time.seconds, c.bytes);
    });
    std::vector<Candidate> all = result_.candidates;
    all.insert(all.end(), estimated_front_.begin(), estimated_front_.end());
    std::ranges::stable_sort(all, {},
                             [](const Candidate& c) { return std::tuple(c.seconds(), c.bytes); });
    result_.front = front_of(all);
    if (result_.candidates.size() > options_.best) result_.candidates.resize(options_.best);
  }

  const deck::Deck& deck_;
  std::int64_t ranks_;
  const Machine& machine_;
  SearchOptions options_;
  deck::Config config_;  ///< config with the layout that is being tried
  Architecture architecture_;
  MemoryLimit limit_;
  MemoryEstimate memory_;
  TimeEstimate times_;
  StepEstimate played_;
  KnownParts known_;
  std::vector<Estimated> estimated_;
  Layout former_;          ///< the previous layout of the space
  std::size_t alike_ = 0;  ///< index in estimated_ of the first layout like former_
  /// Layouts of the front with programs too long to simulate.
  std::vector<Candidate> estimated_front_;
  std::int64_t too_large_ = 0;
  Candidate smallest_;  ///< smallest of the layouts that exceed the memory
  SearchResult result_;
};

}  // namespace

MemoryLimit memory_limit(const deck::ParallelConfig& parallel, const Machine& machine,
                         Bytes given) {
  if (given > 0) return {given, true};
  if (parallel.memory_limit > 0) return {parallel.memory_limit, true};
  return {machine.device.memory, machine.on_device()};
}

SearchResult search_layouts(const deck::Deck& deck, std::int64_t ranks, const Machine& machine,
                            const SearchOptions& options) {
  check(machine.time_mistake(deck.config.precision, ranks).empty(), machine.called(),
        " has no speeds");
  return LayoutSearch(deck, ranks, machine, options).run();
}

Candidate simulate_layout(const deck::Config& config, const Machine& machine, bool arrays_only) {
  const Architecture a = architecture::describe(config.model);
  const schedule::Program program = step_program(config, machine);
  const auto needs = training_needs({&program, 1});
  const bool split = needs.front().split_backward;
  const StepCosts costs = step_costs(config, a, part_times(config, a, split, machine), machine);
  KnownParts known;
  return {layout_of(config), estimated_seconds(config, costs),
          most_bytes(config, a, needs, machine, arrays_only, known), true,
          simulated_time(config, a, costs, program)};
}

// Speeds of typical machines. They order layouts; they do not predict this machine's times.

namespace {

void fill(double& value, double usual) {
  if (value <= 0) value = usual;
}

}  // namespace

Machine with_usual_speeds(const Machine& machine) {
  Machine m = machine;
  Machine::Device& d = m.device;
  if (m.on_device()) {
    // NVIDIA A100 SXM with 80 GB, data sheet; a DGX A100 with 8 adapters of 200 Gb/s.
    fill(d.peak_fp64, 19.5e12);
    fill(d.peak_fp32, 19.5e12);
    fill(d.peak_tf32, 156e12);
    fill(d.peak_bf16, 312e12);
    fill(d.peak_fp16, 312e12);
    fill(d.bandwidth, 2039e9);
    if (d.multiprocessors <= 1) d.multiprocessors = 108;
    fill(d.launch, 3e-6);
    if (m.node.devices == 0) m.node.devices = 8;
    fill(m.node.link_bandwidth, 300e9);
    fill(m.node.link_latency, 10e-6);
    fill(m.network.bandwidth, 200e9);
    fill(m.network.latency, 20e-6);
    return m;
  }
  // One core of a server: 16 fp32 products and sums per cycle and unit, two units, about 2 GHz; and
  // the core's share of a socket's memory channels.
  fill(d.peak_fp64, 64e9);
  fill(d.peak_fp32, 128e9);
  fill(d.peak_bf16, 64e9);
  fill(d.peak_fp16, 64e9);
  fill(d.bandwidth, 10e9);
  if (m.node.devices == 0) m.node.devices = 64;
  fill(m.node.link_bandwidth, 5e9);
  fill(m.node.link_latency, 5e-6);
  fill(m.network.bandwidth, 12.5e9);  // 100 Gb/s
  fill(m.network.latency, 5e-6);
  return m;
}

void choose_layout(deck::Deck& deck, std::int64_t ranks, const Machine& given) {
  deck::expect_layout(deck, ranks);
  const bool usual = given.file.empty();
  const Machine machine = usual ? with_usual_speeds(given) : given;
  const std::string missing = machine.time_mistake(deck.config.precision, ranks);
  check_usage(missing.empty(), machine.called(), " does not give ", missing, ", without which ",
              deck.cite("parallel", "layout"),
              " cannot compare layouts; add it to the file, or leave [parallel] machine out");
  const SearchResult found = search_layouts(deck, ranks, machine, {.best = 10, .of_front = 0});
  deck::Deck chosen = deck;
  found.candidates.front().layout.set(chosen.config);
  if (deck.config.parallel.recompute == Recompute::automatic &&
      deck::is_fixed(deck, "parallel", "recompute"))
    chosen.config.parallel.recompute = Recompute::automatic;  // see resolve_recompute()
  const std::string speeds = usual ? "typical speeds, because [parallel] machine is not set"
                                   : text("the speeds of ", machine.called());
  deck::set_layout(deck, deck::layout_overrides(chosen),
                   text("the fastest of ", found.evaluated,
                        found.evaluated == 1 ? " layout" : " layouts", " by ", speeds));
}

}  // namespace trireme::plan
