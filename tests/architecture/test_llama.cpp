#include <trireme/architecture/placement.hpp>
#include <trireme/architecture/rank_sizes.hpp>
#include <trireme/base/text.hpp>
#include <trireme/deck/families.hpp>

#include "support/layouts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace trireme::architecture {
namespace {

deck::ModelConfig llama(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                        std::int64_t key_value_heads, std::int64_t feed_forward,
                        std::int64_t vocabulary) {
  deck::ModelConfig m;
  deck::set_family(m, Family::llama);
  m.layers = layers;
  m.hidden = hidden;
  m.heads = heads;
  m.key_value_heads = key_value_heads;
  m.feed_forward = feed_forward;
  m.sequence = 16;
  m.vocabulary = vocabulary;
  m.tied_embeddings = false;
  return m;
}

TEST(LlamaArchitecture, CountsParametersOfPublishedModels) {
  EXPECT_EQ(describe(llama(32, 4096, 32, 32, 11008, 32000)).parameters(), 6'738'415'616);
  EXPECT_EQ(describe(llama(32, 4096, 32, 8, 14336, 128256)).parameters(), 8'030'261'248);
  auto small = llama(16, 2048, 32, 8, 8192, 128256);  // Llama 3.2 1B
  small.tied_embeddings = true;
  EXPECT_EQ(describe(small).parameters(), 1'235'814'400);
}

TEST(LlamaArchitecture, FlopsCountThreeFeedForwardProducts) {
  const auto a = describe(llama(2, 24, 6, 3, 40, 100));
  const double attention = 24 * 24 * 2 + 2 * 12 * 24;  // queries and output, keys and values
  const double n = 2 * (attention + 3 * 40 * 24) + 100 * 24;
  EXPECT_EQ(a.layer_products() + a.head_products(), n);
  EXPECT_DOUBLE_EQ(a.model_flops_per_token(), 6 * n + 6.0 * 2 * 24 * 16);
}

TEST(LlamaArchitecture, DecaysOnlyMatricesAndScalesInitialOutputs) {
  for (const auto& array : describe(llama(8, 24, 6, 3, 40, 100)).arrays) {
    EXPECT_EQ(array.decay, array.shape.size() > 1) << array.name;
    EXPECT_FALSE(array.name.ends_with("bias"));
    const bool into_stream =
        array.name.ends_with("attention.output") || array.name.ends_with("down");
    if (array.decay)
      EXPECT_DOUBLE_EQ(array.standard_deviation, into_stream ? 0.02 / 4 : 0.02) << array.name;
    else
      EXPECT_EQ(array.initialisation, Initialisation::ones) << array.name;
  }
}

/// The tensor ranks whose query heads use head `j`, by the definition of grouped-query attention.
layout::Slice users(std::int64_t heads, std::int64_t key_value_heads, int tensor, std::int64_t j) {
  int first = tensor;
  int end = 0;
  for (int rank = 0; rank < tensor; ++rank) {
    const layout::Slice mine = layout::split(heads, tensor, rank);
    for (std::int64_t h = mine.offset; h < mine.end(); ++h)
      if (h * key_value_heads / heads == j) {
        first = std::min(first, rank);
        end = rank + 1;
      }
  }
  return {first, end - first};
}

RankArray local_array(const Architecture& a, const Shard& shard, const std::string& name) {
  for (RankArray& array : rank_arrays(a, shard))
    if (a.arrays[array.number].name == "layers.0.attention." + name) return array;
  ADD_FAILURE() << "no " << name;
  return {};
}

struct Heads {
  std::int64_t queries;
  std::int64_t keys_and_values;
};

const std::vector<Heads> all_heads{{6, 1}, {6, 2}, {6, 3}, {6, 6}, {18, 6}, {18, 2}, {32, 8}};

/// Query heads are cut evenly, whatever groups they are in.
TEST(LlamaArchitecture, TensorRanksHoldTheKeysAndValuesOfTheirQueries) {
  for (const auto& [H, Hkv] : all_heads) {
    const auto a = describe(llama(1, 4 * H, H, Hkv, 40, 100));
    for (int tensor = 1; tensor <= H; ++tensor)
      for (int rank = 0; rank < tensor; ++rank) {
        SCOPED_TRACE(text(H, " heads over ", Hkv, ", tensor rank ", rank, " of ", tensor));
        const Shard shard = make_shard(a, testing::layout_of(1, 1, tensor), 0, rank);
        const auto query = local_array(a, shard, "query");
        const auto key_value = local_array(a, shard, "key_value");
        const auto output = local_array(a, shard, "output");
        const layout::Slice heads = layout::split(H, tensor, rank);
        EXPECT_EQ(query.offset[0], heads.offset);
        EXPECT_EQ(query.extent[0], heads.extent);
        EXPECT_EQ(output.offset[1], heads.offset);
        EXPECT_EQ(output.extent[1], heads.extent);
        EXPECT_EQ(key_value.offset[1], heads.offset * Hkv / H);
        EXPECT_EQ(key_value.offset[1] + key_value.extent[1], (heads.end() - 1) * Hkv / H + 1);
        const RankSizes sizes = rank_sizes(a.model, shard, 1, 16, false, host_logit_elements);
        EXPECT_EQ(sizes.heads, query.extent[0]);
        EXPECT_EQ(sizes.key_value_heads, key_value.extent[1]);
        EXPECT_EQ((sizes.heads_before + sizes.heads - 1) / sizes.group, sizes.key_value_heads - 1);
      }
  }
}

TEST(LlamaArchitecture, OneHolderCountsEachSharedHead) {
  for (const auto& [H, Hkv] : all_heads) {
    const auto a = describe(llama(1, 4 * H, H, Hkv, 40, 100));
    for (int tensor = 1; tensor <= H; ++tensor) {
      SCOPED_TRACE(text(H, " heads over ", Hkv, ", tensor ", tensor));
      std::vector<int> counted(static_cast<std::size_t>(2 * Hkv), 0);
      for (int rank = 0; rank < tensor; ++rank) {
        const auto local =
            local_array(a, make_shard(a, testing::layout_of(1, 1, tensor), 0, rank), "key_value");
        std::int64_t end = 0;
        for (const Piece& piece : local.pieces) {
          EXPECT_EQ(piece.first, end) << "pieces follow one another in memory";
          end += piece.elements();
          std::int64_t first = piece.offset[0];
          first = first * local.extent[1] + piece.offset[1] - local.offset[1];
          EXPECT_EQ(piece.first, first * 4 * 4 * H);
          for (std::int64_t i = piece.offset[0]; i < piece.offset[0] + piece.extent[0]; ++i)
            for (std::int64_t j = piece.offset[1]; j < piece.offset[1] + piece.extent[1]; ++j) {
              EXPECT_EQ(piece.holders, users(H, Hkv, tensor, j)) << j;
              counted[static_cast<std::size_t>(i * Hkv + j)] += piece.counted ? 1 : 0;
            }
        }
        EXPECT_EQ(end, local.elements());
      }
      EXPECT_TRUE(std::ranges::all_of(counted, [](int times) { return times == 1; }));
    }
  }
}

/// Two communicators are enough for the sums of shared heads, taken in turn.
TEST(LlamaArchitecture, RanksShareAtMostTwoConsecutiveHeads) {
  for (const auto& [H, Hkv] : all_heads) {
    const auto model = llama(1, 4 * H, H, Hkv, 40, 100);
    const auto a = describe(model);
    for (int tensor = 1; tensor <= H; ++tensor) {
      const auto shared = shared_heads(model, tensor);
      EXPECT_EQ(shared.empty(), Hkv == H || Hkv % tensor == 0)
          << H << " over " << Hkv << ", " << tensor;
      for (int rank = 0; rank < tensor; ++rank) {
        const auto mine =
            make_shard(a, testing::layout_of(1, 1, tensor), 0, rank).groups(Hkv, H / Hkv);
        std::vector<std::size_t> ordinals;
        for (std::size_t i = 0; i < shared.size(); ++i)
          if (mine.offset <= shared[i] && shared[i] < mine.end()) ordinals.push_back(i);
        ASSERT_LE(ordinals.size(), 2u);
        if (ordinals.size() == 2) {
          EXPECT_EQ(ordinals[1], ordinals[0] + 1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::architecture
