#include <trireme/deck/families.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/plan/ranks.hpp>
#include <trireme/plan/recompute.hpp>

#include "support/training.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme::train {
namespace {

using namespace trireme::testing;

class Recomputation : public ::testing::Test {
 protected:
  /// Losses and norms of three steps, computing these tensors again.
  Trace run(const std::vector<std::string>& overrides, const std::vector<std::string>& again) {
    deck::Config config = small_config(8, 2, runtime().ranks(), overrides);
    config.parallel.recompute = again.empty() ? Recompute::none : Recompute::automatic;
    config.parallel.recomputed = again;
    return Rig(config, tokens_).run(1, 3);
  }

  TemporaryFolder folder_;
  data::TokenFile tokens_{write_tokens(folder_, 4000)};
};

/// On one rank, and where tensor ranks recompute together, in whole and in split backward passes.
TEST_F(Recomputation, ChangesNoBitForAnyTensors) {
  const std::string tensor = text("parallel.tensor=", runtime().ranks());
  for (const Family family : {Family::gpt, Family::llama, Family::bert, Family::qwen3})
    for (const char* schedule : {"1f1b", "zb-h1"}) {
      const bool groups = deck::preset(family).positions == Positions::rotary;
      const std::vector<std::string> overrides{
          text("model.family=", name_of(family)),
          "model.heads=6",
          "model.layers=3",
          text("model.key_value_heads=", groups ? 3 : 6),
          text("model.vocabulary=", family == Family::bert ? 261 : 257),
          text("parallel.schedule=", schedule),
          tensor,
          runtime().ranks() > 1 ? "parallel.sequence_parallel=true" : "run.seed=3"};
      const Trace expected = run(overrides, {});
      for (const std::vector<std::string>& again :
           {std::vector<std::string>{"g"},
            {"h"},
            {"qkv"},
            {"o", "logsumexp"},
            {"x1", "y1"},
            {"raw_query_key", "h", "y2"},
            {"attention_norm.inverse", "o"},
            {"y1", "qkv", "o", "logsumexp", "x1", "y2", "h", "g"}}) {
        SCOPED_TRACE(text(name_of(family), ", ", schedule, ", recomputing ", join(again, ", ")));
        EXPECT_EQ(run(overrides, again), expected);
      }
    }
}

deck::Deck deck_with_limit(const std::string& limit, const std::string& more = "") {
  return deck::parse_deck(
      "[run]\nsteps = 20\n[model]\nlayers = 6\nhidden = 256\nheads = 4\nsequence = 128\n"
      "vocabulary = 257\n[batch]\nglobal = 8\nmicro = 4\n[parallel]\ndata = 1\n"
      "recompute = \"auto\"\nmemory_limit = " +
          limit + "\n" + more +
          "[optimizer]\nlearning_rate = 3e-3\n[data]\ntrain = \"unused.h5\"\n",
      "a.toml");
}

Bytes planned(const deck::Deck& deck) {
  const auto a = architecture::describe(deck.config.model);
  const plan::Machine machine;
  const auto needs = plan::training_needs(plan::step_programs(deck.config, machine));
  return plan::device_total(
      plan::most_memory(plan::plan_ranks(deck.config, a, needs, machine)).memory);
}

TEST(AutomaticRecomputation, RecomputesAsLittleAsTheLimitAllows) {
  deck::Deck loose = deck_with_limit("1000000000000");
  plan::resolve_recompute(loose, plan::Machine{});
  EXPECT_TRUE(loose.config.parallel.recomputed.empty());
  const Bytes none = planned(loose);
  deck::Deck full = loose;
  full.config.parallel.recompute = Recompute::full;
  const Bytes least = planned(full);
  ASSERT_LT(least, none);
  std::size_t before = 0;
  for (int percent = 95; percent >= 5; percent -= 10) {
    const Bytes limit = least + (none - least) * percent / 100;
    deck::Deck deck = deck_with_limit(std::to_string(limit));
    plan::resolve_recompute(deck, plan::Machine{});
    EXPECT_LE(planned(deck), limit) << percent << " %";
    EXPECT_GE(deck.config.parallel.recomputed.size(), before) << percent << " %";
    before = deck.config.parallel.recomputed.size();
  }
  // The norms and GELU are cheaper than any product.
  deck::Deck little = deck_with_limit(std::to_string(none - 1));
  plan::resolve_recompute(little, plan::Machine{});
  ASSERT_EQ(little.config.parallel.recomputed.size(), 1u);
  const std::string& first = little.config.parallel.recomputed.front();
  EXPECT_TRUE(first == "g" || first == "y1" || first == "y2") << first;
}

TEST(AutomaticRecomputation, ReportsTheNeededMemoryIfNothingFits) {
  deck::Deck deck = deck_with_limit("1000000");
  try {
    plan::resolve_recompute(deck, plan::Machine{});
    FAIL();
  } catch (const UsageError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("[parallel] memory_limit = 1000000 (a.toml:15)"), std::string::npos)
        << what;
    EXPECT_NE(what.find("choose a smaller batch.micro"), std::string::npos) << what;
  }
}

}  // namespace
}  // namespace trireme::train
