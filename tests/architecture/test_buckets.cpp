#include <trireme/architecture/buckets.hpp>

#include "support/layouts.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace trireme::architecture {
namespace {

Architecture bucketed_model(bool tied) {
  deck::ModelConfig m;
  m.layers = 5;
  m.hidden = 24;
  m.heads = 6;
  m.feed_forward = 90;
  m.sequence = 16;
  m.vocabulary = 61;
  m.tied_embeddings = tied;
  return describe(m);
}

TEST(Buckets, HoldEachGradientOnceAndAgreeOnReplicatedArrays) {
  for (const bool tied : {true, false})
    for (const int pipeline : {1, 2})
      for (const int chunks : {1, 2})
        for (const std::int64_t most : {1, 100, 5000, 1 << 20}) {
          const Architecture a = bucketed_model(tied);
          std::vector<std::vector<std::int64_t>> replicated(4);
          for (int t = 0; t < 4; ++t) {
            const Shard shard = make_shard(a, testing::layout_of(pipeline, chunks, 4), 0, t);
            const auto arrays = rank_arrays(a, shard);
            const Placement placement = place(a, shard, arrays);
            std::vector<int> times(static_cast<std::size_t>(placement.gradient_elements), 0);
            for (const Bucket& b : gradient_buckets(a, shard, arrays, placement, most, 3)) {
              EXPECT_LE(b.end - b.begin, std::max(most, norm_block));
              EXPECT_FALSE(b.blocks.empty());
              EXPECT_EQ(b.bounds.size(), 4u);
              EXPECT_EQ(b.bounds.front(), b.begin);
              EXPECT_EQ(b.bounds.back(), b.end);
              EXPECT_TRUE(std::ranges::is_sorted(b.bounds));
              for (std::int64_t i = b.begin; i < b.end; ++i) ++times[static_cast<std::size_t>(i)];
              if (b.begin >= placement.replicated && b.end <= placement.elements)
                replicated[static_cast<std::size_t>(t)].insert(
                    replicated[static_cast<std::size_t>(t)].end(),
                    {b.begin - placement.replicated, b.end - placement.replicated});
            }
            for (std::size_t i = 0; i < arrays.size(); ++i)
              for (std::int64_t e = 0; e < arrays[i].elements(); ++e)
                ASSERT_EQ(times[static_cast<std::size_t>(placement.offset[i] + e)], 1)
                    << a.arrays[arrays[i].number].name << ", element " << e;
            EXPECT_LE(*std::ranges::max_element(times), 1);
          }
          for (int t = 1; t < 4; ++t)
            EXPECT_EQ(replicated[static_cast<std::size_t>(t)], replicated[0]);
        }
}

}  // namespace
}  // namespace trireme::architecture
