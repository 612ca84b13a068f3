#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/placement.hpp>
#include <trireme/architecture/rank_sizes.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/deck/families.hpp>

#include <gtest/gtest.h>

namespace trireme::architecture {
namespace {

deck::ModelConfig bert(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                       std::int64_t sequence, std::int64_t vocabulary) {
  deck::ModelConfig m;
  deck::set_family(m, Family::bert);
  m.layers = layers;
  m.hidden = hidden;
  m.heads = m.key_value_heads = heads;
  m.feed_forward = 4 * hidden;
  m.sequence = sequence;
  m.vocabulary = vocabulary;
  return m;
}

/// transformers: BertForPreTraining(BertConfig()).num_parameters(), and BertForMaskedLM's.
TEST(BertArchitecture, CountsParametersOfPublishedModels) {
  EXPECT_EQ(describe(bert(12, 768, 12, 512, 30522)).parameters(), 110'106'428);
  EXPECT_EQ(describe(bert(24, 1024, 16, 512, 30522)).parameters(), 336'226'108);
  auto masked_only = bert(12, 768, 12, 512, 30522);
  masked_only.sentence_loss = SentenceLoss::none;
  EXPECT_EQ(describe(masked_only).parameters(), 109'514'298);
}

TEST(BertArchitecture, FlopsCountFullAttentionAndMaskedTokensOfTheHead) {
  const auto a = describe(bert(2, 8, 2, 20, 100));  // 3 of 20 tokens are masked
  const double layers = 2 * 12 * 8 * 8;
  const double head = (3 * (100 * 8 + 8 * 8) + 8 * 8 + 2 * 8) / 20.0;
  const double attention = 2 * 2 * 8 * 20;
  EXPECT_EQ(a.layer_products(), layers);
  EXPECT_DOUBLE_EQ(a.head_products(), head);
  EXPECT_DOUBLE_EQ(a.model_flops_per_token(), 6 * (layers + head + attention));
}

TEST(BertArchitecture, RoundsTheNumberOfMaskedTokensWithinTheText) {
  auto m = bert(1, 8, 2, 512, 100);
  EXPECT_EQ(m.targets(), 77);
  m.masked_share = 1e-9;
  EXPECT_EQ(m.targets(), 1);
  m.masked_share = 0.9999;
  EXPECT_EQ(m.targets(), 509);
  EXPECT_EQ(m.text_tokens(), 509);
}

TEST(BertArchitecture, DecaysOnlyMatrices) {
  for (const auto& array : describe(bert(2, 24, 6, 20, 100)).arrays)
    EXPECT_EQ(array.decay, array.initialisation == Initialisation::normal) << array.name;
}

TEST(BertArchitecture, HeadReadsTargetsAndFirstTokens) {
  const auto a = describe(bert(2, 24, 6, 20, 100));
  const RankSizes n = rank_sizes(a.model, whole_model(a), 5, 20, false, host_logit_elements);
  EXPECT_EQ(n.targets, 15);
  EXPECT_EQ(n.pairs, 5);
  EXPECT_EQ(n.head_rows, 20);
  EXPECT_EQ(n.logit_block, 15);
}

}  // namespace
}  // namespace trireme::architecture
