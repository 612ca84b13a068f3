// The memory of arenas that replicas divide: every element is kept by one replica, and arrays that
// passes use together do not overlap.
#include <trireme/architecture/arrangement.hpp>
#include <trireme/deck/families.hpp>

#include "support/layouts.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace trireme::architecture {
namespace {

deck::ModelConfig model_to_arrange(bool tied, int key_value_heads, std::int64_t shared_layers) {
  deck::ModelConfig m;
  if (key_value_heads > 0) deck::set_family(m, Family::llama);
  m.key_value_heads = key_value_heads > 0 ? key_value_heads : 6;
  m.layers = 5;
  m.hidden = 96;
  m.heads = 6;
  m.feed_forward = 350;
  m.sequence = 16;
  m.vocabulary = 401;
  m.tied_embeddings = tied;
  m.shared_layers = shared_layers;
  return m;
}

struct CutOfRank {
  Architecture architecture;
  Shard shard;
  std::vector<RankArray> arrays;
  Placement placement;
  BucketCut cut;

  CutOfRank(const deck::ModelConfig& model, int pipeline, int at, int tensor, int replicas)
      : architecture(describe(model)),
        shard(make_shard(architecture, testing::layout_of(pipeline, 1, tensor), at, 0)),
        arrays(rank_arrays(architecture, shard)),
        placement(place(architecture, shard, arrays)),
        cut(architecture, shard, arrays, placement, 12288, replicas, true) {}
};

template <class Use>
void for_ranks(const Use& use) {
  for (const bool tied : {true, false})
    for (const int key_value_heads : {0, 2})
      for (const std::int64_t shared : {0, 2})
        for (const auto& [pipeline, tensor] : {std::pair(1, 1), {2, 1}, {1, 4}})
          for (int at = 0; at < pipeline; ++at)
            for (const int replicas : {2, 3, 7}) {
              SCOPED_TRACE(text("tied ", tied, ", heads ", key_value_heads, ", shared ", shared,
                                ", pipeline ", pipeline, ", tensor ", tensor, ", replicas ",
                                replicas));
              const CutOfRank rank(model_to_arrange(tied, key_value_heads, shared), pipeline, at,
                                   tensor, replicas);
              use(rank, replicas);
              if (::testing::Test::HasFailure()) return;
            }
}

/// Ranges of memory, none of which overlap.
void expect_apart(std::vector<std::pair<std::int64_t, std::int64_t>> ranges) {
  std::ranges::sort(ranges);
  for (std::size_t i = 1; i < ranges.size(); ++i)
    EXPECT_LE(ranges[i - 1].second, ranges[i].first) << "range " << i;
}

TEST(Arrangement, OneReplicaKeepsEachElement) {
  for_ranks([](const CutOfRank& rank, int replicas) {
    for (const bool gradients : {false, true}) {
      const Division division{!gradients, gradients};
      std::vector<std::pair<std::int64_t, std::int64_t>> kept;
      std::int64_t in_turns = 0;
      for (int r = 0; r < replicas; ++r) {
        const Arrangement places =
            gradients ? arranged_gradients(rank.cut, rank.shard, division, false, r)
                      : arranged_weights(rank.cut, division, r);
        in_turns = 0;
        for (const auto& run : places.runs()) in_turns += run.takes_turns ? run.size() : 0;
        for (const auto& own : places.own()) kept.emplace_back(own.begin, own.end);
      }
      expect_apart(kept);
      std::int64_t elements = 0;
      for (const auto& [begin, end] : kept) elements += end - begin;
      EXPECT_EQ(elements, in_turns);
    }
  });
}

TEST(Arrangement, ArraysOfAPassDoNotOverlap) {
  for_ranks([](const CutOfRank& rank, int replicas) {
    std::int64_t elements = -1;
    for (int r = 0; r < replicas; ++r) {
      const Arrangement places = arranged_weights(rank.cut, {true, false}, r);
      if (elements >= 0) {
        EXPECT_EQ(places.elements(), elements);  // as much memory on all replicas
      }
      elements = places.elements();
      // Two neighbouring layers, or a layer and an end, with everything that is always there.
      for (std::size_t first = 0; first < places.units().size(); ++first)
        for (std::size_t second = 0; second < places.units().size(); ++second) {
          const auto& a = places.units()[first];
          const auto& b = places.units()[second];
          if (first != second && a.window == b.window && a.window >= 0) continue;
          std::vector<std::pair<std::int64_t, std::int64_t>> used;
          for (const auto& own : places.own())
            used.emplace_back(own.place, own.place + own.end - own.begin);
          for (const auto& run : places.runs())
            if (!run.takes_turns || run.unit == static_cast<int>(first) ||
                run.unit == static_cast<int>(second))
              used.emplace_back(run.place, run.place + run.size());
          expect_apart(used);
          for (const auto& [begin, end] : used) EXPECT_LE(end, places.elements());
        }
    }
  });
}

TEST(Arrangement, NeighbouringLayersUseDifferentWindows) {
  for_ranks([](const CutOfRank& rank, int) {
    const Arrangement places = arranged_weights(rank.cut, {true, false}, 0);
    for (std::int64_t layer = 0; layer + 1 < 5; ++layer) {
      const int a = places.unit_of(block_of_layer(layer));
      const int b = places.unit_of(block_of_layer(layer + 1));
      if (a < 0 || b < 0) continue;
      const int window = places.units()[static_cast<std::size_t>(a)].window;
      if (window >= 0) {
        EXPECT_NE(window, places.units()[static_cast<std::size_t>(b)].window) << "layer " << layer;
      }
    }
  });
}

TEST(Arrangement, ElementsOfAnArrayAreContiguous) {
  for_ranks([](const CutOfRank& rank, int) {
    const Arrangement places = arranged_weights(rank.cut, {true, false}, 1);
    for (std::size_t i = 0; i < rank.arrays.size(); ++i) {
      const std::int64_t n = rank.arrays[i].elements();
      if (n == 0) continue;
      const std::int64_t first = rank.placement.offset[i];
      EXPECT_EQ(places.place(first + n - 1), places.place(first) + n - 1);
    }
    // Arrays that follow others do so in windows, too.
    for (std::size_t i = 1; i < rank.arrays.size(); ++i)
      if (rank.architecture.arrays[rank.arrays[i].number].follows_previous) {
        EXPECT_EQ(places.place(rank.placement.offset[i]),
                  places.place(rank.placement.offset[i - 1]) + rank.arrays[i - 1].elements());
      }
  });
}

TEST(Division, DividesGradientsThatOnePassCompletes) {
  deck::Config config;
  config.parallel.data = 4;
  config.batch.micro = 2;
  config.batch.global = 8;
  config.parallel.shard = Sharding::weights;
  EXPECT_EQ(division_of(config), (Division{true, true}));
  config.parallel.shard = Sharding::gradients;
  EXPECT_EQ(division_of(config), (Division{false, true}));
  config.parallel.shard = Sharding::optimizer;
  EXPECT_EQ(division_of(config), Division{});
  config.parallel.shard = Sharding::weights;
  deck::Config more = config;
  more.batch.global = 16;
  EXPECT_EQ(division_of(more), (Division{true, false}));
  more = config;
  more.parallel.schedule = ScheduleKind::zb_h1;
  EXPECT_EQ(division_of(more), (Division{true, false}));
  more = config;
  more.parallel.data = 1;
  more.batch.global = 2;
  EXPECT_EQ(division_of(more), Division{});
}

}  // namespace
}  // namespace trireme::architecture
