#include <trireme/plan/local_training.hpp>

#include <trireme/base/alignment.hpp>
#include <trireme/layout/split.hpp>
#include <trireme/plan/typed_sizes.hpp>

#include <algorithm>

namespace trireme::plan {
namespace {

constexpr Bytes progress_bytes = 64;  // progress of a worker that is not selected

Bytes message_element(const deck::Config& config, Bytes accumulate) {
  return config.local.differences == Differences::bf16 ? 2 : accumulate;
}

}  // namespace

void add_local(ArenaSizes& arenas, const deck::Config& config, const LocalElements& elements,
               const TrainingSizes& sizes) {
  const deck::ParallelConfig& p = config.parallel;
  if (p.workers == 1) return;
  const std::int64_t parked = p.workers_per_rank() - 1;
  const int arrays = config.local.outer_momentum > 0 ? 2 : 1;
  const Bytes accumulate = sizes.accumulate();
  arenas.local_state =
      arrays * aligned(arenas.state_elements * accumulate) + parked * sizes.optimizer(arenas);
  arenas.local = parked * (aligned(elements.parked * sizes.element()) + progress_bytes) +
                 architecture::exchange_bytes(
                     p, architecture::exchanged_elements(config, elements.fragment, accumulate),
                     message_element(config, accumulate));
}

std::vector<TrafficRow> outer_traffic(const deck::Config& config,
                                      const architecture::Architecture& architecture,
                                      const architecture::Shard& shard, const Machine& machine) {
  const deck::ParallelConfig& p = config.parallel;
  const std::int64_t groups = p.worker_groups();
  if (groups == 1) return {};
  const TypedSizes sizes = typed_sizes(config, shard, machine);
  const auto arrays = architecture::rank_arrays(architecture, shard);
  const Bytes element = message_element(config, sizes.accumulate);
  TrafficRow sends{"workers", "differences: send"};
  TrafficRow gathers{"workers", "means: all-gather"};
  std::vector<std::int64_t> fragments(static_cast<std::size_t>(config.local.fragments));
  std::vector<std::int64_t> of_experts = fragments;  // divided among the ranks with the same ones
  for (const auto& array : arrays) {
    if (array.frozen) continue;
    const architecture::ArraySpec& spec = architecture.arrays[array.number];
    (spec.of_experts() ? of_experts : fragments)[static_cast<std::size_t>(
        architecture::fragment_of(spec, config.model, config.local))] += array.elements();
  }
  for (std::size_t i = 0; i < fragments.size(); ++i)
    fragments[i] = p.divides_state() ? fragments[i] / p.shard_ranks() +
                                           of_experts[i] / (p.shard_ranks() / p.expert)
                                     : fragments[i] + of_experts[i];
  const std::int64_t most =
      architecture::exchanged_elements(config, std::ranges::max(fragments), sizes.accumulate);
  for (const std::int64_t size : fragments)
    for (std::int64_t first = 0; first < size; first += most) {
      const std::int64_t n = std::min(most, size - first);
      for (std::int64_t group = 1; group < groups; ++group) {
        const std::int64_t part = layout::split(n, groups, group).extent;
        if (part > 0) sends.operations += p.workers_per_rank();
        sends.bytes += p.workers_per_rank() * part * element;
      }
      ++gathers.operations;
      gathers.bytes += n * element;
    }
  return {sends, gathers};
}

}  // namespace trireme::plan
