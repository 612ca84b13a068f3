#include <trireme/architecture/saved.hpp>
#include <trireme/deck/families.hpp>

#include "support/layouts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace trireme::architecture {
namespace {

struct Grid {
  int pipeline = 1;
  int chunks = 1;
  int tensor = 1;
  int data = 1;
  bool tied = true;
  int key_value_heads = 0;  ///< 0: family gpt
};

Architecture saved_model(bool tied, int key_value_heads = 0) {
  deck::ModelConfig m;
  if (key_value_heads > 0) deck::set_family(m, Family::llama);
  m.key_value_heads = key_value_heads;
  m.layers = 5;
  m.hidden = 24;
  m.heads = 6;
  m.feed_forward = 100;
  m.sequence = 17;
  m.vocabulary = 61;
  m.tied_embeddings = tied;
  return describe(m);
}

const std::vector<Grid> grids{{1, 1, 1, 1},          {1, 1, 1, 3},          {2, 1, 1, 2},
                              {2, 2, 2, 2},          {3, 1, 4, 1},          {1, 1, 4, 3},
                              {3, 1, 2, 2},          {2, 2, 2, 3, false},   {1, 1, 1, 100},
                              {1, 1, 4, 1, true, 2}, {2, 1, 4, 2, true, 2}, {1, 1, 6, 3, false, 1},
                              {2, 2, 2, 2, true, 3}, {1, 1, 5, 2, true, 3}, {1, 1, 3, 1, true, 3}};

/// Calls use(place, local arrays, parts) for every rank of a grid.
template <class Use>
void for_ranks(const Architecture& a, const Grid& g, const Use& use) {
  for (int p = 0; p < g.pipeline; ++p)
    for (int t = 0; t < g.tensor; ++t) {
      const Shard shard = make_shard(a, testing::layout_of(g.pipeline, g.chunks, g.tensor), p, t);
      const auto arrays = rank_arrays(a, shard);
      for (int d = 0; d < g.data; ++d) use(p, arrays, saved_parts(a, shard, arrays, g.data, d));
    }
}

TEST(SavedParts, RanksTogetherWriteEachElementOnce) {
  for (const Grid& g : grids) {
    const Architecture a = saved_model(g.tied, g.key_value_heads);
    std::vector<std::vector<int>> written;
    for (const ArraySpec& spec : a.arrays)
      written.emplace_back(static_cast<std::size_t>(spec.elements()));
    for_ranks(a, g, [&](int, const auto& arrays, const auto& parts) {
      for (const SavedPart& part : parts) {
        const ArraySpec& spec = a.arrays[arrays[part.local].number];
        for (std::int64_t n = 0; n < part.elements(); ++n) {
          std::int64_t rest = n, element = 0, stride = 1;
          for (std::size_t axis = spec.shape.size(); axis-- > 0;) {
            element += (part.offset[axis] + rest % part.extent[axis]) * stride;
            rest /= part.extent[axis];
            stride *= spec.shape[axis];
          }
          ++written[arrays[part.local].number][static_cast<std::size_t>(element)];
        }
      }
    });
    for (const auto& array : written)
      EXPECT_TRUE(std::ranges::all_of(array, [](int times) { return times == 1; }));
  }
}

TEST(SavedParts, BelongToTheMemoryOfTheirLocalArray) {
  for (const Grid& g : grids) {
    const Architecture a = saved_model(g.tied, g.key_value_heads);
    for_ranks(a, g, [&](int, const auto& arrays, const auto& parts) {
      for (const SavedPart& part : parts) {
        const RankArray& local = arrays[part.local];
        std::int64_t first = 0;
        for (std::size_t axis = 0; axis < part.offset.size(); ++axis) {
          ASSERT_GE(part.offset[axis], local.offset[axis]);
          ASSERT_LE(part.offset[axis] + part.extent[axis], local.offset[axis] + local.extent[axis]);
          first = first * local.extent[axis] + part.offset[axis] - local.offset[axis];
        }
        EXPECT_EQ(part.first, first);
      }
    });
  }
}

TEST(SavedParts, RanksOfAStageWriteEqualShares) {
  for (const Grid& g : grids) {
    const Architecture a = saved_model(g.tied, g.key_value_heads);
    std::map<int, std::pair<std::int64_t, std::int64_t>> bounds;  // per pipeline rank
    for_ranks(a, g, [&](int p, const auto&, const auto& parts) {
      std::int64_t elements = 0;
      for (const SavedPart& part : parts) elements += part.elements();
      const auto [at, fresh] = bounds.try_emplace(p, elements, elements);
      at->second = {std::min(at->second.first, elements), std::max(at->second.second, elements)};
    });
    // Cut arrays may be larger on the first tensor ranks; shares differ by rows of at most 100.
    for (const auto& [p, bound] : bounds) {
      const std::int64_t uneven = g.tensor > 1 ? bound.second / 5 : 0;
      EXPECT_LE(bound.second - bound.first, uneven + 6 * 100) << p;
    }
  }
}

TEST(SavedParts, BothEndStagesWriteHalfOfATiedTable) {
  const Architecture a = saved_model(true);
  std::map<int, std::int64_t> rows;
  for_ranks(a, {3, 1, 1, 1}, [&](int p, const auto& arrays, const auto& parts) {
    for (const SavedPart& part : parts)
      if (arrays[part.local].number == 0) rows[p] += part.extent[0];
  });
  EXPECT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0] + rows[2], 61);
  EXPECT_LE(std::abs(rows[0] - rows[2]), 1);
}

/// Two tensor ranks with a head in common, two replicas: a quarter for each.
TEST(SavedParts, RanksThatShareAHeadWriteEqualPartsOfIt) {
  const Grid grid{1, 1, 2, 2, true, 1};
  const Architecture a = saved_model(true, 1);
  std::vector<std::int64_t> elements;
  for_ranks(a, grid, [&](int, const auto& arrays, const auto& parts) {
    elements.push_back(0);
    for (const SavedPart& part : parts)
      if (a.arrays[arrays[part.local].number].name.ends_with("key_value"))
        elements.back() += part.elements();
  });
  ASSERT_EQ(elements.size(), 4u);
  const std::int64_t all = 5 * 2 * 4 * 24;
  for (const std::int64_t n : elements) EXPECT_LE(std::abs(n - all / 4), 24) << "a row at most";
}

}  // namespace
}  // namespace trireme::architecture
