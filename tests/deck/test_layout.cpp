#include <trireme/deck/layout.hpp>
#include <trireme/deck/parallel_checks.hpp>

#include <gtest/gtest.h>

#include "deck/example.hpp"

/// layout = "auto": fixed and open keys, possible axes, and the errors.
namespace trireme::deck {
namespace {

using Words = std::vector<std::string>;

/// The example without micro: 2 layers, 4 heads, a global batch of 12.
Deck automatic(Words overrides = {}) {
  overrides.insert(overrides.begin(), "parallel.layout=auto");
  return parse_deck(replaced(example, "micro = 2\n", ""), "a.toml", overrides);
}

std::string mistake(Words overrides) {
  overrides.insert(overrides.begin(), "parallel.layout=auto");
  return mistakes_of(replaced(example, "micro = 2\n", ""), overrides);
}

std::string layout_refusal(std::int64_t ranks, const Words& overrides = {}) {
  try {
    expect_layout(automatic(overrides), ranks);
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

TEST(Layout, KeysOfTheDeckAreFixed) {
  EXPECT_TRUE(fixed_keys(automatic()).empty());
  EXPECT_EQ(fixed_keys(automatic({"parallel.tensor=1", "parallel.recompute=full",
                                  "parallel.offload=both", "batch.micro=3"})),
            (Words{"parallel.tensor", "parallel.recompute", "batch.micro"}));
  EXPECT_TRUE(fixed_keys(automatic({"parallel.data=0"})).empty()) << "0 means the remaining ranks";
}

TEST(Layout, MicroIsOptionalOnlyWithAutomaticLayouts) {
  EXPECT_EQ(automatic().config.batch.micro, 1);
  const std::string message = mistakes_of(replaced(example, "micro = 2\n", ""));
  expect_contains(message, "a.toml: [batch] micro is missing: expected an integer");
}

TEST(Layout, AxesMultiplyToTheRanksAndDivideTheBatch) {
  for (std::int64_t ranks = 1; ranks <= 48; ++ranks)
    for (const Words& fixed :
         {Words{}, Words{"parallel.tensor=2"}, Words{"parallel.pipeline=3"}, Words{"batch.micro=2"},
          Words{"parallel.data=4"}, Words{"parallel.chunks=2", "parallel.schedule=interleaved"}}) {
      const Deck deck = automatic(fixed);
      for (const Axes& axes : possible_axes(deck, ranks)) {
        Deck chosen = deck;
        chosen.config.parallel.tensor = axes.tensor;
        chosen.config.parallel.pipeline = axes.pipeline;
        chosen.config.parallel.data = axes.data;
        chosen.config.batch.micro = axes.micro;
        set_layout(chosen, layout_overrides(chosen), "a test");  // changes no fixed key
        resolve_parallel(chosen, ranks);
      }
    }
}

TEST(Layout, FindsAllAxes) {
  EXPECT_EQ(
      possible_axes(automatic(), 4),
      (std::vector<Axes>{{1, 1, 4, 1}, {2, 1, 2, 1}, {1, 2, 2, 1}, {4, 1, 1, 1}, {2, 2, 1, 1}}));
  EXPECT_EQ(possible_axes(automatic({"batch.micro=6"}), 3), (std::vector<Axes>{{3, 1, 1, 6}}));
  EXPECT_EQ(possible_axes(automatic({"model.sequence=2", "parallel.tensor=4"}), 4),
            (std::vector<Axes>{{4, 1, 1, 2}}))
      << "a token for each tensor rank";
  EXPECT_EQ(possible_axes(automatic({"batch.ramp_start=4", "batch.ramp_increment=4",
                                     "batch.ramp_samples=100", "parallel.tensor=1"}),
                          4),
            (std::vector<Axes>{{1, 1, 4, 1}, {1, 2, 2, 1}}));
  EXPECT_EQ(possible_axes(automatic({"parallel.pipeline=7"}), 7), (std::vector<Axes>{{1, 7, 1, 1}}))
      << "a fixed pipeline may have empty stages";
}

TEST(Layout, SuggestsTheNearestRankCountsWithALayout) {
  EXPECT_EQ(
      layout_refusal(7),
      "[parallel] layout = \"auto\" (command line): no layout fits 7 ranks with [batch] global "
      "= 12 (a.toml:7); start 4, 6, 8 or 9 ranks, or choose another global batch")
      << "heads, layers and samples have no factor 7";
  expect_contains(layout_refusal(7, {"parallel.tensor=2", "parallel.pipeline=2"}),
                  "with [batch] global = 12 (a.toml:7), [parallel] tensor = 2 (command line), "
                  "[parallel] pipeline = 2 (command line); start 4, 8 or 12 ranks, or remove keys");
  expect_contains(layout_refusal(1000000007), "start 72 or 96 ranks");
  expect_contains(layout_refusal(3, {"parallel.data=1048576", "batch.global=1048576",
                                     "parallel.tensor=4", "parallel.pipeline=1048576"}),
                  "; remove keys");
}

TEST(Layout, RejectsContradictoryKeys) {
  expect_contains(mistake({"parallel.schedule=file", "parallel.program=p"}),
                  "[parallel] layout = \"auto\" (command line) cannot be combined with [parallel] "
                  "schedule = \"file\" (command line)");
  expect_contains(mistake({"parallel.program=p"}), "[parallel] program = \"p\" (command line)");
  expect_contains(mistake({"parallel.data=5"}),
                  "[parallel] data = 5 (command line) does not divide [batch] global = 12 "
                  "(a.toml:7); choose data of 1, 2, 3, 4, 6 or 12, or leave it out");
  expect_contains(mistake({"parallel.data=6", "batch.micro=4"}),
                  " · [batch] micro = 4 (command line) does not divide");
  expect_contains(mistake({"parallel.chunks=3", "parallel.schedule=1f1b"}), "choose schedule");
  expect_contains(mistake({"parallel.tensor=5"}), "larger than [model] heads = 4");
  expect_contains(mistake({"batch.ramp_start=4"}), "needs [batch] ramp_increment");
  automatic({"parallel.chunks=3"});  // a schedule is chosen that has chunks
  automatic({"parallel.schedule=interleaved"});
}

TEST(Layout, ChosenValuesNameTheirOrigin) {
  Deck deck = automatic({"parallel.tensor=2"});
  set_layout(deck, {"parallel.tensor=2", "parallel.pipeline=2", "parallel.data=3", "batch.micro=4"},
             "the fastest of 3");
  EXPECT_EQ(deck.cite("parallel", "pipeline"), "[parallel] pipeline = 2 (layout = \"auto\")");
  EXPECT_EQ(deck.where("parallel", "tensor"), "command line");
  EXPECT_EQ(fixed_keys(deck), Words{"parallel.tensor"});
  EXPECT_EQ(deck.layout_reason, "the fastest of 3");
  const Deck again = parse_deck(resolved_toml(deck), "run/deck.toml");
  EXPECT_TRUE(differences(again, deck).empty());
  EXPECT_EQ(again.config.parallel.layout, LayoutMode::given);
}

TEST(Layout, ResolvedDeckOmitsOpenKeys) {
  const Deck deck = automatic({"parallel.schedule=interleaved", "parallel.data=0"});
  const std::string text = resolved_toml(deck);
  EXPECT_EQ(text.find("\nchunks"), std::string::npos);
  EXPECT_EQ(text.find("\ndata"), std::string::npos);
  const Deck again = parse_deck(text, "b.toml");
  EXPECT_EQ(again.config, deck.config);
  EXPECT_EQ(fixed_keys(again), Words{"parallel.schedule"});
}

TEST(Layout, ChecksChosenValues) {
  Deck deck = automatic();
  EXPECT_THROW(set_layout(deck, {"parallel.tensor=5"}, "none"), UsageError);
  deck = automatic({"parallel.tensor=2"});
  EXPECT_THROW(set_layout(deck, {"parallel.tensor=4"}, "none"), Error);
  EXPECT_THROW(set_layout(deck, {"parallel.offload=none"}, "none"), Error);
}

}  // namespace
}  // namespace trireme::deck
