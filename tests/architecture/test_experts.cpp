// Replicas that divide the experts: who holds, saves and updates which element.
#include <trireme/architecture/saved.hpp>
#include <trireme/architecture/state.hpp>
#include <trireme/deck/families.hpp>

#include "support/layouts.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace trireme::architecture {
namespace {

struct Grid {
  int expert, tensor, replicas, pipeline = 1;
};
/// The last grids divide 7 experts unevenly, also one expert per rank.
const std::vector<Grid> grids{{1, 1, 2}, {1, 2, 3}, {2, 1, 2},    {2, 2, 4},    {3, 1, 3},
                              {3, 2, 6}, {4, 1, 8}, {2, 3, 2, 2}, {7, 1, 7, 2}, {3, 1, 9}};

Architecture model_of_experts() {
  deck::ModelConfig m;
  deck::set_family(m, Family::gpt_oss);  // with biases
  m.layers = 3;
  m.hidden = 48;
  m.heads = 6;
  m.key_value_heads = 3;
  m.explicit_head_size = 8;
  m.sequence = 16;
  m.vocabulary = 61;
  m.experts.number = 7;
  m.experts.active = 2;
  m.experts.feed_forward = 60;
  return describe(m);
}

deck::ParallelConfig layout_of(const Grid& g) {
  deck::ParallelConfig p = testing::layout_of(g.pipeline, 1, g.tensor);
  p.data = g.replicas;
  p.expert = g.expert;
  return p;
}

/// Calls use(shard, arrays, replica) for every rank.
template <class Use>
void for_ranks(const Architecture& a, const Grid& g, const Use& use) {
  layout::Coordinates at;
  for (at[Axis::pipeline] = 0; at[Axis::pipeline] < g.pipeline; ++at[Axis::pipeline])
    for (at[Axis::tensor] = 0; at[Axis::tensor] < g.tensor; ++at[Axis::tensor])
      for (at[Axis::data] = 0; at[Axis::data] < g.replicas; ++at[Axis::data]) {
        const Shard shard = make_shard(a, layout_of(g), at);
        use(shard, rank_arrays(a, shard), at[Axis::data]);
      }
}

/// Number of times that blocks of the arrays contain each element.
class Counts {
 public:
  explicit Counts(const Architecture& a) : a_(a) {
    for (const ArraySpec& spec : a.arrays)
      counts_.emplace_back(static_cast<std::size_t>(spec.elements()));
  }
  template <class Block>
  void add(std::size_t number, const Block& block) {
    const ArraySpec& spec = a_.arrays[number];
    for (std::int64_t n = 0; n < block.elements(); ++n) {
      std::int64_t rest = n, element = 0, stride = 1;
      for (std::size_t axis = spec.shape.size(); axis-- > 0;) {
        element += (block.offset[axis] + rest % block.extent[axis]) * stride;
        rest /= block.extent[axis];
        stride *= spec.shape[axis];
      }
      ++counts_[number][static_cast<std::size_t>(element)];
    }
  }
  void expect_one_of_each() const {
    for (std::size_t i = 0; i < counts_.size(); ++i)
      EXPECT_TRUE(std::ranges::all_of(counts_[i], [](int n) { return n == 1; }))
          << a_.arrays[i].name;
  }

