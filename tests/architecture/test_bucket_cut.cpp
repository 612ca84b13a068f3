// The cut of the gradient arena, found by divisions, against one that looks at every array for
// every bucket and at every data rank.
#include <trireme/architecture/saved.hpp>
#include <trireme/architecture/state.hpp>
#include <trireme/deck/families.hpp>

#include "support/layouts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

namespace trireme::architecture {
namespace {

deck::ModelConfig model_to_cut(std::int64_t hidden, std::int64_t feed_forward, bool tied,
                               int key_value_heads = 0) {
  deck::ModelConfig m;
  if (key_value_heads > 0) deck::set_family(m, Family::llama);
  m.key_value_heads = key_value_heads;
  m.layers = 3;
  m.hidden = hidden;
  m.heads = 6;
  m.feed_forward = feed_forward;
  m.sequence = 16;
  m.vocabulary = 401;
  m.tied_embeddings = tied;
  return m;
}

/// The edges of the norm's blocks in the arrays of a part of the arena, ascending.
struct Piecewise {
  struct Span {
    std::int64_t begin, end;
  };
  std::vector<Span> spans;

  std::int64_t edge_from(std::int64_t x, std::int64_t end) const {
    for (const Span& s : spans) {
      if (s.end <= x) continue;
      for (std::int64_t edge = s.begin; edge < s.end; edge += norm_block)
        if (edge >= x) return std::min(edge, end);
      return std::min(s.end, end);
    }
    return end;
  }
};

/// Checks a bucket against the definition: its bounds, and its size.
void expect_bounds(const Bucket& b, const std::vector<RankArray>& arrays,
                   const Placement& placement, int ranks) {
  Piecewise pieces;
  for (std::size_t i = 0; i < arrays.size(); ++i)
    for (const Piece& p : arrays[i].pieces) {
      const std::int64_t begin = placement.offset[i] + p.first;
      if (begin < b.end && begin + p.elements() > b.begin)
        pieces.spans.push_back({begin, begin + p.elements()});
    }
  if (placement.tied_elements > 0 && b.begin >= placement.tied_offset)
    pieces.spans.push_back(
        {placement.tied_offset, placement.tied_offset + placement.tied_elements});
  std::ranges::sort(pieces.spans, {}, &Piecewise::Span::begin);
  ASSERT_FALSE(pieces.spans.empty());
  for (int r = 0; r <= ranks; ++r) {
    const std::int64_t n = b.end - b.begin;
    const std::int64_t offset = r == ranks ? n : layout::split(n, ranks, r).offset;
    const std::int64_t expected = r == 0        ? b.begin
                                  : offset == n ? b.end
                                                : pieces.edge_from(b.begin + offset, b.end);
    ASSERT_EQ(b.bounds[static_cast<std::size_t>(r)], expected) << "rank " << r;
  }
}

struct Case {
  deck::ModelConfig model;
  int pipeline = 1;
  int tensor = 1;
  std::int64_t most = 1;
  int ranks = 2;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& model :
       {model_to_cut(96, 480, true), model_to_cut(96, 480, false), model_to_cut(90, 350, true),
        model_to_cut(72, 290, true, 2), model_to_cut(192, 1024, false, 3)})
    for (const auto& [pipeline, tensor] : {std::pair(1, 1), {2, 1}, {1, 4}})
      for (const std::int64_t most : {1, 4096, 5000, 12288, 30000, 1 << 20})
        for (const int ranks : {2, 3, 40}) all.push_back({model, pipeline, tensor, most, ranks});
  return all;
}

template <class Use>
void for_cases(const Use& use) {
  for (const Case& c : cases())
    for (int p = 0; p < c.pipeline; ++p)
      for (const int t : {0, c.tensor - 1}) {
        SCOPED_TRACE(text("hidden ", c.model.hidden, ", pipeline ", c.pipeline, ", tensor ",
                          c.tensor, ", at most ", c.most, " elements, ", c.ranks, " ranks"));
        const Architecture a = describe(c.model);
        const Shard shard = make_shard(a, testing::layout_of(c.pipeline, 1, c.tensor), p, t);
        const auto arrays = rank_arrays(a, shard);
        const Placement placement = place(a, shard, arrays);
        use(c, a, shard, arrays, BucketCut(a, shard, arrays, placement, c.most, c.ranks));
        if (::testing::Test::HasFatalFailure()) return;
      }
}

TEST(BucketCut, BucketsAreContiguousAndHoldWholeBlocks) {
  for_cases([](const Case& c, const auto&, const Shard&, const auto& arrays, const BucketCut& cut) {
    for (const Bucket& b : gradient_buckets(cut)) {
      EXPECT_LT(b.begin, b.end);
      EXPECT_FALSE(b.blocks.empty());
      EXPECT_LE(b.end - b.begin, std::max(c.most, norm_block));
      expect_bounds(b, arrays, cut.placement(), c.ranks);
    }
  });
}

TEST(BucketCut, PartsMatchTheNonemptyRangesOfBounds) {
  for_cases([](const Case& c, const auto&, const Shard&, const auto&, const BucketCut& cut) {
    const std::vector<Bucket> buckets = gradient_buckets(cut);
    std::size_t at = 0;
    cut.visit([&](const BucketRun& run) {
      ASSERT_EQ(run.begin, buckets[at].begin);
      ASSERT_EQ(run.end, buckets[at].end);
      const auto& bounds = buckets[at].bounds;
      std::vector<std::array<std::int64_t, 3>> expected, found;
      for (int r = 0; r < c.ranks; ++r)
        if (const auto i = static_cast<std::size_t>(r); bounds[i] < bounds[i + 1])
          expected.push_back({r, bounds[i], bounds[i + 1]});
      visit_parts(run, [&](int rank, std::int64_t begin, std::int64_t end) {
        found.push_back({rank, begin, end});
      });
      EXPECT_EQ(found, expected);
      at += static_cast<std::size_t>(run.count);
    });
    EXPECT_EQ(at, buckets.size());
  });
}

TEST(BucketCut, SumsMatchTheListsOfBlocks) {
  const auto up = [](std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; };
  for_cases([&](const Case& c, const Architecture& a, const Shard& shard, const auto& arrays,
                const BucketCut& cut) {
    const auto buckets = gradient_buckets(cut);
    for (const std::int64_t unit : {32, 1024})
      for (const bool counted : {false, true}) {
        const auto owned = owned_sums(cut, unit, counted);
        const auto saved = saved_sums(a, shard, arrays, c.ranks, unit);
        for (int r = 0; r < c.ranks; ++r) {
          std::int64_t expected_owned = 0, expected_saved = 0;
          for (const StateBlock& b : owned_state(arrays, cut.placement(), buckets, r).blocks)
            if (b.counted || !counted) expected_owned += up(b.elements(), unit);
          for (const SavedPart& p : saved_parts(a, shard, arrays, c.ranks, r))
            expected_saved += up(p.elements(), unit);
          ASSERT_EQ(owned[static_cast<std::size_t>(r)], expected_owned) << "rank " << r;
          ASSERT_EQ(saved[static_cast<std::size_t>(r)], expected_saved) << "rank " << r;
        }
      }
  });
}

/// A trillion parameters on one rank of a million: 246 million buckets of one block.
TEST(BucketCut, CostGrowsWithArraysOnly) {
  deck::ModelConfig m = model_to_cut(25600, 102400, true);
  m.layers = 128;
  m.heads = 160;
  m.vocabulary = 51200;
  const Architecture a = describe(m);
  const Shard shard = whole_model(a);
  const auto arrays = rank_arrays(a, shard);
  const Placement placement = place(a, shard, arrays);
  const auto begin = std::chrono::steady_clock::now();
  const BucketCut cut(a, shard, arrays, placement, 1, 1 << 20);
  std::int64_t buckets = 0, elements = 0;
  cut.visit([&](const BucketRun& run) {
    buckets += run.count;
    elements += run.count * run.size();
  });
  EXPECT_GT(buckets, 200'000'000);
  EXPECT_GE(elements, a.parameters());
  EXPECT_EQ(most_state_elements(cut), placement.elements);  // the first rank has every block
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 5);  // 0.01 s on an idle machine; a list would need 20 GB
}

}  // namespace
}  // namespace trireme::architecture
