// The optimizer state of a rank: whole arrays, or the parts of the buckets that a data rank owns.
#include <trireme/architecture/state.hpp>
#include <trireme/layout/share.hpp>

#include <algorithm>

namespace trireme::architecture {
namespace {

constexpr std::int64_t unit = 32;  // as arrays in an arena
std::int64_t round_up(std::int64_t n) {
  return (n + unit - 1) / unit * unit;
}

/// The owned parts of all buckets in the arena of the weights, joined where they touch.
std::vector<layout::Slice> owned_slices(const Placement& placement,
                                        const std::vector<Bucket>& buckets, int data_rank) {
  const auto r = static_cast<std::size_t>(data_rank);
  std::vector<layout::Slice> slices;
  for (const Bucket& b : buckets)
    if (b.begin < placement.elements && b.bounds[r] < b.bounds[r + 1])
      slices.push_back({b.bounds[r], b.bounds[r + 1] - b.bounds[r]});
  if (!std::ranges::is_sorted(slices, {}, &layout::Slice::offset))
    std::ranges::sort(slices, {}, &layout::Slice::offset);
  std::vector<layout::Slice> joined;
  for (const layout::Slice& s : slices)
    if (!joined.empty() && joined.back().end() == s.offset)
      joined.back().extent += s.extent;
    else
      joined.push_back(s);
  return joined;
}

}  // namespace

std::vector<std::string> state_arrays(const deck::OptimizerConfig& optimizer) {
  switch (optimizer.kind) {
    case OptimizerKind::adamw:
    case OptimizerKind::lamb:
      return {"first_moment", "second_moment"};
    case OptimizerKind::sgd:
    case OptimizerKind::lars:
      if (optimizer.momentum == 0) return {};
      return {"momentum"};
  }
  return {};
}

std::int64_t trust_norms(const deck::OptimizerConfig& optimizer) {
  switch (optimizer.kind) {
    case OptimizerKind::adamw:
    case OptimizerKind::sgd:
      return 0;
    case OptimizerKind::lars:
      return 1;
    case OptimizerKind::lamb:
      return 2;
  }
  return 0;
}

std::int64_t StateBlock::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t e : extent) n *= e;
  return n;
}

bool StatePlacement::owns(std::int64_t at) const {
  const auto behind =
      std::ranges::partition_point(owned, [&](const layout::Slice& s) { return s.offset <= at; });
  return behind != owned.begin() && at < (behind - 1)->end();
}

StatePlacement whole_state(const std::vector<LocalArray>& arrays, const Placement& placement) {
  StatePlacement state{{}, {{0, placement.elements}}, placement.elements, true};
  for (std::size_t local = 0; local < arrays.size(); ++local)
    state.blocks.push_back(
        {local, arrays[local].offset, arrays[local].extent, 0, placement.offset[local]});
  return state;
}

namespace {

/// Calls `add(from, to)` with those elements of a piece, which begins at `begin` of the arena, that
/// are in the owned slices.
template <class Add>
void each_owned(const std::vector<layout::Slice>& owned, const Piece& piece, std::int64_t begin,
                const Add& add) {
  const std::int64_t end = begin + piece.elements();
  auto slice =
      std::ranges::partition_point(owned, [&](const layout::Slice& s) { return s.end() <= begin; });
  for (; slice != owned.end() && slice->offset < end; ++slice)
    add(std::max(begin, slice->offset) - begin, std::min(end, slice->end()) - begin);
}

/// Those blocks of a piece that are in the owned slices.
void add_owned(StatePlacement& state, std::size_t local, const Piece& piece, std::int64_t begin) {
  each_owned(state.owned, piece, begin, [&](std::int64_t from, std::int64_t to) {
    for (layout::Block& block : layout::blocks(local, piece.extent, from, to)) {
      for (std::size_t a = 0; a < block.offset.size(); ++a) block.offset[a] += piece.offset[a];
      const std::int64_t elements = block.elements();
      state.blocks.push_back({local, std::move(block.offset), std::move(block.extent),
                              piece.first + block.first, state.elements, piece.counted});
      state.elements += round_up(elements);
    }
  });
}

}  // namespace

StatePlacement owned_state(const std::vector<LocalArray>& arrays, const Placement& placement,
                           const std::vector<Bucket>& buckets, int data_rank) {
  StatePlacement state{{}, owned_slices(placement, buckets, data_rank), 0, false};
  for (std::size_t local = 0; local < arrays.size(); ++local)
    for (const Piece& piece : arrays[local].pieces)
      add_owned(state, local, piece, placement.offset[local] + piece.first);
  return state;
}

std::int64_t most_state_elements(const std::vector<LocalArray>& arrays, const Placement& placement,
                                 const std::vector<Bucket>& any_order, int data_size) {
  std::vector<Bucket> buckets = any_order;
  std::ranges::sort(buckets, {}, &Bucket::begin);
  // Only rows that are no multiples of the unit pad blocks: without them, the rank that owns the
  // longest parts of the buckets has the most, and few others need to be looked at.
  std::size_t uneven = 0;
  std::size_t axes = 1;
  for (const LocalArray& array : arrays) {
    axes = std::max(axes, array.extent.size());
    for (const Piece& piece : array.pieces)
      uneven += piece.extent.empty() || piece.extent.back() % unit != 0 ? 1 : 0;
  }
  const std::size_t blocks = uneven == 0 ? 0 : (uneven + buckets.size()) * (2 * axes - 1);
  const std::int64_t padding = static_cast<std::int64_t>(blocks) * (unit - 1);
  std::vector<std::pair<std::int64_t, int>> ranks;
  for (int rank = 0; rank < data_size; ++rank) ranks.emplace_back(0, rank);
  for (const Bucket& b : buckets)
    if (b.begin < placement.elements)
      for (std::size_t r = 0; r < ranks.size(); ++r)
        ranks[r].first += b.bounds[r + 1] - b.bounds[r];
  std::ranges::sort(ranks, std::ranges::greater{});
  std::int64_t most = 0;
  for (const auto& [at_most, rank] : ranks) {
    if (at_most + padding <= most) break;
    const std::vector<layout::Slice> owned = owned_slices(placement, buckets, rank);
    std::int64_t elements = 0;  // of owned_state(), without its list of blocks
    for (std::size_t local = 0; local < arrays.size(); ++local)
      for (const Piece& piece : arrays[local].pieces)
        each_owned(owned, piece, placement.offset[local] + piece.first,
                   [&](std::int64_t from, std::int64_t to) {
                     elements += layout::padded_elements(piece.extent, from, to, unit);
                   });
    most = std::max(most, elements);
  }
  return most;
}

}  // namespace trireme::architecture
