// Cuts an arena into buckets at the edges of the norm's blocks, from the end of each group of
// ranges. The number of equal buckets within a large array follows from a division.
#include <trireme/architecture/bucket_cut.hpp>

#include <algorithm>

namespace trireme::architecture {
namespace {

/// Ranges that may share buckets, in order.
using Ranges = std::span<const GradientRange>;

/// First edge of a block of the norm at or after element x; `end` if there is none before `end`.
std::int64_t edge_from(Ranges ranges, std::int64_t x, std::int64_t end) {
  const auto range =
      std::ranges::partition_point(ranges, [&](const GradientRange& r) { return r.end <= x; });
  if (range == ranges.end()) return end;
  if (x <= range->begin) return std::min(end, range->begin);  // x is in the gap before the range
  const std::int64_t blocks = (x - range->begin + norm_block - 1) / norm_block;
  return std::min({end, range->end, range->begin + blocks * norm_block});
}

/// The last range that begins before element x.
Ranges::iterator range_before(Ranges ranges, std::int64_t x) {
  return std::ranges::partition_point(ranges, [&](const GradientRange& r) { return r.begin < x; }) -
         1;
}

/// Last edge before element x. x must be after the beginning of the ranges.
std::int64_t edge_before(Ranges ranges, std::int64_t x) {
  const GradientRange& range = *range_before(ranges, x);
  const std::int64_t within = std::min(x, range.end) - 1 - range.begin;
  return range.begin + within / norm_block * norm_block;
}

/// Number of the first part of split(n, parts, …) that begins at or after element x ≤ n; `parts` if
/// there is none.
std::int64_t part_from(std::int64_t n, std::int64_t parts, std::int64_t x) {
  const std::int64_t base = n / parts;
  const std::int64_t larger = n % parts;
  const std::int64_t in_larger = larger * (base + 1);
  if (x <= in_larger) return (x + base) / (base + 1);
  return larger + (x - in_larger + base - 1) / base;
}

/// Number of consecutive buckets of `size` elements with the same relative bounds, counted down
/// from `end`.
std::int64_t alike(const GradientRange& range, std::int64_t end, std::int64_t most,
                   std::int64_t size) {
  const bool at_block = end < range.end || (end - range.begin) % norm_block == 0;
  const std::int64_t before = end - range.begin;
  return !at_block || before < most ? 1 : std::max<std::int64_t>(1, (before - most) / size + 1);
}

}  // namespace

std::int64_t block_of(const Architecture& architecture, const RankArray& array) {
  const std::int64_t layers = architecture.model.all_layers();
  const std::int64_t block = architecture.arrays[array.number].block;
  if (array.of_vocabulary)
    return block == 0 ? shared_token_table(layers) : shared_output_table(layers);
  return array.copy && !array.shared ? architecture.head_block() : block;
}

BucketCut::BucketCut(const Architecture& architecture, const Shard& shard,
                     const std::vector<RankArray>& arrays, const Placement& placement,
                     std::int64_t most_elements, int data_ranks, bool by_block, CutOf of)
    : arrays_(arrays),
      placement_(placement),
      most_elements_(most_elements),
      data_ranks_(data_ranks),
      expert_ranks_(shard.expert_size),
      by_block_(by_block),
      layers_(architecture.model.all_layers()),
      tied_(architecture.model.tied_embeddings) {
  const std::int64_t layers = layers_;
  const bool shared = shard.shares_vocabulary();
  ranges_.reserve(arrays.size() + 1);
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const RankArray& a = arrays[i];
    if (a.frozen && of == CutOf::gradients) continue;
    // Frozen arrays are only gathered, so it does not matter whether tensor ranks hold equal parts.
    const bool trained = !a.frozen;
    for (const Piece& piece : a.pieces) {
      const std::int64_t begin = placement.offset[i] + piece.first;
      ranges_.push_back({begin, begin + piece.elements(), &piece, block_of(architecture, a),
                         a.stage, trained && a.split, tied_ && a.number == 0, a.shared,
                         trained && a.partial_gradient, a.of_vocabulary, a.frozen, a.matrix,
                         a.of_experts});
    }
  }
  if (placement.tied_elements > 0 && of == CutOf::gradients)
    ranges_.push_back({placement.tied_offset, placement.tied_offset + placement.tied_elements,
                       nullptr, shared ? shared_output_table(layers) : architecture.head_block(),
                       shared ? shard.stages.front() : shard.last_stage(), true, true, false, false,
                       shared});
  std::ranges::sort(ranges_, {}, &GradientRange::begin);
}

void BucketCut::visit(const std::function<void(const BucketRun&)>& use) const {
  visit_groups([&](Ranges ranges) { cut(ranges, use); });
}

void BucketCut::visit_groups(const std::function<void(Ranges)>& use) const {
  for (auto first = ranges_.begin(); first != ranges_.end();) {
    const auto last = std::find_if(first, ranges_.end(), [&](const GradientRange& r) {
      const bool apart = (r.alone || first->alone) && r.begin != first->begin;
      return r.stage != first->stage || r.split != first->split || r.shared != first->shared ||
             r.frozen != first->frozen || r.of_experts != first->of_experts ||
             (by_block_ && (r.block != first->block || r.partial != first->partial)) || apart;
    });
    use(Ranges(first, last));
    first = last;
  }
}

void BucketCut::cut(Ranges ranges, const std::function<void(const BucketRun&)>& use) const {
  for (std::int64_t end = ranges.back().end; end > ranges.front().begin;) {
    const std::int64_t wanted = std::max(ranges.front().begin, end - most_elements_);
    std::int64_t begin = edge_from(ranges, wanted, end);
    if (begin >= end) begin = edge_before(ranges, end);
    const auto last = range_before(ranges, end);
    auto first = last;
    while (first != ranges.begin() && (first - 1)->end > begin) --first;
    const int apart = first->of_experts ? expert_ranks_ : 1;
    BucketRun run{begin, end, 1, std::max(1, data_ranks_ / apart), apart, {first, last + 1}};
    if (begin >= last->begin && end <= last->end)
      run.count = alike(*last, end, most_elements_, run.size());
    end -= run.count * run.size();
    if (last->end > begin) use(run);  // skips buckets within gaps, which have no arrays
  }
}

std::int64_t bound_of(const BucketRun& run, int owner) {
  if (owner == 0) return run.begin;
  const std::int64_t n = run.size();
  const std::int64_t offset = owner == run.owners ? n : layout::split(n, run.owners, owner).offset;
  return offset >= n ? run.end : edge_from(run.ranges, run.begin + offset, run.end);
}

void visit_parts(const BucketRun& run,
                 const std::function<void(int, std::int64_t, std::int64_t)>& use) {
  for (std::int64_t at = run.begin; at < run.end;) {
    const auto owner_after = [&](std::int64_t x) {
      return static_cast<int>(part_from(run.size(), run.owners, x - run.begin));
    };
    int next = owner_after(std::max(at, run.begin + 1));
    std::int64_t bound = bound_of(run, next);
    if (bound <= at) {
      next = owner_after(at + 1);
      bound = bound_of(run, next);
    }
    use(next - 1, at, bound);
    at = bound;
  }
}

}  // namespace trireme::architecture
