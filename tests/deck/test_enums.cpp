#include <trireme/deck/enums.hpp>

#include "support/words.hpp"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Enums, WordsReadBackToTheirValues) {
  testing::expect_words_read_back<Family>();
  testing::expect_words_read_back<NormKind>();
  testing::expect_words_read_back<NormPlacement>();
  testing::expect_words_read_back<Activation>();
  testing::expect_words_read_back<Biases>();
  testing::expect_words_read_back<Mask>();
  testing::expect_words_read_back<Objective>();
  testing::expect_words_read_back<Packing>();
  testing::expect_words_read_back<SentenceLoss>();
  testing::expect_words_read_back<VocabularyPlacement>();
  testing::expect_words_read_back<LayoutMode>();
  testing::expect_words_read_back<Recompute>();
  testing::expect_words_read_back<Offload>();
  testing::expect_words_read_back<Sharding>();
  testing::expect_words_read_back<TransportKind>();
  testing::expect_words_read_back<OptimizerKind>();
  testing::expect_words_read_back<MuonScale>();
  testing::expect_words_read_back<Moments>();
  testing::expect_words_read_back<LearningRateSchedule>();
  testing::expect_words_read_back<RateScaling>();
  testing::expect_words_read_back<OuterOptimizer>();
  testing::expect_words_read_back<Differences>();
  testing::expect_words_read_back<CooldownShape>();
  testing::expect_words_read_back<RotaryScalingKind>();
  testing::expect_words_read_back<AdapterKind>();
  testing::expect_words_read_back<AdapterScaling>();
  testing::expect_words_read_back<AuditAction>();
  testing::expect_words_read_back<DataStrategy>();
  testing::expect_words_read_back<ServerUpdates>();
}

}  // namespace
}  // namespace trireme
