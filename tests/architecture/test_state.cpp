#include <trireme/architecture/state.hpp>
#include <trireme/deck/families.hpp>

#include "support/layouts.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace trireme::architecture {
namespace {

Architecture model_of_large_vocabulary(bool tied, int key_value_heads = 0) {
  deck::ModelConfig m;
  if (key_value_heads > 0) deck::set_family(m, Family::llama);
  m.key_value_heads = key_value_heads;
  m.layers = 5;
  m.hidden = 72;
  m.heads = 6;
  m.feed_forward = 290;
  m.sequence = 16;
  m.vocabulary = 1610;
  m.tied_embeddings = tied;
  return describe(m);
}

struct BucketsOfRank {
  Shard shard;
  std::vector<RankArray> arrays;
  Placement placement;
  std::vector<Bucket> buckets;

  BucketsOfRank(const Architecture& a, int pipeline_size, int pipeline, int tensor, int replicas,
                std::int64_t most, int tensor_size = 2)
      : shard(make_shard(a, testing::layout_of(pipeline_size, 1, tensor_size), pipeline, tensor)),
        arrays(rank_arrays(a, shard)),
        placement(place(a, shard, arrays)),
        buckets(gradient_buckets(a, shard, arrays, placement, most, replicas)) {}
};

TEST(State, ReplicasOwnEachElementOnceInWholeNormBlocks) {
  for (const bool tied : {true, false})
    for (const int replicas : {2, 3, 7})
      for (const std::int64_t most : {1, 10000, 1 << 20}) {
        const Architecture a = model_of_large_vocabulary(tied);
        const BucketsOfRank rank(a, 1, 0, 1, replicas, most);
        std::vector<std::vector<int>> owner;
        for (const RankArray& array : rank.arrays)
          owner.emplace_back(static_cast<std::size_t>(array.elements()), -1);
        std::int64_t largest = 0;
        for (int r = 0; r < replicas; ++r) {
          const auto state = owned_state(rank.arrays, rank.placement, rank.buckets, r);
          largest = std::max(largest, state.elements);
          std::int64_t end = 0;
          for (const StateBlock& block : state.blocks) {
            EXPECT_GE(block.state, end) << "blocks do not overlap";
            end = block.state + block.elements();
            for (std::int64_t e = block.first; e < block.first + block.elements(); ++e) {
              int& by = owner[block.local][static_cast<std::size_t>(e)];
              EXPECT_EQ(by, -1);
              by = r;
              EXPECT_TRUE(state.owns(rank.placement.offset[block.local] + e));
            }
          }
          EXPECT_LE(end, state.elements);
        }
        for (const auto& array : owner)
          for (std::size_t e = 0; e < array.size(); ++e) {
            ASSERT_GE(array[e], 0);
            EXPECT_EQ(array[e], array[e / norm_block * norm_block]);
          }
        const BucketCut cut(a, rank.shard, rank.arrays, rank.placement, most, replicas);
        EXPECT_EQ(most_state_elements(cut), largest);
      }
}

/// So that each block of the norm is found by one replica, and each element is counted by one of
/// the tensor ranks that hold it.
TEST(State, SharedHeadsAreCutAtTheirNormBlocks) {
  for (const auto& [tensor, key_value_heads] : {std::pair{4, 2}, {6, 1}, {2, 3}, {5, 3}, {3, 2}}) {
    const Architecture a = model_of_large_vocabulary(true, key_value_heads);
    std::vector<std::int64_t> counted(a.arrays.size(), 0);
    for (int t = 0; t < tensor; ++t) {
      const BucketsOfRank rank(a, 1, 0, t, 3, 7000, tensor);
      std::vector<std::vector<int>> owner;
      for (const RankArray& array : rank.arrays)
        owner.emplace_back(static_cast<std::size_t>(array.elements()), -1);
      for (int r = 0; r < 3; ++r)
        for (const auto& block : owned_state(rank.arrays, rank.placement, rank.buckets, r).blocks) {
          if (block.counted) counted[rank.arrays[block.local].number] += block.elements();
          for (std::int64_t e = block.first; e < block.first + block.elements(); ++e)
            owner[block.local][static_cast<std::size_t>(e)] = r;
        }
      for (std::size_t local = 0; local < rank.arrays.size(); ++local)
        for (const Piece& piece : rank.arrays[local].pieces)
          for (std::int64_t e = 0; e < piece.elements(); ++e) {
            const auto block = static_cast<std::size_t>(piece.first + e / norm_block * norm_block);
            ASSERT_GE(owner[local][block], 0);
            ASSERT_EQ(owner[local][static_cast<std::size_t>(piece.first + e)], owner[local][block]);
          }
    }
    for (std::size_t i = 0; i < counted.size(); ++i)
      EXPECT_EQ(counted[i], a.arrays[i].elements()) << a.arrays[i].name << ", tensor " << tensor;
  }
}

TEST(State, EndStagesOwnTheSamePartsOfATiedTable) {
  const Architecture a = model_of_large_vocabulary(true);
  const BucketsOfRank first(a, 2, 0, 0, 3, 30000);
  const BucketsOfRank last(a, 2, 1, 0, 3, 30000);
  const auto parts = [](const BucketsOfRank& rank, int r) {
    std::vector<std::pair<std::int64_t, std::int64_t>> found;
    for (const auto& block : owned_state(rank.arrays, rank.placement, rank.buckets, r).blocks)
      if (rank.arrays[block.local].number == 0) found.emplace_back(block.first, block.elements());
    return found;
  };
  std::size_t all = 0;
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(parts(first, r), parts(last, r));
    all += parts(first, r).size();
  }
  EXPECT_GT(all, 1u);
}

TEST(State, BothGradientsOfATiedTableAreCutEqually) {
  const Architecture a = model_of_large_vocabulary(true);
  const BucketsOfRank rank(a, 1, 0, 0, 3, 2000);
  std::vector<std::int64_t> look_up, logits;
  for (const Bucket& b : rank.buckets)
    for (const std::int64_t bound : b.bounds) {
      if (b.begin >= rank.placement.tied_offset)
        logits.push_back(bound - rank.placement.tied_offset);
      else if (b.end <= rank.placement.offset[0] + rank.arrays[0].elements())
        look_up.push_back(bound - rank.placement.offset[0]);
    }
  EXPECT_EQ(look_up, logits);
  EXPECT_FALSE(logits.empty());
}

TEST(State, UnsharedStateHasTheOffsetsOfTheWeights) {
  const Architecture a = model_of_large_vocabulary(true);
  const BucketsOfRank rank(a, 1, 0, 0, 1, 5000);
  const auto state = whole_state(rank.arrays, rank.placement);
  EXPECT_TRUE(state.whole);
  EXPECT_EQ(state.elements, rank.placement.elements);
  ASSERT_EQ(state.blocks.size(), rank.arrays.size());
  for (const StateBlock& block : state.blocks) {
    EXPECT_EQ(block.state, rank.placement.offset[block.local]);
    EXPECT_EQ(block.elements(), rank.arrays[block.local].elements());
  }
}

}  // namespace
}  // namespace trireme::architecture
