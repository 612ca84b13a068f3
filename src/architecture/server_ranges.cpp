#include <trireme/architecture/server_ranges.hpp>

#include <algorithm>

namespace trireme::architecture {

Division server_division(const deck::ParallelConfig& parallel) {
  const bool divided = parallel.servers > 1;
  return {divided, divided};
}

BucketCut server_cut(const deck::ParallelConfig& parallel, const Architecture& architecture,
                     const Shard& shard, const std::vector<RankArray>& arrays,
                     const Placement& placement, std::int64_t size) {
  return {architecture,
          shard,
          arrays,
          placement,
          std::max<std::int64_t>(1, parallel.bucket_bytes / size),
          static_cast<int>(parallel.servers),
          server_division(parallel).by_block()};
}

std::int64_t received_elements(const BucketCut& cut) {
  return most_own_elements(cut, cut.placement().gradient_elements,
                           [](const GradientRange&) { return true; });
}

std::int64_t received_gradients(const deck::ParallelConfig& parallel) {
  return parallel.data * (parallel.staleness + 1);
}

}  // namespace trireme::architecture
