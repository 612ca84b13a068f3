#include <trireme/base/check.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/deck/parallel_checks.hpp>
#include <trireme/plan/search.hpp>

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "plan/deck_with.hpp"
#include "plan/machines.hpp"

/// Every choice has these properties: the layout resolves for the ranks, and fixed keys keep their
/// values.
namespace trireme::plan {
namespace {

using testing::deck_with;

deck::Deck chosen_for(std::int64_t ranks, std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(), "parallel.layout=auto");
  deck::Deck deck = deck_with("", overrides);
  choose_layout(deck, ranks, testing::installation(DeviceKind::host));
  return deck;
}

TEST(AutoLayout, ResolvesForTheRanks) {
  for (const std::int64_t ranks : {1, 2, 4, 8, 16, 32}) {
    deck::Deck deck = chosen_for(ranks);
    const deck::ParallelConfig& p = deck.config.parallel;
    EXPECT_EQ(p.tensor * p.pipeline * p.data, ranks);
    EXPECT_EQ(p.layout, LayoutMode::given);
    EXPECT_LE(p.pipeline * p.chunks, deck.config.model.layers);
    EXPECT_FALSE(deck.layout_reason.empty());
    deck::resolve_parallel(deck, ranks);
  }
}

TEST(AutoLayout, KeepsFixedKeys) {
  for (const auto& [fixed, expected] : std::vector<std::pair<std::string, std::string>>{
           {"parallel.tensor=2", "parallel.tensor=2"},
           {"parallel.pipeline=2", "parallel.pipeline=2"},
           {"parallel.data=2", "parallel.data=2"},
           {"parallel.schedule=gpipe", "parallel.schedule=\"gpipe\""},
           {"parallel.sequence_parallel=true", "parallel.sequence_parallel=true"},
           {"parallel.recompute=full", "parallel.recompute=\"full\""},
           {"parallel.shard=optimizer", "parallel.shard=\"optimizer\""},
           {"batch.micro=1", "batch.micro=1"}}) {
    const deck::Deck deck = chosen_for(4, {fixed});
    const auto overrides = deck::layout_overrides(deck);
    EXPECT_NE(std::ranges::find(overrides, expected), overrides.end()) << fixed;
  }
}

TEST(AutoLayout, IsDeterministic) {
  EXPECT_EQ(deck::layout_overrides(chosen_for(8)), deck::layout_overrides(chosen_for(8)));
}

TEST(AutoLayout, RejectsRanksWithoutALayout) {
  EXPECT_THROW(chosen_for(7), UsageError);
  EXPECT_THROW(chosen_for(4, {"parallel.tensor=3"}), UsageError);
}

}  // namespace
}  // namespace trireme::plan
