#include <trireme/architecture/buckets.hpp>

#include <algorithm>

namespace trireme::architecture {
namespace {

/// The gradient of one array.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Stage stage = 0;
  std::int64_t layer = 0;
  bool split = false;
};

std::vector<Range> ranges_of(const Architecture& architecture, const Shard& shard,
                             const std::vector<LocalArray>& arrays, const Placement& placement) {
  const std::int64_t head = architecture.model.layers;
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const LocalArray& a = arrays[i];
    ranges.push_back({placement.offset[i], placement.offset[i] + a.elements(), a.stage,
                      a.copy ? head : architecture.arrays[a.number].layer, a.split});
  }
  if (placement.tied_elements > 0)
    ranges.push_back({placement.tied_offset, placement.tied_offset + placement.tied_elements,
                      shard.last_stage(), head, true});
  std::ranges::sort(ranges, {}, &Range::begin);
  return ranges;
}

void cut(std::vector<Bucket>& buckets, const Range* first, const Range* last,
         std::int64_t most_elements) {
  for (std::int64_t end = (last - 1)->end; end > first->begin;) {
    Bucket bucket{std::max(first->begin, end - most_elements), end, first->stage, {}};
    for (const Range* r = first; r != last; ++r) {
      const bool inside = r->begin < bucket.end && r->end > bucket.begin;
      if (inside && std::ranges::find(bucket.layers, r->layer) == bucket.layers.end())
        bucket.layers.push_back(r->layer);
    }
    end = bucket.begin;
    if (!bucket.layers.empty()) buckets.push_back(std::move(bucket));  // else a gap alone
  }
}

}  // namespace

std::vector<Bucket> gradient_buckets(const Architecture& architecture, const Shard& shard,
                                     const std::vector<LocalArray>& arrays,
                                     const Placement& placement, std::int64_t most_elements) {
  const std::vector<Range> ranges = ranges_of(architecture, shard, arrays, placement);
  std::vector<Bucket> buckets;
  const Range* const end = ranges.data() + ranges.size();
  for (const Range* first = ranges.data(); first != end;) {
    const Range* last = std::find_if(first, end, [&](const Range& r) {
      return r.stage != first->stage || r.split != first->split;
    });
    cut(buckets, first, last, most_elements);
    first = last;
  }
  return buckets;
}

}  // namespace trireme::architecture
