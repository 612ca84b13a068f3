// Lists the buckets of a cut with their blocks and bounds.
#include <trireme/architecture/buckets.hpp>

#include <algorithm>
#include <set>

namespace trireme::architecture {
namespace {

/// The blocks of a run, each once, in the order of its first range; shared layers are left out.
std::vector<std::int64_t> blocks_of(const BucketRun& run) {
  std::vector<std::int64_t> blocks;
  std::set<std::int64_t> known;
  for (const GradientRange& r : run.ranges)
    if (!r.shared && known.insert(r.block).second) blocks.push_back(r.block);
  return blocks;
}

/// The token table of a shared vocabulary is read before the embedding; shared layers are read from
/// the first layer on.
std::int64_t read_order_of(const std::vector<std::int64_t>& blocks, std::int64_t layers) {
  if (blocks.empty()) return block_of_layer(0);
  if (std::ranges::find(blocks, shared_token_table(layers)) != blocks.end()) return -1;
  return std::ranges::min(blocks);
}

}  // namespace

std::vector<Bucket> gradient_buckets(const BucketCut& cut) {
  std::vector<Bucket> buckets;
  cut.visit([&](const BucketRun& run) {
    const GradientRange& any = run.ranges.front();
    Bucket bucket{run.begin, run.end, any.stage, blocks_of(run), {}, any.shared, run.expert_ranks};
    bucket.read_order = read_order_of(bucket.blocks, cut.layers());
    for (int o = 0; o <= run.owners; ++o) bucket.bounds.push_back(bound_of(run, o));
    for (std::int64_t i = 0; i < run.count; ++i) {
      buckets.push_back(bucket);
      bucket.begin -= run.size();
      bucket.end -= run.size();
      for (std::int64_t& bound : bucket.bounds) bound -= run.size();
    }
  });
  return buckets;
}

}  // namespace trireme::architecture
