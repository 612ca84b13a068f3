#include <trireme/layout/ring.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace trireme::layout {
namespace {

bool sees(const AttentionRing& ring, std::int64_t query, std::int64_t key) {
  return (!ring.causal || key <= query) && (ring.window == 0 || query - key < ring.window);
}

/// Marks the pairs of a chunk pair, and returns how many of them a query sees.
std::int64_t mark(const AttentionRing& ring, const ChunkPair& pair, std::vector<int>& met) {
  std::int64_t seen = 0;
  for (std::int64_t i = pair.queries.first; i < pair.queries.first + pair.queries.count; ++i)
    for (std::int64_t j = pair.keys.first; j < pair.keys.first + pair.keys.count; ++j)
      if (sees(ring, i, j)) {
        ++met[static_cast<std::size_t>(i * ring.sequence + j)];
        ++seen;
      }
  return seen;
}

void expect_complete(const AttentionRing& ring) {
  std::vector<int> met(static_cast<std::size_t>(ring.sequence * ring.sequence));
  for (int rank = 0; rank < ring.ranks; ++rank) {
    std::vector<std::int64_t> begun;  // rows at which chunks of queries begin
    for (int step = 0; step < ring.ranks; ++step)
      for (const ChunkPair& pair : ring.pairs(rank, step)) {
        EXPECT_EQ(mark(ring, pair, met), pair.seen);
        const bool begins = std::ranges::find(begun, pair.query_row) == begun.end();
        EXPECT_EQ(pair.same, begins) << "chunks of queries meet themselves first";
        begun.push_back(pair.query_row);
        const TokenPlaces mine = token_places(ring.sequence, ring.ranks, rank);
        const TokenPlaces theirs = token_places(ring.sequence, ring.ranks, ring.owner(rank, step));
        EXPECT_EQ(mine.position(pair.query_row), pair.queries.first);
        EXPECT_EQ(theirs.position(pair.key_row), pair.keys.first);
      }
  }
  for (std::int64_t i = 0; i < ring.sequence; ++i)
    for (std::int64_t j = 0; j < ring.sequence; ++j)
      ASSERT_EQ(met[static_cast<std::size_t>(i * ring.sequence + j)], sees(ring, i, j))
          << i << " sees " << j << "; sequence " << ring.sequence << ", " << ring.ranks
          << " ranks, window " << ring.window << ", causal " << ring.causal;
}

TEST(Ring, QueriesMeetEachVisibleKeyOnce) {
  for (const std::int64_t sequence : {1, 2, 5, 23, 48})
    for (int ranks = 1; ranks <= 5 && ranks <= sequence; ++ranks)
      for (const bool causal : {true, false})
        for (const std::int64_t window : {0, 1, 3, 11, 47, 100})
          expect_complete({sequence, ranks, causal, window});
}

TEST(Ring, CausalWorkIsEqualInAllStepsButTheFirst) {
  const AttentionRing ring{4096, 4};
  for (int rank = 0; rank < 4; ++rank)
    for (int step = 0; step < 4; ++step) {
      std::int64_t seen = 0;
      for (const ChunkPair& pair : ring.pairs(rank, step)) seen += pair.seen;
      EXPECT_EQ(seen, step == 0 ? 512 * 513 + 512 * 512 : 2 * 512 * 512);
    }
}

TEST(Ring, CountsTheWorkOfLongSequences) {
  const AttentionRing ring{1 << 20, 64, true, 4096};
  std::int64_t seen = 0;
  for (int rank = 0; rank < 64; ++rank)
    for (int step = 0; step < 64; ++step)
      for (const ChunkPair& pair : ring.pairs(rank, step)) seen += pair.seen;
  const std::int64_t full = std::int64_t{1} << 20, window = 4096;
  EXPECT_EQ(seen, full * window - window * (window - 1) / 2);
}

}  // namespace
}  // namespace trireme::layout
