// Splits the gradient arena into buckets at the edges of the norm's blocks, in the order in which
// backward passes complete them.
#include <trireme/architecture/buckets.hpp>

#include <algorithm>
#include <span>

namespace trireme::architecture {
namespace {

/// The gradient of a piece of an array.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Stage stage = 0;
  std::int64_t layer = 0;
  bool split = false;
  bool alone = false;   ///< shares no bucket with others
  bool shared = false;  ///< of shared layers
};

std::vector<Range> ranges_of(const Architecture& architecture, const Shard& shard,
                             const std::vector<LocalArray>& arrays, const Placement& placement) {
  const std::int64_t head = architecture.model.layers;
  const bool tied = architecture.model.tied_embeddings;
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const LocalArray& a = arrays[i];
    for (const Piece& piece : a.pieces) {
      const std::int64_t begin = placement.offset[i] + piece.first;
      ranges.push_back({begin, begin + piece.elements(), a.stage,
                        a.copy && !a.shared ? head : architecture.arrays[a.number].layer, a.split,
                        tied && a.number == 0, a.shared});
    }
  }
  if (placement.tied_elements > 0)
    ranges.push_back({placement.tied_offset, placement.tied_offset + placement.tied_elements,
                      shard.last_stage(), head, true, true, false});
  std::ranges::sort(ranges, {}, &Range::begin);
  return ranges;
}

/// Ranges that may share buckets, in order.
using Ranges = std::span<const Range>;

/// First edge of a block of the norm at or after element x, which is before the end of the ranges.
std::int64_t edge_from(Ranges ranges, std::int64_t x) {
  const auto range =
      std::ranges::partition_point(ranges, [&](const Range& r) { return r.end <= x; });
  if (x <= range->begin) return range->begin;  // in the gap before it
  const std::int64_t blocks = (x - range->begin + norm_block - 1) / norm_block;
  return std::min(range->end, range->begin + blocks * norm_block);
}

/// Last edge before element x, which is after the beginning of the ranges.
std::int64_t edge_before(Ranges ranges, std::int64_t x) {
  const auto next =
      std::ranges::partition_point(ranges, [&](const Range& r) { return r.begin < x; });
  const Range& range = *(next - 1);
  const std::int64_t within = std::min(x, range.end) - 1 - range.begin;
  return range.begin + within / norm_block * norm_block;
}

std::vector<std::int64_t> bounds_of(Ranges ranges, const Bucket& bucket, int data_ranks) {
  std::vector<std::int64_t> bounds{bucket.begin};
  for (int r = 1; r < data_ranks; ++r) {
    const layout::Slice part = layout::split(bucket.end - bucket.begin, data_ranks, r);
    const std::int64_t wanted = bucket.begin + part.offset;
    bounds.push_back(wanted < bucket.end ? std::min(bucket.end, edge_from(ranges, wanted))
                                         : bucket.end);
  }
  bounds.push_back(bucket.end);
  return bounds;
}

void cut(std::vector<Bucket>& buckets, Ranges ranges, std::int64_t most_elements, int data_ranks) {
  for (std::int64_t end = ranges.back().end; end > ranges.front().begin;) {
    const std::int64_t wanted = std::max(ranges.front().begin, end - most_elements);
    std::int64_t begin = edge_from(ranges, wanted);
    if (begin >= end) begin = edge_before(ranges, end);
    Bucket bucket{begin, end, ranges.front().stage, {}, {}, ranges.front().shared};
    bool empty = true;
    for (const Range& r : ranges) {
      if (r.begin >= bucket.end || r.end <= bucket.begin) continue;
      empty = false;
      if (!r.shared && std::ranges::find(bucket.layers, r.layer) == bucket.layers.end())
        bucket.layers.push_back(r.layer);
    }
    bucket.bounds = bounds_of(ranges, bucket, data_ranks);
    end = begin;
    if (!empty) buckets.push_back(std::move(bucket));  // else a gap alone
  }
}

}  // namespace

std::vector<Bucket> gradient_buckets(const Architecture& architecture, const Shard& shard,
                                     const std::vector<LocalArray>& arrays,
                                     const Placement& placement, std::int64_t most_elements,
                                     int data_ranks) {
  const std::vector<Range> all = ranges_of(architecture, shard, arrays, placement);
  std::vector<Bucket> buckets;
  for (auto first = all.begin(); first != all.end();) {
    const auto last = std::find_if(first, all.end(), [&](const Range& r) {
      const bool apart = (r.alone || first->alone) && r.begin != first->begin;
      return r.stage != first->stage || r.split != first->split || r.shared != first->shared ||
             apart;
    });
    cut(buckets, Ranges(first, last), most_elements, data_ranks);
    first = last;
  }
  return buckets;
}

}  // namespace trireme::architecture
