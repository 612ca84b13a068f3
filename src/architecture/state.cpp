// The optimizer state of a rank: whole arrays, or the parts of the buckets that a data rank owns.
#include <trireme/architecture/state.hpp>
#include <trireme/base/alignment.hpp>
#include <trireme/layout/share.hpp>

#include <algorithm>

namespace trireme::architecture {
namespace {

/// The owned parts of the buckets of trained or frozen arrays in the arena of the weights; adjacent
/// parts are joined.
std::vector<layout::Slice> owned_slices(const Placement& placement,
                                        const std::vector<Bucket>& buckets, int data_rank,
                                        bool frozen = false) {
  std::vector<layout::Slice> slices;
  for (const Bucket& b : buckets) {
    const std::size_t o = b.owner(data_rank);
    if ((b.begin >= placement.trained) == frozen && b.bounds[o] < b.bounds[o + 1])
      slices.push_back({b.bounds[o], b.bounds[o + 1] - b.bounds[o]});
  }
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

bool has_state(const deck::OptimizerConfig& optimizer, const rules::StateArray& state,
               const RankArray& array) {
  if (state.of == rules::Arrays::all) return true;
  return rules::as_matrices(optimizer.rule().matrices, array.matrix) ==
         (state.of == rules::Arrays::matrices);
}

StateCounts state_counts(const deck::OptimizerConfig& optimizer) {
  StateCounts counts;
  for (const rules::StateArray& state : optimizer.rule().states(optimizer))
    if (state.shape == rules::Shape::weights)
      ++(state.of == rules::Arrays::others ? counts.others : counts.all);
  return counts;
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

namespace {

/// Order of local arrays in the state: arrays with matrices last.
std::vector<std::size_t> state_order(const std::vector<RankArray>& arrays, bool frozen,
                                     rules::Matrices matrices) {
  std::vector<std::size_t> order;
  for (std::size_t local = 0; local < arrays.size(); ++local)
    if (arrays[local].frozen == frozen) order.push_back(local);
  if (matrices != rules::Matrices::none)
    std::ranges::stable_partition(
        order, [&](auto local) { return !rules::as_matrices(matrices, arrays[local].matrix); });
  return order;
}

/// Finds the elements of arrays without matrices, and sorts the blocks by local array.
void finish_state(StatePlacement& state, const std::vector<RankArray>& arrays,
                  rules::Matrices matrices) {
  state.others = state.elements;
  for (const StateBlock& block : state.blocks)
    if (rules::as_matrices(matrices, arrays[block.local].matrix))
      state.others = std::min(state.others, block.state);
  std::ranges::stable_sort(state.blocks, {}, &StateBlock::local);
}

}  // namespace

StatePlacement whole_state(const std::vector<RankArray>& arrays, const Placement& placement,
                           rules::Matrices matrices) {
  StatePlacement state{{}, {{0, placement.trained}}, placement.trained, true};
  const bool in_turn = matrices != rules::Matrices::none;
  if (in_turn) state.elements = 0;
  for (const std::size_t local : state_order(arrays, false, matrices)) {
    const std::int64_t at = in_turn ? state.elements : placement.offset[local];
    state.blocks.push_back({local, arrays[local].offset, arrays[local].extent, 0, at});
    if (in_turn) state.elements += aligned_elements(arrays[local].elements());
  }
  finish_state(state, arrays, matrices);
  return state;
}

std::int64_t whole_state_elements(const std::vector<RankArray>& arrays, rules::Matrices without) {
  std::int64_t elements = 0;
  for (const RankArray& array : arrays)
    if (!array.frozen && !rules::as_matrices(without, array.matrix))
      elements += aligned_elements(array.elements());
  return elements;
}

namespace {

/// Calls `add(from, to)` for each range of a piece that is in an owned slice. The piece begins at
/// element `begin` of the arena; `from` and `to` are elements of the piece.
template <class Add>
void each_owned(const std::vector<layout::Slice>& owned, const Piece& piece, std::int64_t begin,
                const Add& add) {
  const std::int64_t end = begin + piece.elements();
  auto slice =
      std::ranges::partition_point(owned, [&](const layout::Slice& s) { return s.end() <= begin; });
  for (; slice != owned.end() && slice->offset < end; ++slice)
    add(std::max(begin, slice->offset) - begin, std::min(end, slice->end()) - begin);
}

/// Adds the blocks of a piece that are in the owned slices.
void add_owned(StatePlacement& state, std::size_t local, const Piece& piece, std::int64_t begin) {
  each_owned(state.owned, piece, begin, [&](std::int64_t from, std::int64_t to) {
    for (layout::Block& block : layout::blocks(local, piece.extent, from, to)) {
      for (std::size_t a = 0; a < block.offset.size(); ++a) block.offset[a] += piece.offset[a];
      const std::int64_t elements = block.elements();
      state.blocks.push_back({local, std::move(block.offset), std::move(block.extent),
                              piece.first + block.first, state.elements, piece.counted});
      state.elements += aligned_elements(elements);
    }
  });
}

void add_owned(StatePlacement& state, const std::vector<RankArray>& arrays,
               const Placement& placement, bool frozen, rules::Matrices matrices) {
  for (const std::size_t local : state_order(arrays, frozen, matrices))
    for (const Piece& piece : arrays[local].pieces)
      add_owned(state, local, piece, placement.offset[local] + piece.first);
  finish_state(state, arrays, matrices);
}

}  // namespace

StatePlacement owned_state(const std::vector<RankArray>& arrays, const Placement& placement,
                           const std::vector<Bucket>& buckets, int data_rank,
                           rules::Matrices matrices) {
  StatePlacement state{{}, owned_slices(placement, buckets, data_rank), 0, false};
  add_owned(state, arrays, placement, false, matrices);
  return state;
}

std::vector<StateBlock> owned_frozen(const std::vector<RankArray>& arrays,
                                     const Placement& placement, const std::vector<Bucket>& buckets,
                                     int data_rank) {
  StatePlacement found{{}, owned_slices(placement, buckets, data_rank, true), 0, false};
  add_owned(found, arrays, placement, true, rules::Matrices::none);
  return std::move(found.blocks);
}

namespace {

/// Largest number of parts that are counted one by one.
constexpr std::int64_t parts_limit = std::int64_t{1} << 26;

/// Sums, per data rank, of the blocks of owned_state(), without a list of blocks. If the rows of an
/// array are multiples of the unit, so are its blocks, and equal buckets have equal sums. Only
/// blocks of other arrays are counted bucket by bucket.
class OwnedSums {
 public:
  OwnedSums(const BucketCut& cut, std::int64_t unit_elements, bool counted_only, bool frozen,
            rules::Matrices without)
      : cut_(cut),
        unit_(unit_elements),
        counted_only_(counted_only),
        without_(without),
        sums_(static_cast<std::size_t>(cut.data_ranks())) {
    cut.visit([&](const BucketRun& run) {
      if ((run.begin >= cut.placement().trained) == frozen) add(run);
    });
    add_block(pending_);
  }

  std::vector<std::int64_t> take() { return std::move(sums_); }

 private:
  /// Elements of a range that the owner of a part has.
  struct Part {
    const GradientRange* range = nullptr;
    int owner = 0;
    int expert_ranks = 1;
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  bool even(const Piece& piece) const {
    return !piece.extent.empty() && piece.extent.back() % unit_ == 0;
  }

  void add(BucketRun run) {
    const std::int64_t size = run.size();
    if (bound_of(run, 1) == run.end) {  // the first owner has all of each bucket
      add_part(run, 0, run.end - run.count * size, run.end, 1);
      return end_bucket();
    }
    const bool alike = even(*run.ranges.front().piece);
    for (std::int64_t left = run.count; left > 0; --left, run.begin -= size, run.end -= size) {
      visit_parts(run, [&](int owner, std::int64_t begin, std::int64_t end) {
        add_part(run, owner, begin, end, alike ? left : 1);
      });
      end_bucket();
      if (alike) return;
    }
  }

  void add_part(const BucketRun& run, int owner, std::int64_t begin, std::int64_t end,
                std::int64_t times) {
    const std::span<const GradientRange> ranges = run.ranges;
    check_usage(++parts_ <= parts_limit, "a rank's ", ranges.front().split ? "" : "replicated ",
                "arrays are cut into more than ", parts_limit, " parts of the ", cut_.data_ranks(),
                " replicas of [parallel] shard; choose more tensor or pipeline "
                "ranks, or shard = \"none\"");
    auto range = std::ranges::partition_point(
        ranges, [&](const GradientRange& r) { return r.end <= begin; });
    for (; range != ranges.end() && range->begin < end; ++range) {
      if (counted_only_ && !range->piece->counted) continue;
      if (rules::as_matrices(without_, range->matrix)) continue;
      const std::int64_t from = std::max(begin, range->begin), to = std::min(end, range->end);
      const Part part{&*range, owner, run.expert_ranks, from, to};
      if (even(*range->piece))
        count(part, times * (to - from));
      else if (owner == 0)
        first_.push_back(part);
      else
        add_block(part);
    }
  }

  /// Adds elements to the sums of the ranks that own a part.
  void count(const Part& p, std::int64_t elements) {
    const auto first = static_cast<std::size_t>(p.owner * p.expert_ranks);
    const auto end = std::min(sums_.size(), first + static_cast<std::size_t>(p.expert_ranks));
    for (std::size_t rank = first; rank < end; ++rank) sums_[rank] += elements;
  }

  /// Ends a bucket, whose parts were given in ascending order. The first owner may have the
  /// beginning of this bucket and all of the next lower bucket: within a piece, both parts are one
  /// block.
  void end_bucket() {
    if (first_.empty()) return;
    if (first_.back().range == pending_.range && first_.back().end == pending_.begin)
      first_.back().end = pending_.end;
    else
      add_block(pending_);
    pending_ = first_.front();
    for (std::size_t i = 1; i < first_.size(); ++i) add_block(first_[i]);
    first_.clear();
  }

  void add_block(const Part& p) {
    if (p.begin == p.end) return;
    const std::int64_t first = p.range->begin;
    count(p,
          layout::padded_elements(p.range->piece->extent, p.begin - first, p.end - first, unit_));
  }

  const BucketCut& cut_;
  std::int64_t unit_;
  bool counted_only_;
  rules::Matrices without_;
  std::vector<std::int64_t> sums_;
  std::vector<Part> first_;  ///< parts of the first owner in this bucket
  /// Lowest part of the first owner in the previous bucket, not yet added to the sum.
  Part pending_;
  std::int64_t parts_ = 0;
};

}  // namespace

std::vector<std::int64_t> owned_sums(const BucketCut& cut, std::int64_t unit_elements,
                                     bool counted_only, bool frozen, rules::Matrices without) {
  return OwnedSums(cut, unit_elements, counted_only, frozen, without).take();
}

std::int64_t most_state_elements(const BucketCut& cut, rules::Matrices without) {
  return std::ranges::max(owned_sums(cut, array_alignment_elements, false, false, without));
}

}  // namespace trireme::architecture
