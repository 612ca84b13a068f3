#include <trireme/plan/ranks.hpp>

#include <algorithm>

namespace trireme::plan {

RankNeeds rank_needs(const schedule::Program& program, Rank rank) {
  RankNeeds needs;
  needs.slots = schedule::slots_needed(program, rank);
  const auto& row = program.ranks[static_cast<std::size_t>(rank)];
  needs.splits_backward = std::ranges::any_of(
      row, [](const schedule::Instr& i) { return i.op == schedule::Op::backward_input; });
  return needs;
}

std::vector<RankPlan> plan_ranks(const deck::Config& config,
                                 const architecture::Architecture& architecture,
                                 const schedule::Program& program) {
  const auto pipeline = static_cast<int>(config.parallel.pipeline);
  const auto tensor = static_cast<int>(config.parallel.tensor);
  const auto chunks = static_cast<int>(config.parallel.chunks);
  std::vector<RankPlan> ranks;
  for (int p = 0; p < pipeline; ++p) {
    const RankNeeds needs = rank_needs(program, p);
    for (int t = 0; t < tensor; t += std::max(1, tensor - 1)) {
      const auto shard = architecture::make_shard(architecture, pipeline, chunks, p, tensor, t);
      ranks.push_back({p, t, needs, training_memory(config, architecture, shard, needs),
                       step_traffic(config, architecture, shard)});
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
const RankPlan& most_traffic(const std::vector<RankPlan>& ranks) {
  return *std::ranges::max_element(ranks, {}, [](const RankPlan& r) { return total(r.traffic); });
}

}  // namespace trireme::plan
