#include <trireme/architecture/architecture.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace trireme::architecture {
namespace {

deck::ModelConfig gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                      std::int64_t sequence, std::int64_t vocabulary) {
  deck::ModelConfig m;
  m.layers = layers;
  m.hidden = hidden;
  m.heads = heads;
  m.feed_forward = 4 * hidden;
  m.sequence = sequence;
  m.vocabulary = vocabulary;
  return m;
}

TEST(Architecture, CountsParametersOfGpt2Small) {
  EXPECT_EQ(describe(gpt(12, 768, 12, 1024, 50257)).parameters(), 124'439'808);
}

TEST(Architecture, CountsParametersOfThePapersTrillionModel) {
  // Narayanan et al. 2021, table 1, last row; eq. 2 counts all but the final norm's 2 h.
  EXPECT_EQ(describe(gpt(128, 25600, 160, 2048, 51200)).parameters(),
            1'008'038'707'200 + 2 * 25600);
}

TEST(Architecture, FlopsFollowTheDocumentedConvention) {
  const auto a = describe(gpt(2, 8, 2, 16, 100));
  const double n = 2 * 12 * 64 + 100 * 8;
  EXPECT_DOUBLE_EQ(a.model_flops_per_token(), 6 * n + 6.0 * 2 * 8 * 16);
  EXPECT_EQ(a.layer_products() + a.head_products(), n);
}

TEST(Architecture, LayersWithEqualPropertiesAreOneKind) {
  deck::ModelConfig m = gpt(7, 8, 2, 16, 100);
  EXPECT_EQ(describe(m).layer_kinds().size(), 1U);
  m.window = 4;
  EXPECT_EQ(describe(m).layer_kinds().size(), 1U);
  m.full_attention_every = 3;
  const Architecture mixed = describe(m);
  ASSERT_EQ(mixed.layer_kinds().size(), 2U);
  EXPECT_EQ(mixed.count_kinds({0, 7}), (std::vector<std::int64_t>{5, 2}));
  EXPECT_EQ(mixed.count_kinds({2, 1}), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(mixed.count_kinds({3, 0}), (std::vector<std::int64_t>{0, 0}));
  for (std::int64_t layer = 0; layer < 7; ++layer) {
    const auto& operations = mixed.description(block_of_layer(layer)).operations;
    const auto attention =
        std::ranges::find(operations, OperationKind::attention, &Operation::kind);
    ASSERT_NE(attention, operations.end());
    EXPECT_EQ(attention->window, layer == 2 || layer == 5 ? 0 : 4) << layer;
  }
  m.frozen = {"layers.0-1", "layers.6.feed_forward"};
  EXPECT_EQ(describe(m).count_kinds({0, 7}), (std::vector<std::int64_t>{2, 2, 2, 1}));
}

TEST(Architecture, OnlyTheFirstPostNormLayerDropsOutTheEmbedding) {
  deck::ModelConfig m = gpt(3, 8, 2, 16, 100);
  m.norm_placement = NormPlacement::post;
  const Architecture a = describe(m);
  EXPECT_EQ(a.count_kinds({0, 3}), (std::vector<std::int64_t>{1, 2}));
  for (std::int64_t layer = 0; layer < 3; ++layer)
    EXPECT_EQ(std::ranges::count(a.description(block_of_layer(layer)).operations,
                                 OperationKind::dropout, &Operation::kind),
              layer == 0 ? 1 : 0);
}

TEST(Architecture, AttentionFlopsFollowTheWindowOfEachLayer) {
  deck::ModelConfig m = gpt(7, 8, 2, 16, 100);
  m.window = 4;
  m.full_attention_every = 3;
  const double in_window = 4 - 16.0 / 32, full = 8;
  EXPECT_DOUBLE_EQ(describe(m).attention_products(), 2 * 8 * (5 * in_window + 2 * full));
}

TEST(Architecture, FlopsOfSharedLayersCountInEachLayer) {
  deck::ModelConfig m = gpt(5, 8, 2, 16, 100);
  const Architecture whole = describe(m);
  m.shared_layers = 2;
  const Architecture shared = describe(m);
  EXPECT_LT(shared.parameters(), whole.parameters());
  EXPECT_EQ(shared.model_flops_per_token(), whole.model_flops_per_token());
  EXPECT_EQ(shared.block(block_of_layer(3)).prefix, "layers.1.");
}

TEST(Architecture, DecaysOnlyMatricesAndNamesAreUnique) {
  std::set<std::string> names;
  for (const auto& array : describe(gpt(3, 12, 3, 5, 7)).arrays) {
    EXPECT_TRUE(names.insert(array.name).second) << array.name;
    EXPECT_EQ(array.decay, array.initialisation == Initialisation::normal) << array.name;
  }
}

TEST(Architecture, UntiedEmbeddingsAddAnOutputMatrix) {
  auto m = gpt(1, 8, 2, 4, 10);
  const auto tied = describe(m);
  m.tied_embeddings = false;
  EXPECT_EQ(describe(m).parameters(), tied.parameters() + 80);
}

}  // namespace
}  // namespace trireme::architecture
