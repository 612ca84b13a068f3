#include <trireme/plan/ranks.hpp>

#include <algorithm>
#include <map>
#include <tuple>

namespace trireme::plan {

namespace {

/// What decides a rank's memory and traffic.
using Likeness = std::tuple<int, bool, bool, std::vector<std::int64_t>>;

Likeness likeness(const architecture::Shard& shard, const schedule::Needs& needs) {
  std::vector<std::int64_t> numbers{needs.slots, needs.received_activations,
                                    needs.received_gradients, needs.send_buffers,
                                    needs.split_backward ? 1 : 0};
  for (const Stage stage : shard.stages)
    numbers.push_back(shard.stage_layers[static_cast<std::size_t>(stage)].extent);
  return {shard.tensor_rank, shard.has_embedding(), shard.has_head(), numbers};
}

}  // namespace

std::vector<RankPlan> plan_ranks(const deck::Config& config,
                                 const architecture::Architecture& architecture,
                                 const std::vector<schedule::Needs>& all_needs) {
  const auto pipeline = static_cast<int>(config.parallel.pipeline);
  const auto tensor = static_cast<int>(config.parallel.tensor);
  const auto chunks = static_cast<int>(config.parallel.chunks);
  std::vector<RankPlan> ranks;
  std::map<Likeness, std::size_t> known;  // deep pipelines have many ranks that are alike
  architecture::Shard shard =
      architecture::make_shard(architecture, pipeline, chunks, 0, tensor, 0);
  for (int p = 0; p < pipeline; ++p) {
    const schedule::Needs& needs = all_needs[static_cast<std::size_t>(p)];
    for (Stage& stage : shard.stages) stage += p == 0 ? 0 : 1;  // rank p holds p, p + pipeline, …
    for (int t = 0; t < tensor; t += std::max(1, tensor - 1)) {
      shard.tensor_rank = t;
      const auto [found, is_new] = known.emplace(likeness(shard, needs), ranks.size());
      if (is_new) {
        ranks.push_back({p, t, needs, training_memory(config, architecture, shard, needs),
                         checkpoint_copy_bytes(config, architecture, shard),
                         reduction_bytes(config, architecture, shard), process_bytes(config),
                         step_traffic(config, architecture, shard, needs.split_backward)});
      } else {
        ranks.push_back(ranks[found->second]);
        ranks.back().pipeline = p;
      }
    }
  }
  return ranks;
}

const RankPlan& most_memory(const std::vector<RankPlan>& ranks) {
  return *std::ranges::max_element(ranks, {}, [](const RankPlan& r) { return total(r.memory); });
}
const RankPlan& least_memory(const std::vector<RankPlan>& ranks) {
  return *std::ranges::min_element(ranks, {}, [](const RankPlan& r) { return total(r.memory); });
}
const RankPlan& most_at_peak(const std::vector<RankPlan>& ranks) {
  return *std::ranges::max_element(ranks, {}, &RankPlan::peak);
}
const RankPlan& most_traffic(const std::vector<RankPlan>& ranks) {
  return *std::ranges::max_element(ranks, {}, [](const RankPlan& r) { return total(r.traffic); });
}

}  // namespace trireme::plan
