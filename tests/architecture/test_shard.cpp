#include <trireme/architecture/shard.hpp>

#include "support/layouts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace trireme::architecture {
namespace {

Architecture model_to_partition(std::int64_t layers, std::int64_t vocabulary, bool tied) {
  deck::ModelConfig m;
  m.layers = layers;
  m.hidden = 24;
  m.heads = 6;
  m.feed_forward = 96;
  m.sequence = 16;
  m.vocabulary = vocabulary;
  m.tied_embeddings = tied;
  return describe(m);
}

std::vector<std::int64_t> sizes(const Architecture& a, int stages) {
  std::vector<std::int64_t> n;
  std::int64_t next = 0;
  for (const layout::Slice& s : partition(a, testing::layout_of(stages))) {
    EXPECT_EQ(s.offset, next);
    next = s.end();
    n.push_back(s.extent);
  }
  EXPECT_EQ(next, a.model.layers);
  return n;
}

using Sizes = std::vector<std::int64_t>;

TEST(Partition, SmallVocabulariesGiveEqualStages) {
  EXPECT_EQ(sizes(model_to_partition(8, 61, true), 1), (Sizes{8}));
  EXPECT_EQ(sizes(model_to_partition(8, 61, true), 4), (Sizes{2, 2, 2, 2}));
  EXPECT_EQ(sizes(model_to_partition(5, 61, true), 4), (Sizes{2, 1, 1, 1}));
  EXPECT_EQ(sizes(model_to_partition(2, 61, true), 4), (Sizes{1, 1, 0, 0}));
}

TEST(Partition, LargeLogitsReplaceLayersOfTheLastStage) {
  // A layer has 12 · 24² + 24 · 16 = 7296 products per token, the logits 24 · 1000: 3.3 layers.
  EXPECT_EQ(sizes(model_to_partition(12, 1000, true), 2), (Sizes{8, 4}));
  EXPECT_EQ(sizes(model_to_partition(12, 100000, true), 3), (Sizes{6, 6, 0}));
}

TEST(Partition, LayersWithoutWindowsCountByTheirFlops) {
  deck::ModelConfig m = model_to_partition(8, 61, true).model;
  m.sequence = 4096;  // layers 3 and 7, without the window, cost 6 times as much as the others
  m.window = 228;
  m.full_attention_every = 4;
  const Architecture a = describe(m);
  EXPECT_EQ(sizes(a, 2), (Sizes{4, 4}));
  EXPECT_EQ(sizes(a, 3), (Sizes{3, 3, 2}));
}

TEST(Partition, FrozenLayersCountByTheirPasses) {
  deck::ModelConfig m = model_to_partition(8, 61, true).model;
  m.tied_embeddings = false;
  m.frozen = {"embedding", "layers.0-5"};  // a third of the other layers' passes
  EXPECT_EQ(sizes(describe(m), 2), (Sizes{6, 2}));
}

TEST(Partition, ADecksPartitionSetsTheStages) {
  const Architecture a = model_to_partition(8, 1000, true);
  deck::ParallelConfig p = testing::layout_of(2, 2);
  p.partition = {1, 4, 0, 3};
  EXPECT_EQ(partition(a, p), (std::vector<layout::Slice>{{0, 1}, {1, 4}, {5, 0}, {5, 3}}));
  EXPECT_EQ(longest_stage(a, p), 4);
  const Shard shard = make_shard(a, p, 1, 0);
  EXPECT_EQ(shard.stage_of(block_of_layer(4)), 1);
  EXPECT_EQ(shard.stage_of(block_of_layer(5)), 3);  // the stage before it is empty
  p.partition = {1, 4, 3};
  EXPECT_THROW(partition(a, p), Error);
}

TEST(Partition, GpipeBalancesForwardAndBackwardPasses) {
  // The head's gradient is part of the backward pass. With n of 12 layers in the last of two
  // stages, a micro-batch takes max(12 − n, n + h) layers forward, and twice that back.
  const Architecture a = model_to_partition(12, 1000, true);
  deck::ParallelConfig p = testing::layout_of(2);
  p.schedule = ScheduleKind::gpipe;
  const double h = 24.0 * 1000 / 7296;
  const auto time = [h](double n) { return std::max(12 - n, n + h); };
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    p.recompute = recompute;
    const auto last = static_cast<double>(partition(a, p).back().extent);
    for (int n = 0; n <= 12; ++n) EXPECT_LE(time(last), time(n)) << n;
    EXPECT_EQ(last, 4);
  }
}

TEST(Partition, VPlacementBalancesTheRanks) {
  // 18 layers on 2 ranks, 4 stages: the first rank has the first stage, the last one and the head.
  const Architecture a = model_to_partition(18, 1000, true);
  deck::ParallelConfig p = testing::layout_of(2, 2);
  p.schedule = ScheduleKind::zb_v;
  const double h = 24.0 * 1000 / 7296;
  const auto stages = partition(a, p);
  const auto n = [&](std::size_t s) { return static_cast<double>(stages[s].extent); };
  EXPECT_LE(std::abs(n(0) + n(3) + h - n(1) - n(2)), 2);
  EXPECT_EQ(n(0) + n(1) + n(2) + n(3), 18);
}

/// Every element of every array is held by one place of the grid, or by all tensor ranks alike.
TEST(LocalArrays, TileEachGlobalArray) {
  for (const bool tied : {true, false})
    for (const int pipeline : {1, 2, 3})
      for (const int chunks : {1, 2})
        for (const int tensor : {1, 2, 4}) {
          const Architecture a = model_to_partition(5, 61, tied);
          std::map<std::size_t, std::int64_t> held;
          int copies = 0;
          for (int p = 0; p < pipeline; ++p)
            for (int t = 0; t < tensor; ++t) {
              const Shard shard = make_shard(a, testing::layout_of(pipeline, chunks, tensor), p, t);
              for (const RankArray& local : rank_arrays(a, shard)) {
                EXPECT_EQ(shard.holds(local.stage), true);
                EXPECT_EQ(local.split, a.arrays[local.number].tensor_cut() != nullptr);
                copies += local.copy ? 1 : 0;
                if (!local.copy && (local.split || t == 0)) held[local.number] += local.elements();
              }
            }
          EXPECT_EQ(copies, tied && pipeline > 1 ? tensor : 0);
          ASSERT_EQ(held.size(), a.arrays.size());
          for (const auto& [number, elements] : held)
            EXPECT_EQ(elements, a.arrays[number].elements()) << a.arrays[number].name;
        }
}

}  // namespace
}  // namespace trireme::architecture
