#include <trireme/layout/stage_map.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace trireme::layout {
namespace {

constexpr StagePlacement placements[] = {StagePlacement::round_robin, StagePlacement::v};

TEST(StageMap, EachRankAndChunkHasOneStage) {
  for (const StagePlacement placement : placements)
    for (int ranks = 1; ranks <= 6; ++ranks)
      for (int chunks = 1; chunks <= 4; ++chunks) {
        const StageMap map{ranks, chunks, placement};
        std::set<Stage> seen;
        for (Rank rank = 0; rank < ranks; ++rank) {
          const std::vector<Stage> stages = map.stages_of(rank);
          EXPECT_TRUE(std::is_sorted(stages.begin(), stages.end()));
          for (int chunk = 0; chunk < chunks; ++chunk) {
            const Stage stage = map.stage_of(rank, chunk);
            EXPECT_EQ(stages[static_cast<std::size_t>(chunk)], stage);
            EXPECT_EQ(map.rank_of(stage), rank);
            EXPECT_EQ(map.chunk_of(stage), chunk);
            EXPECT_TRUE(seen.insert(stage).second);
          }
        }
        EXPECT_EQ(static_cast<int>(seen.size()), map.stages());
        EXPECT_EQ(*seen.rbegin(), map.last_stage());
      }
}

TEST(StageMap, RoundRobinWrapsFromTheLastRankToTheFirst) {
  const StageMap map{3, 2};
  EXPECT_EQ(map.stages_of(1), (std::vector<Stage>{1, 4}));
  for (Stage stage = 0; stage < 6; ++stage) EXPECT_FALSE(map.hands_over(stage));
  EXPECT_TRUE((StageMap{1, 2}.hands_over(0))) << "both are on the only rank";
}

TEST(StageMap, VPlacementTurnsOnTheLastRank) {
  const StageMap map{3, 2, StagePlacement::v};
  EXPECT_EQ(map.stages_of(0), (std::vector<Stage>{0, 5}));
  EXPECT_EQ(map.stages_of(1), (std::vector<Stage>{1, 4}));
  EXPECT_EQ(map.stages_of(2), (std::vector<Stage>{2, 3}));
  for (Stage stage = 0; stage < 6; ++stage) EXPECT_EQ(map.hands_over(stage), stage == 2);
  const StageMap w{2, 3, StagePlacement::v};
  EXPECT_TRUE(w.hands_over(1));
  EXPECT_TRUE(w.hands_over(3)) << "the third chunk turns on the first rank";
}

}  // namespace
}  // namespace trireme::layout
