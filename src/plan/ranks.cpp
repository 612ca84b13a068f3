// Memory and traffic of ranks; of equal ranks, only one is planned.
#include <trireme/plan/ranks.hpp>

#include <trireme/architecture/arrangement.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/servers.hpp>
#include <trireme/plan/typed_sizes.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace trireme::plan {

namespace {

/// Values that determine the arrays of a rank: the axes, its tensor rank, the kinds of its stages'
/// layers, and the arrays that replicas divide.
std::vector<std::int64_t> place_of(const deck::Config& config,
                                   const architecture::Architecture& architecture,
                                   const architecture::Shard& shard) {
  const deck::ParallelConfig& p = config.parallel;
  const bool gradients = architecture::division_of(config).gradients;
  std::vector<std::int64_t> key{p.pipeline,
                                p.chunks,
                                p.tensor,
                                p.data,
                                p.context,
                                config.batch.micro,
                                shard.tensor_rank,
                                static_cast<std::int64_t>(p.shard),
                                p.shard_group,
                                p.expert,
                                gradients ? 1 : 0,
                                gradients && p.sequence_parallel ? 1 : 0,
                                shard.has_embedding() ? 1 : 0,
                                shard.has_head() ? 1 : 0,
                                shard.vocabulary_part(config.model.vocabulary).extent};
  for (const Stage stage : shard.stages) {
    const layout::Slice& layers = shard.stage_layers[static_cast<std::size_t>(stage)];
    const std::vector<std::int64_t> counts = architecture.count_kinds(layers);
    key.insert(key.end(), counts.begin(), counts.end());
    // Layers before the first trained array have no backward pass.
    key.push_back(architecture.first_with_backward(layers) - layers.offset);
    key.push_back(shard.hands_over(stage) ? 1 : 0);
  }
  // Some ranks hold originals of shared layers, others copies.
  if (config.model.shared_layers > 0) key.push_back(shard.stages.front());
  return key;
}

/// Values that determine the memory and the traffic of a rank. `place`: result of place_of().
std::vector<std::int64_t> likeness(std::vector<std::int64_t> place, const schedule::Needs& needs) {
  place.insert(place.end(), {needs.slots, needs.received_activations, needs.received_gradients,
                             needs.handed_over, needs.send_buffers, needs.logits_slots,
                             needs.split_backward ? 1 : 0});
  return place;
}

/// Computes the bytes and the traffic of ranks, and caches values for equal ranks.
class Planner {
 public:
  Planner(const deck::Config& config, const architecture::Architecture& architecture,
          const Machine& machine)
      : config_(config),
        architecture_(architecture),
        machine_(machine),
        sizes_(config, architecture, machine) {}

  TrainingBytes bytes(const architecture::Shard& shard, const schedule::Needs& needs,
                      const ArenaSizes& arenas) {
    return sizes_.bytes(activations(shard, needs.split_backward), arenas, shard, needs);
  }

  const ShardSizes& parts(const architecture::Shard& shard, const std::vector<std::int64_t>& place,
                          bool on_host, KnownParts& known) const {
    const auto [found, is_new] = known.try_emplace(place);
    if (!is_new) return found->second;
    found->second.arenas = arena_parts(config_, architecture_, shard, machine_);
    if (on_host) {
      // Other replicas write other experts.
      architecture::Shard writer = shard;
      for (writer.expert_rank = 0; writer.expert_rank < writer.expert_size; ++writer.expert_rank)
        found->second.checkpoint_copy =
            std::max(found->second.checkpoint_copy,
                     checkpoint_copy_bytes(config_, architecture_, writer, machine_));
      found->second.reduction = reduction_bytes(config_, architecture_, shard, machine_);
    }
    return found->second;
  }

  const std::vector<TrafficRow>& traffic(const architecture::Shard& shard,
                                         const std::vector<std::int64_t>& place, bool split) {
    const auto [found, is_new] = traffic_.try_emplace({place, split});
    if (is_new) found->second = step_traffic(config_, architecture_, shard, split, machine_);
    return found->second;
  }

 private:
  const ActivationSizes& activations(const architecture::Shard& shard, bool split) {
    const auto [found, is_new] = activations_.try_emplace(
        {shard.tensor_rank, shard.vocabulary_part(config_.model.vocabulary).extent, split});
    if (is_new) found->second = activation_parts(config_, architecture_, shard, split, machine_);
    return found->second;
  }

  const deck::Config& config_;
  const architecture::Architecture& architecture_;
  const Machine& machine_;
  TrainingSizes sizes_;
  /// Indexed by tensor rank, number of vocabulary ids, and whether backward passes are split.
  std::map<std::tuple<int, std::int64_t, bool>, ActivationSizes> activations_;
  std::map<std::pair<std::vector<std::int64_t>, bool>, std::vector<TrafficRow>> traffic_;
};

/// Kind of a tensor rank: the sizes of its part, and whether it shares its first and its last head
/// of keys and values with other ranks.
std::vector<std::int64_t> kind(const deck::Config& config,
                               const architecture::Architecture& architecture,
                               const architecture::Shard& shard, const Machine& machine) {
  const deck::ModelConfig& m = config.model;
  const TypedSizes n = typed_sizes(config, shard, machine);
  const layout::Slice heads = shard.groups(m.key_value_heads, n.group);
  const auto shared_before = shard.holders(m.key_value_heads, n.group, heads.offset).offset;
  const auto shared_behind = shard.holders(m.key_value_heads, n.group, heads.end() - 1).end();
  std::vector<std::int64_t> sizes{n.slice, n.vocabulary, shared_before < shard.tensor_rank ? 1 : 0,
                                  shared_behind > shard.tensor_rank + 1 ? 1 : 0};
  for (const architecture::BlockDescription& layer : architecture.layer_kinds())
    for (const architecture::Tensor& tensor : layer.tensors)
      sizes.insert(sizes.end(), {rows_of(tensor.rows, n), columns_of(tensor.columns, n)});
  return sizes;
}

}  // namespace

