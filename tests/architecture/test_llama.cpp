#include <trireme/architecture/local_sizes.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace trireme::architecture {
namespace {

deck::ModelConfig llama(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                        std::int64_t key_value_heads, std::int64_t feed_forward,
                        std::int64_t vocabulary) {
  deck::ModelConfig m;
  m.family = Family::llama;
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

TEST(LlamaArchitecture, PublishedModelsHaveTheirParameterCounts) {
  EXPECT_EQ(describe(llama(32, 4096, 32, 32, 11008, 32000)).parameters(), 6'738'415'616);
  EXPECT_EQ(describe(llama(32, 4096, 32, 8, 14336, 128256)).parameters(), 8'030'261'248);
  auto small = llama(16, 2048, 32, 8, 8192, 128256);  // Llama 3.2 1B
  small.tied_embeddings = true;
  EXPECT_EQ(describe(small).parameters(), 1'235'814'400);
}

TEST(LlamaArchitecture, FlopsCountThreeProductsOfTheFeedForward) {
  const auto a = describe(llama(2, 24, 6, 3, 40, 100));
  const double attention = 24 * 24 * 2 + 2 * 12 * 24;  // queries and output, keys and values
  const double n = 2 * (attention + 3 * 40 * 24) + 100 * 24;
  EXPECT_EQ(static_cast<double>(a.layer_parameters()) + a.head_products(), n);
  EXPECT_DOUBLE_EQ(a.model_flops_per_token(), 6 * n + 6.0 * 2 * 24 * 16);
}

TEST(LlamaArchitecture, MatricesAloneDecayAndOutputsBeginSmaller) {
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

/// Query heads stay with the keys and values that they use, however these are cut.
TEST(LlamaArchitecture, TensorRanksHoldWholeGroupsOfHeads) {
  const auto a = describe(llama(1, 72, 18, 6, 40, 100));
  std::map<std::string, std::size_t> number;
  for (std::size_t i = 0; i < a.arrays.size(); ++i) number[a.arrays[i].name] = i;
  for (const int tensor : {1, 2, 3, 4, 5, 6}) {
    std::int64_t heads = 0;
    for (int rank = 0; rank < tensor; ++rank) {
      const Shard shard = make_shard(a, 1, 1, 0, tensor, rank);
      std::map<std::size_t, LocalArray> local;
      for (const auto& array : local_arrays(a, shard)) local[array.number] = array;
      const auto& query = local.at(number.at("layers.0.attention.query"));
      const auto& key_value = local.at(number.at("layers.0.attention.key_value"));
      const auto& output = local.at(number.at("layers.0.attention.output"));
      EXPECT_EQ(query.offset[0], 3 * key_value.offset[1]);
      EXPECT_EQ(query.extent[0], 3 * key_value.extent[1]);
      EXPECT_EQ(output.offset[1], query.offset[0]);
      EXPECT_EQ(output.extent[1], query.extent[0]);
      EXPECT_EQ(query.offset[0], heads);
      heads = query.offset[0] + query.extent[0];
      const LocalSizes sizes = local_sizes(a.model, shard, 1, 16, false);
      EXPECT_EQ(sizes.heads, query.extent[0]);
      EXPECT_EQ(sizes.key_value_heads, key_value.extent[1]);
      EXPECT_EQ(sizes.inner, 2 * sizes.feed_forward);
    }
    EXPECT_EQ(heads, 18);
  }
}

}  // namespace
}  // namespace trireme::architecture
