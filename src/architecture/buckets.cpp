// Lists the buckets of a cut with their layers and bounds.
#include <trireme/architecture/buckets.hpp>

#include <set>

namespace trireme::architecture {
namespace {

/// The layers of a run, each once, in the order of its first range; shared layers are left out.
std::vector<std::int64_t> layers_of(const BucketRun& run) {
  std::vector<std::int64_t> layers;
  std::set<std::int64_t> known;
  for (const GradientRange& r : run.ranges)
    if (!r.shared && known.insert(r.layer).second) layers.push_back(r.layer);
  return layers;
}

}  // namespace

std::vector<Bucket> gradient_buckets(const BucketCut& cut) {
  std::vector<Bucket> buckets;
  cut.visit([&](const BucketRun& run) {
    const GradientRange& any = run.ranges.front();
    Bucket bucket{run.begin, run.end, any.stage, layers_of(run), {}, any.shared};
    for (int r = 0; r <= cut.data_ranks(); ++r)
      bucket.bounds.push_back(bound_of(run, cut.data_ranks(), r));
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