std::vector<int> different_tensor_ranks(const deck::Config& config,
                                        const architecture::Architecture& architecture,
                                        const architecture::Shard& any, const Machine& machine) {
  architecture::Shard shard = any;
  std::vector<int> ranks{0};
  if (shard.tensor_size > 1) ranks.push_back(shard.tensor_size - 1);
  if (architecture::shared_heads(config.model, shard.tensor_size).empty()) return ranks;
  std::set<std::vector<std::int64_t>> kinds;
  for (const int t : {0, shard.tensor_size - 1}) {
    shard.tensor_rank = t;
    kinds.insert(kind(config, architecture, shard, machine));
  }
  for (int t = 1; t + 1 < shard.tensor_size; ++t) {
    shard.tensor_rank = t;
    if (kinds.insert(kind(config, architecture, shard, machine)).second)
      ranks.insert(ranks.end() - 1, t);
  }
  return ranks;
}

Bytes most_bytes(const deck::Config& config, const architecture::Architecture& architecture,
                 const std::vector<schedule::Needs>& all_needs, const Machine& machine,
                 bool arrays_only, KnownParts& known_parts) {
  const deck::ParallelConfig& parallel = config.parallel;
  const layout::StageMap stages = parallel.stage_map();
  architecture::Shard shard = architecture::make_shard(architecture, parallel, 0, 0);
  std::vector<int> planned{0};  // rank 0 holds the largest parts, unless ranks share heads
  if (!architecture::shared_heads(config.model, shard.tensor_size).empty())
    planned = different_tensor_ranks(config, architecture, shard, machine);
  const bool process = !machine.on_device() && !arrays_only;
  Planner planner(config, architecture, machine);
  std::set<std::vector<std::int64_t>> known;
  Bytes most = 0;
  for (std::size_t p = 0; p < all_needs.size(); ++p) {
    shard.stages = stages.stages_of(static_cast<Rank>(p));
    for (const int t : planned) {
      shard.tensor_rank = t;
      const auto place = place_of(config, architecture, shard);
      if (!known.insert(likeness(place, all_needs[p])).second) continue;
      const ShardSizes& parts = planner.parts(shard, place, process, known_parts);
      const TrainingBytes bytes = planner.bytes(shard, all_needs[p], parts.arenas);
      const Bytes here =
          process ? bytes.all() + parts.checkpoint_copy + parts.reduction + process_bytes(config)
                  : bytes.where_kernels_run();
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
  std::map<std::vector<std::int64_t>, std::size_t> known;  // deep pipelines have many equal ranks
  architecture::Shard shard = architecture::make_shard(architecture, config.parallel, 0, 0);
  const std::vector<int> planned = different_tensor_ranks(config, architecture, shard, machine);
  Planner planner(config, architecture, machine);
  KnownParts known_parts;
  for (int p = 0; p < stages.ranks; ++p) {
    const schedule::Needs& needs = all_needs[static_cast<std::size_t>(p)];
    shard.stages = stages.stages_of(p);
    for (const int t : planned) {
      shard.tensor_rank = t;
      const auto place = place_of(config, architecture, shard);
      const auto [found, is_new] = known.emplace(likeness(place, needs), ranks.size());
      if (!is_new) {
        ranks.push_back(ranks[found->second]);
        ranks.back().pipeline = p;
        ranks.back().repeats = true;
        continue;
      }
      const ShardSizes& parts = planner.parts(shard, place, true, known_parts);
      ranks.push_back({p, t, false, needs, parts,
                       rows_of(planner.bytes(shard, needs, parts.arenas)), process_bytes(config),
                       planner.traffic(shard, place, needs.split_backward)});
    }
  }
  return ranks;
}

void replan_memory(std::vector<RankPlan>& ranks, const deck::Config& config,
                   const architecture::Architecture& architecture, const Machine& machine,
                   KnownParts& known) {
  const layout::StageMap stages = config.parallel.stage_map();
  architecture::Shard shard = architecture::make_shard(architecture, config.parallel, 0, 0);
  Planner planner(config, architecture, machine);
  for (RankPlan& rank : ranks) {
    shard.stages = stages.stages_of(rank.pipeline);
    shard.tensor_rank = rank.tensor;
    const ShardSizes& parts =
        planner.parts(shard, place_of(config, architecture, shard), false, known);
    rank.memory = rows_of(planner.bytes(shard, rank.needs, parts.arenas));
  }
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

Plan make_plan(const deck::Config& config, const Machine& machine) {
  Plan plan{architecture::describe(config.model), step_programs(config, machine), {}, {}};
  plan.ranks = plan_ranks(config, plan.architecture, training_needs(plan.programs), machine);
  if (config.parallel.has_servers())
    plan.servers.push_back(plan_server(config, plan.architecture, machine));
  return plan;
}

}  // namespace trireme::plan
