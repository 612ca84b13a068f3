// Memory and traffic of the ranks that can differ: deep pipelines and wide tensor axes have many
// equal ranks, of which one is planned.
#include <trireme/plan/local_sizes.hpp>
#include <trireme/plan/ranks.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace trireme::plan {

namespace {

/// Numbers that determine a rank's memory and traffic.
using Likeness = std::tuple<int, bool, bool, std::vector<std::int64_t>>;

Likeness likeness(const architecture::Shard& shard, const schedule::Needs& needs,
                  bool shares_layers) {
  std::vector<std::int64_t> numbers{
      needs.slots,       needs.received_activations, needs.received_gradients,
      needs.handed_over, needs.send_buffers,         needs.split_backward ? 1 : 0};
  for (const Stage stage : shard.stages) {
    numbers.push_back(shard.stage_layers[static_cast<std::size_t>(stage)].extent);
    numbers.push_back(shard.hands_over(stage) ? 1 : 0);
  }
  if (shares_layers) numbers.push_back(shard.stages.front());  // some hold originals, others copies
  return {shard.tensor_rank, shard.has_embedding(), shard.has_head(), numbers};
}

/// Sizes of a tensor rank's part, and whether it shares its first and its last head of keys and
/// values.
auto kind(const deck::Config& config, const architecture::Shard& shard, const Machine& machine) {
  const deck::ModelConfig& m = config.model;
  const LocalSizes n = local_sizes(config, shard, machine);
  const layout::Slice heads = shard.groups(m.key_value_heads, n.group);
  const auto shared_before = shard.holders(m.key_value_heads, n.group, heads.offset).offset;
  const auto shared_behind = shard.holders(m.key_value_heads, n.group, heads.end() - 1).end();
  return std::tuple(n.heads, n.key_value_heads, n.feed_forward, n.vocabulary, n.slice,
                    shared_before<shard.tensor_rank, shared_behind> shard.tensor_rank + 1);
}

}  // namespace

std::vector<int> different_tensor_ranks(const deck::Config& config, const architecture::Shard& any,
                                        const Machine& machine) {
  architecture::Shard shard = any;
  std::vector<int> ranks{0};
  if (shard.tensor_size > 1) ranks.push_back(shard.tensor_size - 1);
  if (architecture::shared_heads(config.model, shard.tensor_size).empty()) return ranks;
  std::set<decltype(kind(config, shard, machine))> kinds;
  for (const int t : {0, shard.tensor_size - 1}) {
    shard.tensor_rank = t;
    kinds.insert(kind(config, shard, machine));
  }
  for (int t = 1; t + 1 < shard.tensor_size; ++t) {
    shard.tensor_rank = t;
    if (kinds.insert(kind(config, shard, machine)).second) ranks.insert(ranks.end() - 1, t);
  }
  return ranks;
}

Bytes most_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                 const std::vector<schedule::Needs>& all_needs, const Machine& machine,
                 bool arrays_only, KnownArenas& known_arenas) {
  const deck::ParallelConfig& parallel = config.parallel;
  const layout::StageMap stages = parallel.stage_map();
  architecture::Shard shard = architecture::make_shard(architecture, parallel, 0, 0);
  std::vector<int> planned{0};  // it holds the largest parts, unless ranks share heads
  if (!architecture::shared_heads(config.model, shard.tensor_size).empty())
    planned = different_tensor_ranks(config, shard, machine);
  std::set<Likeness> known;
  Bytes most = 0;
  for (std::size_t p = 0; p < all_needs.size(); ++p) {
    shard.stages = stages.stages_of(static_cast<Rank>(p));
    for (const int t : planned) {
      shard.tensor_rank = t;
      if (!known.insert(likeness(shard, all_needs[p], config.model.shared_layers > 0)).second)
        continue;
      const auto [arenas, is_new] = known_arenas.try_emplace(
          {parallel.pipeline, parallel.chunks, static_cast<std::int64_t>(parallel.schedule),
           static_cast<std::int64_t>(parallel.recompute), parallel.tensor, parallel.data,
           parallel.distributed_optimizer ? 1 : 0, static_cast<std::int64_t>(p), t});
      if (is_new) arenas->second = arena_parts(config, architecture, shard, machine);
      const TrainingBytes bytes =
          training_bytes(config, architecture, shard, all_needs[p], arenas->second, machine);
      Bytes here = bytes.where_kernels_run();
      if (!machine.on_device() && !arrays_only)
        here = bytes.all() + checkpoint_copy_bytes(config, architecture, shard, machine) +
               reduction_bytes(config, architecture, shard, machine) + process_bytes(config);
      most = std::max(most, here);
    }
  }
  return most;
}

std::vector<RankPlan> plan_ranks(const deck::Config& config,
                                 const architecture::Architecture& architecture,
                                 const std::vector<schedule::Needs>& all_needs,
                                 const Machine& machine) {
  const layout::StageMap stages = config.parallel.stage_map();
  std::vector<RankPlan> ranks;
  std::map<Likeness, std::size_t> known;  // deep pipelines have many equal ranks
  architecture::Shard shard = architecture::make_shard(architecture, config.parallel, 0, 0);
  const std::vector<int> planned = different_tensor_ranks(config, shard, machine);
  for (int p = 0; p < stages.ranks; ++p) {
    const schedule::Needs& needs = all_needs[static_cast<std::size_t>(p)];
    shard.stages = stages.stages_of(p);
    for (const int t : planned) {
      shard.tensor_rank = t;
      const auto [found, is_new] =
          known.emplace(likeness(shard, needs, config.model.shared_layers > 0), ranks.size());
      if (is_new) {
        ranks.push_back({p, t, needs, training_memory(config, architecture, shard, needs, machine),
                         checkpoint_copy_bytes(config, architecture, shard, machine),
                         reduction_bytes(config, architecture, shard, machine),
                         process_bytes(config),
                         step_traffic(config, architecture, shard, needs.split_backward, machine)});
      } else {
        ranks.push_back(ranks[found->second]);
        ranks.back().pipeline = p;
      }
    }
  }
  return ranks;
}

const RankPlan& most_memory(const std::vector<RankPlan>& ranks) {
  return *std::ranges::max_element(ranks, {},
                                   [](const RankPlan& r) { return device_total(r.memory); });
}
const RankPlan& least_memory(const std::vector<RankPlan>& ranks) {
  return *std::ranges::min_element(ranks, {},
                                   [](const RankPlan& r) { return device_total(r.memory); });
}
const RankPlan& most_at_peak(const std::vector<RankPlan>& ranks) {
  return *std::ranges::max_element(ranks, {}, &RankPlan::peak);
}
const RankPlan& most_traffic(const std::vector<RankPlan>& ranks) {
  return *std::ranges::max_element(ranks, {}, [](const RankPlan& r) { return total(r.traffic); });
}

}  // namespace trireme::plan
