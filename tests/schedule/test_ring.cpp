#include <trireme/schedule/generate.hpp>

#include <gtest/gtest.h>

#include <sstream>

namespace trireme::schedule {
namespace {

using layout::AttentionRing;

TEST(Ring, RanksAreNeverIdleWithEvenCausalParts) {
  for (const int ranks : {1, 2, 3, 8})
    EXPECT_EQ(idle_share(simulate(AttentionRing{ranks * 64, ranks})), 0) << ranks;
}

TEST(Ring, RanksUseEachBlockOnceAfterTheirNeighbours) {
  for (const AttentionRing& ring : {AttentionRing{61, 4}, AttentionRing{64, 4, true, 9},
                                    AttentionRing{50, 5, false}, AttentionRing{7, 7}}) {
    const auto steps = simulate(ring);
    const auto at = [&](int rank, int step) {
      return steps[static_cast<std::size_t>(step * ring.ranks + (rank + ring.ranks) % ring.ranks)];
    };
    for (int rank = 0; rank < ring.ranks; ++rank) {
      std::vector<bool> used(static_cast<std::size_t>(ring.ranks));
      for (int step = 0; step < ring.ranks; ++step) {
        const RingStep s = at(rank, step);
        EXPECT_EQ(s.rank, rank);
        used[static_cast<std::size_t>(s.owner)] = true;
        if (step == 0) continue;
        EXPECT_EQ(s.owner, at(rank - 1, step - 1).owner);
        for (const int near : {rank - 1, rank + 1}) EXPECT_GE(s.begin, at(near, step - 1).begin);
        EXPECT_GE(s.begin, at(rank, step - 1).end);
      }
      EXPECT_EQ(used, std::vector<bool>(static_cast<std::size_t>(ring.ranks), true));
    }
  }
}

/// Two ranks of chunks of 2: ranks hold {0, 1, 6, 7} and {2, 3, 4, 5}. A window of 2 leaves rank 0
/// three pairs in each chunk; the second step has the pairs (2, 1) of rank 1 and (6, 5) of rank 0.
TEST(Ring, WindowsMakeStepsUnequal) {
  const auto steps = simulate(AttentionRing{8, 2, true, 2});
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps[0].end, 6);
  EXPECT_EQ(steps[1].end, 7);  // (4, 3) as well
  EXPECT_EQ(steps[2].end - steps[2].begin, 1);
  EXPECT_EQ(steps[3].end - steps[3].begin, 1);
  EXPECT_DOUBLE_EQ(idle_share(steps), 1 - 15.0 / 16);
}

TEST(Ring, DrawsText) {
  EXPECT_EQ(text_chart(ring_picture(AttentionRing{8, 2})),
            "ring of attention: 2 context ranks, 8 tokens, causal\n"
            "forward pass: idle 0.0 %\n"
            "rank 0 |K0--K1-|\n"
            "rank 1 |K1--K0-|\n");
}

TEST(Ring, DrawsAPicture) {
  const std::string picture = svg(ring_picture(AttentionRing{4096, 4, true, 512}));
  EXPECT_NE(picture.find("rank 1, step 1: keys and values of rank 0"), std::string::npos);
  EXPECT_NE(picture.find("4,096 tokens, causal, window 512"), std::string::npos);
}

}  // namespace
}  // namespace trireme::schedule