 private:
  const Architecture& a_;
  std::vector<std::vector<int>> counts_;
};

std::string name(const Grid& g) {
  return text("expert ", g.expert, ", tensor ", g.tensor, ", replicas ", g.replicas, ", pipeline ",
              g.pipeline);
}

TEST(DividedExperts, RanksTogetherSaveEachElementOnce) {
  const Architecture a = model_of_experts();
  for (const Grid& g : grids) {
    SCOPED_TRACE(name(g));
    Counts saved(a);
    for_ranks(a, g, [&](const Shard& shard, const auto& arrays, int replica) {
      for (const SavedPart& part : saved_parts(a, shard, arrays, g.replicas, replica))
        saved.add(arrays[part.local].number, part);
    });
    saved.expect_one_of_each();
  }
}

/// Each element of the state is on one rank that counts it, whatever the size of buckets.
TEST(DividedExperts, RanksTogetherUpdateEachElementOnce) {
  const Architecture a = model_of_experts();
  for (const Grid& g : grids)
    for (const std::int64_t most : {1, 5000, 1 << 20}) {
      SCOPED_TRACE(text(name(g), ", buckets of ", most));
      Counts updated(a);
      for_ranks(a, g, [&](const Shard& shard, const auto& arrays, int replica) {
        const Placement placement = place(a, shard, arrays);
        const BucketCut cut(a, shard, arrays, placement, most, g.replicas);
        const auto state = owned_state(arrays, placement, gradient_buckets(cut), replica);
        for (const StateBlock& block : state.blocks)
          if (block.counted) updated.add(arrays[block.local].number, block);
        EXPECT_LE(state.elements, most_state_elements(cut));
      });
      updated.expect_one_of_each();
    }
}

TEST(DividedExperts, SumsMatchTheListsOfBlocks) {
  const Architecture a = model_of_experts();
  const auto up = [](std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; };
  for (const Grid& g : grids)
    for_ranks(a, g, [&](const Shard& shard, const auto& arrays, int replica) {
      SCOPED_TRACE(text(name(g), ", replica ", replica));
      const Placement placement = place(a, shard, arrays);
      const BucketCut cut(a, shard, arrays, placement, 5000, g.replicas);
      const auto buckets = gradient_buckets(cut);
      for (const std::int64_t unit : {32, 1024}) {
        std::int64_t owned = 0, saved = 0;
        for (const StateBlock& b : owned_state(arrays, placement, buckets, replica).blocks)
          owned += up(b.elements(), unit);
        for (const SavedPart& p : saved_parts(a, shard, arrays, g.replicas, replica))
          saved += up(p.elements(), unit);
        const auto r = static_cast<std::size_t>(replica);
        EXPECT_EQ(owned_sums(cut, unit, false)[r], owned);
        EXPECT_EQ(saved_sums(a, shard, arrays, g.replicas, unit)[r], saved);
      }
    });
}

/// A bucket holds experts or other arrays, and the ranks with the same experts have equal buckets.
TEST(DividedExperts, HaveBucketsOfTheirOwn) {
  const Architecture a = model_of_experts();
  for (const Grid& g : grids)
    for_ranks(a, g, [&](const Shard& shard, const auto& arrays, int) {
      SCOPED_TRACE(name(g));
      const Placement placement = place(a, shard, arrays);
      for (const Bucket& bucket :
           gradient_buckets({a, shard, arrays, placement, 5000, g.replicas})) {
        EXPECT_EQ(bucket.bounds.size(),
                  static_cast<std::size_t>(g.replicas / bucket.expert_ranks) + 1);
        for (std::size_t i = 0; i < arrays.size(); ++i)
          if (placement.offset[i] < bucket.end &&
              bucket.begin < placement.offset[i] + arrays[i].elements()) {
            EXPECT_EQ(bucket.of_experts(), arrays[i].of_experts);
          }
      }
    });
}

/// Numbers of replicas are those of the ranks, context ranks included, in the order of the axes.
TEST(DividedExperts, AreOnConsecutiveReplicas) {
  const Architecture a = model_of_experts();
  deck::ParallelConfig p = testing::layout_of(1, 1, 1);
  p.data = 3;
  p.context = 2;
  p.expert = 6;
  for (const bool data_first : {false, true}) {
    p.order = data_first ? "tensor, data, context" : "";
    const layout::ProcessGrid grid(p.axes(), 6);
    for (Rank rank = 0; rank < 6; ++rank)
      EXPECT_EQ(make_shard(a, p, grid.coordinates(rank)).expert_rank, rank);
  }
}

}  // namespace
}  // namespace trireme::architecture
