// The layouts of a deck on a number of ranks: the axes, then micro-batches, schedules and chunks,
// then recomputation and the division of state.
#include <trireme/plan/search_space.hpp>

#include <trireme/architecture/arrangement.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/deck/checks.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/deck/model_checks.hpp>
#include <trireme/deck/parallel_checks.hpp>
#include <trireme/plan/network_time.hpp>

#include <algorithm>
#include <numeric>

namespace trireme::plan {
namespace {

constexpr std::array recomputes{Recompute::none, Recompute::selective, Recompute::full};
constexpr std::array shardings{Sharding::none, Sharding::optimizer, Sharding::gradients,
                               Sharding::weights};

std::int64_t number(ScheduleKind kind) {
  return static_cast<std::int64_t>(kind);
}

}  // namespace

void Layout::set(deck::Config& config) const {
  deck::ParallelConfig& p = config.parallel;
  p.tensor = tensor;
  p.pipeline = pipeline;
  p.data = data;
  p.chunks = chunks;
  p.schedule = schedule;
  p.recompute = recompute;
  p.sequence_parallel = sequence_parallel;
  p.shard = shard;
  p.shard_group = shard_group;
  p.expert = expert;
  config.batch.micro = micro;
}

Layout layout_of(const deck::Config& config) {
  const deck::ParallelConfig& p = config.parallel;
  return {p.tensor,    p.pipeline,          p.data,  config.batch.micro, p.chunks, p.schedule,
          p.recompute, p.sequence_parallel, p.shard, p.shard_group,      p.expert};
}

bool alike_but_shard(const Layout& a, const Layout& b) {
  Layout other = b;
  other.shard = a.shard;
  other.shard_group = a.shard_group;
  return a == other;
}

SearchSpace::SearchSpace(const deck::Deck& deck, const architecture::Architecture& architecture,
                         std::int64_t ranks, const Machine& machine)
    : deck_(deck),
      architecture_(architecture),
      machine_(machine),
      tried_(deck.config),
      ranks_(ranks),
      batch_(0),
      programs_(0) {
  const deck::Config& c = deck.config;
  const deck::ParallelConfig& p = c.parallel;
  for (const deck::BatchPhase& phase : deck::BatchSchedule(c.batch).phases()) {
    batch_ = std::gcd(batch_, phase.global);
    programs_ += static_cast<double>(phase.global) / static_cast<double>(c.batch.global);
  }
  tensor_ = choice("parallel", "tensor", p.tensor);
  pipeline_ = choice("parallel", "pipeline", p.pipeline);
  data_ = choice("parallel", "data", p.data);
  micro_ = choice("batch", "micro", c.batch.micro);
  schedule_ = choice("parallel", "schedule", number(p.schedule));
  chunks_ = choice("parallel", "chunks", p.chunks);
  recompute_ = choice("parallel", "recompute", static_cast<std::int64_t>(p.recompute));
  recompute_.fixed = recompute_.fixed && p.recompute != Recompute::automatic;
  sequence_parallel_ = choice("parallel", "sequence_parallel", p.sequence_parallel ? 1 : 0);
  shard_ = choice("parallel", "shard", static_cast<std::int64_t>(p.shard));
  shard_group_ = choice("parallel", "shard_group", p.shard_group);
  expert_ = choice("parallel", "expert", p.expert);
}

SearchSpace::Choice SearchSpace::choice(const char* section, const char* name,
                                        std::int64_t value) const {
  return {deck::is_fixed(deck_, section, name), value};
}

void SearchSpace::reject(const char* reason, std::int64_t layouts) {
  const auto found = std::ranges::find(rejected_, reason, &Rejection::reason);
  if (found == rejected_.end())
    rejected_.push_back({reason, layouts});
  else
    found->layouts += layouts;
}

bool SearchSpace::has_axes(const Layout& layout) {
  const deck::ModelConfig& m = deck_.config.model;
  if (!tensor_.allows(layout.tensor) || !pipeline_.allows(layout.pipeline) ||
      !data_.allows(layout.data))
    return false;
  if (layout.tensor > m.most_tensor_ranks()) {
    reject(
        "more tensor ranks than heads, feed-forward columns, experts or tokens of the vocabulary");
    return false;
  }
  if (batch_ % layout.data != 0) {
    reject("global batch not divisible by data");
    return false;
  }
  const deck::ParallelConfig& p = deck_.config.parallel;
  if (shard_group_.fixed && p.shard_group > 0 && layout.data * p.context % p.shard_group != 0) {
    reject("replicas not divisible by shard_group");
    return false;
  }
  const auto by_hand = std::ssize(p.partition);
  if (by_hand > 0 && by_hand % layout.pipeline != 0) {
    reject("more or fewer stages than in partition");
    return false;
  }
  const std::int64_t chunks = chunks_.fixed ? chunks_.value : 1;
  const bool chosen = pipeline_.fixed || chunks_.fixed;
  const std::int64_t most =
      chosen ? deck::stages_limit : std::min(m.all_layers(), deck::stages_limit);
  if (layout.pipeline * chunks > most) {
    reject(chosen ? "more stages than a program may have" : "more stages than layers");
    return false;
  }
  return true;
}

/// Numbers of chunks to try. If the deck does not fix the number by `chunks` or `partition`: for
/// each number of layers of the longest stage, the smallest number of chunks ≥ 2.
std::vector<std::int64_t> SearchSpace::chunk_counts(std::int64_t pipeline) const {
  if (chunks_.fixed) return {chunks_.value};
  const auto by_hand = std::ssize(deck_.config.parallel.partition);
  if (by_hand > 0) return {by_hand / pipeline};
  std::vector<std::int64_t> counts;
  std::int64_t before = 0;
  for (std::int64_t chunks = 1; pipeline * chunks <= architecture_.model.all_layers(); ++chunks) {
    if (pipeline * chunks > deck::stages_limit) break;
    deck::ParallelConfig parallel;
    parallel.pipeline = pipeline;
    parallel.chunks = chunks;
    const std::int64_t longest = architecture::longest_stage(architecture_, parallel);
    if (chunks > 1 && longest != before) counts.push_back(chunks);
    before = longest;
  }
  return counts;
}

/// Numbers of replicas that can divide the experts, so that each rank has one.
std::vector<std::int64_t> SearchSpace::expert_sizes(const Layout& axes) {
  const deck::Config& c = deck_.config;
  const std::int64_t number = c.model.experts.number;
  if (!expert_.fixed && (number == 0 || !deck::may_divide_experts(c))) return {1};
  std::vector<std::int64_t> sizes = deck::divisors(axes.data * c.parallel.context);
  std::erase_if(sizes, [&](std::int64_t n) {
    return !expert_.allows(n) || (n > 1 && n > c.model.experts.most_replicas(axes.tensor));
  });
  if (sizes.empty()) reject("replicas or experts not divisible by expert");
  return sizes;
}

std::vector<Layout> SearchSpace::schedules(const Layout& axes) {
  std::vector<Layout> all;
  Layout layout = axes;
  const auto by_hand = std::ssize(deck_.config.parallel.partition);
  const auto add = [&](const schedule::Schedule& schedule, std::int64_t chunks) {
    if (!schedule.accepts(chunks) || !chunks_.allows(chunks)) return;
    if (by_hand > 0 && axes.pipeline * chunks != by_hand) return;
    layout.schedule = schedule.kind;
    layout.chunks = chunks;
    all.push_back(layout);
  };
  if (axes.pipeline == 1 && !schedule_.fixed && !chunks_.fixed && by_hand == 0) {
    add(schedule::schedule_of(deck::ParallelConfig().schedule), 1);
    return all;
  }
  const std::int64_t most = std::min(architecture_.model.all_layers(), deck::stages_limit);
  for (const schedule::Schedule& schedule : schedule::schedules()) {
    if (schedule.generate == nullptr || schedule::traits_of(schedule.kind).overlaps_steps) continue;
    if (schedule_.fixed ? !schedule_.allows(number(schedule.kind)) : !schedule.compared) continue;
    if (schedule.has_fixed_chunks()) {
      const std::int64_t chunks = schedule.least_chunks;
      const bool pays = chunks == 1 || (axes.pipeline > 1 && chunks * axes.pipeline <= most);
      if (schedule_.fixed || pays) add(schedule, chunks);
      continue;
    }
    for (const std::int64_t chunks : chunk_counts(axes.pipeline)) add(schedule, chunks);
  }
  return all;
}

/// The layout with each recomputation, sequence parallelism and sharding that the deck allows.
std::vector<Layout> SearchSpace::options(const Layout& given) {
  std::vector<Layout> all;
  Layout layout = given;
  for (const Recompute recompute : recomputes)
    for (const bool sequence : {false, true}) {
      layout.recompute = recompute;
      layout.sequence_parallel = sequence;
      const bool has_effect = !sequence || layout.tensor > 1 || sequence_parallel_.fixed;
      if (has_effect && recompute_.allows(static_cast<std::int64_t>(recompute)) &&
          sequence_parallel_.allows(sequence ? 1 : 0))
        add_shards(layout, all);
    }
  return all;
}

/// Groups of replicas help only if passes gather weights.
void SearchSpace::add_shards(const Layout& given, std::vector<Layout>& all) {
  Layout layout = given;
  for (const Sharding shard : shardings) {
    if (shard_.fixed ? !shard_.allows(static_cast<std::int64_t>(shard)) : !pays(layout, shard))
      continue;
    layout.shard = shard;
    layout.shard_group = shard_group_.fixed ? shard_group_.value : 0;
    const auto fits = [&] { return layout.shard_group % layout.expert == 0; };
    if (fits()) all.push_back(layout);
    if (shard != Sharding::weights || shard_group_.fixed) continue;
    layout.shard_group = replicas_on_node(layout);
    if (layout.shard_group > 0 && fits()) all.push_back(layout);
  }
}

/// Whether this division may save memory and can be combined with the deck.
bool SearchSpace::pays(const Layout& layout, Sharding shard) {
  if (shard == Sharding::none) return true;
  const deck::Config& c = deck_.config;
  const std::int64_t replicas = layout.data * c.parallel.context;
  if ((shard_group_.fixed && c.parallel.shard_group > 0 ? c.parallel.shard_group : replicas) == 1)
    return false;
  if (shard == Sharding::optimizer) return true;
  if (c.run.audit_every > 0 || c.model.shared_layers > 0) return false;
  if (shard == Sharding::weights) return true;
  layout.set(tried_);
  tried_.parallel.shard = shard;
  return architecture::division_of(tried_).gradients;
}

/// Number of replicas on each node; 0 if it is 1, if one node has all replicas, or if groups of
/// this size would not divide the replicas and the nodes evenly.
std::int64_t SearchSpace::replicas_on_node(const Layout& layout) {
  layout.set(tried_);
  const GroupPlace place = NetworkTime(machine_, tried_.parallel).place(Axis::data);
  const bool data_second = machine_.software.second_axis == SecondAxis::data;
  const layout::AxisList axes = tried_.parallel.axes(data_second ? "tensor, data" : "");
  const std::int64_t stride =
      layout.data > 1 ? axes.stride(Axis::data) : axes.stride(Axis::context);
  const bool divides = place.per_node > 1 && place.nodes > 1 && place.ranks % place.per_node == 0 &&
                       machine_.node.devices % (stride * place.per_node) == 0;
  return divides ? place.per_node : 0;
}

void SearchSpace::visit(const std::function<void(const Layout&)>& visit) {
  const std::int64_t sequence = deck_.config.model.sequence;
  for (const std::int64_t tensor : deck::divisors(ranks_))
    for (const std::int64_t pipeline : deck::divisors(ranks_ / tensor)) {
      Layout layout{tensor, pipeline, ranks_ / (tensor * pipeline)};
      if (!has_axes(layout)) continue;
      const std::vector<Layout> scheduled = schedules(layout);
      const std::vector<std::int64_t> experts = expert_sizes(layout);
      for (const std::int64_t micro : deck::divisors(batch_ / layout.data)) {
        if (!micro_.allows(micro)) continue;
        if (tensor > micro * sequence) {
          reject("more tensor ranks than tokens of a micro-batch");
          continue;
        }
        if (!deck::fp8_fits(deck_.config, tensor, micro)) {
          reject("parts of the feed-forward or micro-batches not in multiples of 16, for fp8");
          continue;
        }
        const std::int64_t count = deck_.config.batch.global / (micro * layout.data);
        for (const Layout& one : scheduled) {
          const std::int64_t stages = pipeline * one.chunks;
          if (count > deck::micro_batches_limit || stages * count > deck::passes_limit ||
              (programs_ > 1 && static_cast<double>(stages * count) * programs_ >
                                    static_cast<double>(deck::passes_limit))) {
            reject("more micro-batches than a program may have");
            continue;
          }
          Layout with = one;
          with.micro = micro;
          for (const std::int64_t expert : experts) {
            with.expert = expert;
            for (const Layout& last : options(with)) visit(last);
          }
        }
      }
    }
}

}  // namespace trireme::plan
