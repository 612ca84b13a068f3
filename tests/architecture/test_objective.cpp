#include <trireme/architecture/objective.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>

#include <gtest/gtest.h>

#include <map>
#include <string_view>

#include "architecture/small_model.hpp"

namespace trireme::architecture {
namespace {

std::map<std::string_view, std::int64_t> fields_of(const TrainingObjective& o, bool first,
                                                   bool last) {
  std::map<std::string_view, std::int64_t> fields;
  for (const BatchField& field : o.fields)
    if (field.is_read(first, last)) fields[field.name] = field.per_sample;
  return fields;
}

using Fields = std::map<std::string_view, std::int64_t>;

TEST(Objective, StagesReadTheirOwnFields) {
  const auto next = objective_of(model_of(Family::llama));
  EXPECT_EQ(fields_of(next, true, false), (Fields{{"tokens", 20}}));
  EXPECT_EQ(fields_of(next, false, true), (Fields{{"targets", 20}}));
  EXPECT_EQ(fields_of(next, false, false), Fields{});
  const auto masked = objective_of(model_of(Family::bert));  // 15 % of 20
  EXPECT_EQ(fields_of(masked, true, false), (Fields{{"tokens", 20}, {"segments", 20}}));
  EXPECT_EQ(fields_of(masked, false, true), (Fields{{"targets", 3}, {"rows", 4}, {"pairs", 1}}));
  EXPECT_EQ(masked.numbers_per_sample(), 48);
  const auto alone = objective_of(model_of(Family::bert, SentenceLoss::none));
  EXPECT_EQ(fields_of(alone, true, true),
            (Fields{{"tokens", 20}, {"segments", 20}, {"targets", 3}, {"rows", 3}}));
}

TEST(Objective, FindsFieldsByName) {
  const auto next = objective_of(model_of(Family::gpt));
  EXPECT_EQ(next.fields[next.field("targets")].name, "targets");
  EXPECT_FALSE(next.find("segments").has_value());
  EXPECT_THROW(next.field("segments"), Error);
}

TEST(Objective, LossesHaveTheirNamesInTheMetrics) {
  const auto pairs = objective_of(model_of(Family::bert, SentenceLoss::order)).losses;
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].name, "loss");
  EXPECT_EQ(pairs[0].per_sample, 3);
  EXPECT_EQ(pairs[1].name, "pair_loss");
  EXPECT_EQ(pairs[1].per_sample, 1);
  const auto next = objective_of(model_of(Family::gpt)).losses;
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].name, "loss");
  EXPECT_EQ(next[0].per_sample, 20);
}

TEST(Objective, FurtherTokensHaveFieldsAndLossesOfTheirOwn) {
  deck::ModelConfig m = model_of(Family::llama);
  m.predicts = 3;
  const TrainingObjective o = objective_of(m);
  EXPECT_EQ(fields_of(o, true, false),
            (Fields{{"tokens", 20}, {"tokens_2", 20}, {"tokens_3", 20}}));
  EXPECT_EQ(fields_of(o, false, true),
            (Fields{{"targets", 20}, {"targets_2", 20}, {"targets_3", 20}}));
  ASSERT_EQ(o.losses.size(), 3u);
  EXPECT_EQ(o.head_losses(), 3);
  for (std::size_t n = 2; n <= 3; ++n) {
    const LossTerm& term = o.losses[n - 1];
    EXPECT_EQ(term.name, text("predict_loss_", n));
    EXPECT_TRUE(term.apart);
    EXPECT_EQ(term.count(17, 2), 17) << "of the targets of the next token that count";
  }
  EXPECT_FALSE(o.losses[0].apart);
}

/// The objective is a property: a model of another family may learn masked tokens.
TEST(Objective, DependsOnThePropertyNotTheFamily) {
  deck::ModelConfig m = model_of(Family::llama);
  m.objective = trireme::Objective::masked_token;
  EXPECT_TRUE(objective_of(m).find("segments").has_value());
}

}  // namespace
}  // namespace trireme::architecture
