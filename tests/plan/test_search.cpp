#include <trireme/base/check.hpp>
#include <trireme/deck/checks.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/deck/parallel_checks.hpp>
#include <trireme/plan/memory_estimate.hpp>
#include <trireme/plan/search.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plan/deck_with.hpp"
#include "plan/machines.hpp"
#include "plan/speeds.hpp"

namespace trireme::plan {
namespace {

using testing::cluster;
using testing::deck_with;

deck::Deck deck_to_search(std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(),
                   {"parallel.layout=auto", "model.layers=6", "batch.global=24"});
  deck::Deck deck = deck_with("", overrides);
  if (std::ranges::find(overrides, "batch.micro=3") == overrides.end())
    deck.places.erase("batch.micro");  // the example's file sets it
  return deck;
}

std::vector<Layout> all_layouts(const deck::Deck& deck, std::int64_t ranks) {
  std::vector<Layout> all;
  const auto a = architecture::describe(deck.config.model);
  SearchSpace(deck, a, ranks, cluster()).visit([&](const Layout& layout) {
    all.push_back(layout);
  });
  return all;
}

TEST(SearchSpace, ContainsOnlyValidLayouts) {
  const deck::Deck deck = deck_to_search();
  for (const std::int64_t ranks : {1, 2, 6, 8, 12}) {
    const std::vector<Layout> all = all_layouts(deck, ranks);
    ASSERT_FALSE(all.empty());
    for (const Layout& layout : all) {
      deck::Deck one = deck;
      layout.set(one.config);
      const auto overrides = deck::layout_overrides(one);
      one = deck;
      deck::set_layout(one, overrides, "a test");
      deck::resolve_parallel(one, ranks);
      EXPECT_LE(layout.pipeline * layout.chunks, 6);
    }
  }
}

TEST(SearchSpace, ContainsEachLayoutOnce) {
  const std::vector<Layout> all = all_layouts(deck_to_search(), 8);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(std::ranges::count(all, all[i]), 1) << i;
}

/// Every combination of axes that the deck allows is tried.
TEST(SearchSpace, ContainsAllAxes) {
  const deck::Deck deck = deck_to_search();
  std::set<std::vector<std::int64_t>> axes;
  for (const Layout& l : all_layouts(deck, 12)) axes.insert({l.tensor, l.pipeline, l.data});
  std::set<std::vector<std::int64_t>> expected;
  for (const deck::Axes& a : deck::possible_axes(deck, 12))
    expected.insert({a.tensor, a.pipeline, a.data});
  EXPECT_EQ(axes, expected);
}

TEST(SearchSpace, CountsRejectedLayouts) {
  const deck::Deck deck = deck_to_search();
  const auto a = architecture::describe(deck.config.model);
  const Machine machine = cluster();
  SearchSpace space(deck, a, 32, machine);
  space.visit([](const Layout&) {});
  std::set<std::string> reasons;
  for (const Rejection& r : space.rejected()) {
    reasons.insert(r.reason);
    EXPECT_GT(r.layouts, 0);
  }
  EXPECT_TRUE(reasons.contains("more stages than layers"));
  EXPECT_TRUE(reasons.contains("global batch not divisible by data"));
}

/// 6 layers on 2 ranks: 2 chunks have stages of 2 layers, 3 chunks of 1.
TEST(SearchSpace, TriesChunksThatShortenStages) {
  std::set<std::int64_t> chunks;
  for (const Layout& l : all_layouts(deck_to_search({"parallel.pipeline=2"}), 2)) {
    if (l.schedule == ScheduleKind::interleaved) chunks.insert(l.chunks);
    EXPECT_TRUE(schedule::schedule_of(l.schedule).accepts(l.chunks));
  }
  EXPECT_TRUE(chunks.contains(2));
  EXPECT_TRUE(chunks.contains(3));
}

TEST(SearchSpace, KeepsThePartition) {
  std::set<std::pair<std::int64_t, std::int64_t>> found;
  for (const Layout& l : all_layouts(deck_to_search({"parallel.partition=[3, 1, 1, 1]"}), 4))
    found.insert({l.pipeline, l.chunks});
  EXPECT_EQ(found, (std::set<std::pair<std::int64_t, std::int64_t>>{{1, 4}, {2, 2}, {4, 1}}));
}

/// 6 layers: two stages on each of up to three ranks.
TEST(SearchSpace, TriesVSchedulesIfEveryStageHasALayer) {
  std::set<std::pair<ScheduleKind, std::int64_t>> found;
  for (const Layout& l : all_layouts(deck_to_search(), 12))
    if (schedule::schedule_of(l.schedule).placement == StagePlacement::v)
      found.insert({l.schedule, l.pipeline});
  std::set<std::pair<ScheduleKind, std::int64_t>> expected;
  for (const auto kind : {ScheduleKind::zb_v, ScheduleKind::v_half, ScheduleKind::v_min})
    for (const std::int64_t pipeline : {2, 3}) expected.insert({kind, pipeline});
  EXPECT_EQ(found, expected);
}

TEST(SearchSpace, KeepsFixedKeys) {
  const auto all =
      all_layouts(deck_to_search({"parallel.tensor=2", "parallel.recompute=full", "batch.micro=3",
                                  "parallel.chunks=2", "parallel.shard=optimizer"}),
                  8);
  ASSERT_FALSE(all.empty());
  for (const Layout& l : all) {
    EXPECT_EQ(l.tensor, 2);
    EXPECT_EQ(l.micro, 3);
    EXPECT_EQ(l.chunks, 2);
    EXPECT_EQ(l.recompute, Recompute::full);
    EXPECT_EQ(l.shard, Sharding::optimizer);
  }
  for (const Layout& l : all_layouts(deck_to_search({"parallel.schedule=gpipe"}), 8))
    EXPECT_EQ(l.schedule, ScheduleKind::gpipe);
}

/// Gradients are complete after one pass only with one micro-batch on one pipeline rank.
TEST(SearchSpace, DividesStateThatSavesMemory) {
  std::set<Sharding> found;
  for (const Layout& l : all_layouts(deck_to_search(), 12)) {
    found.insert(l.shard);
    const bool one_pass = l.pipeline == 1 && l.micro * l.data == 24;
    EXPECT_TRUE(l.shard != Sharding::gradients || one_pass);
    EXPECT_TRUE(l.shard == Sharding::none || l.data > 1);
    EXPECT_EQ(l.shard_group, 0) << "12 ranks of nodes of 8";
  }
  EXPECT_EQ(found.size(), 4u);
  for (const char* key : {"run.audit_every=5", "model.shared_layers=2"})
    for (const Layout& l : all_layouts(deck_to_search({key}), 12))
      EXPECT_LE(l.shard, Sharding::optimizer) << key;
}

/// Nodes of 8 ranks, of which two make a tensor group: 4 replicas.
TEST(SearchSpace, TriesShardGroupsWithinANode) {
  std::set<std::pair<Sharding, std::int64_t>> found;
  for (const Layout& l :
       all_layouts(deck_to_search({"parallel.tensor=2", "parallel.pipeline=1"}), 16))
    found.insert({l.shard, l.shard_group});
  EXPECT_TRUE(found.contains({Sharding::weights, 4}));
  EXPECT_TRUE(found.contains({Sharding::weights, 0}));
  EXPECT_FALSE(found.contains({Sharding::optimizer, 4})) << "sends more and stores more";
  for (const Layout& l : all_layouts(deck_to_search({"parallel.shard_group=2"}), 16))
    EXPECT_TRUE(l.shard_group == 2 && l.data % 2 == 0);
  for (const Layout& l :
       all_layouts(deck_to_search({"parallel.shard=weights", "parallel.shard_group=0"}), 16))
    EXPECT_EQ(l.shard_group, 0) << "the deck sets it";
}

TEST(Search, DropsSlowerAndLargerLayouts) {
  const SearchResult found =
      search_layouts(deck_to_search(), 16, cluster(), {.best = 1000000, .of_front = 0});
  for (const Candidate& a : found.candidates)
    for (const Candidate& b : found.candidates)
      if (alike_but_shard(a.layout, b.layout) && a.layout.shard < b.layout.shard) {
        EXPECT_TRUE(a.estimate < b.estimate || a.bytes > b.bytes);
        EXPECT_TRUE(b.layout.shard == Sharding::optimizer || a.estimate <= b.estimate);
      }
}

/// Layouts of this deck on 16 ranks differ only in what replicas divide.
deck::Deck deck_of_weights(std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.end(),
                   {"parallel.tensor=1", "parallel.pipeline=1", "parallel.recompute=none",
                    "model.hidden=256", "model.layers=16", "batch.global=16"});
  return deck_to_search(overrides);
}

TEST(Search, ChoosesDividedWeightsOnlyIfNothingElseFits) {
  const auto smallest = [](const char* shard) {
    const SearchResult found =
        search_layouts(deck_of_weights({shard}), 16, cluster(), {.best = 1000000});
    return std::ranges::min_element(found.candidates, {}, &Candidate::bytes)->bytes;
  };
  const Bytes with_optimizer = smallest("parallel.shard=optimizer");
  const Bytes with_gradients = smallest("parallel.shard=gradients");
  ASSERT_LT(with_gradients, with_optimizer);
  ASSERT_LT(smallest("parallel.shard=weights"), with_gradients);
  const auto chosen = [](Bytes limit) {
    return search_layouts(deck_of_weights(), 16, cluster(), {.memory_limit = limit})
        .candidates.front()
        .layout.shard;
  };
  EXPECT_LE(chosen(with_optimizer), Sharding::gradients);
  EXPECT_EQ(chosen(with_gradients), Sharding::gradients);
  EXPECT_EQ(chosen(with_gradients - 1), Sharding::weights);
}

/// No layout that is left out after ranking by the formula is faster by more than a percent.
TEST(Search, FindsTheBestOfAllSimulatedLayouts) {
  const deck::Deck deck = deck_to_search();
  for (const std::int64_t ranks : {4, 12, 16}) {
    const SearchResult some = search_layouts(deck, ranks, cluster(), {.best = 20, .of_front = 0});
    const SearchResult all =
        search_layouts(deck, ranks, cluster(), {.best = 1000000, .of_front = 0});
    EXPECT_EQ(some.candidates.size(), 20u);
    EXPECT_EQ(static_cast<std::int64_t>(all.candidates.size()), all.evaluated);
    EXPECT_LE(some.candidates.front().seconds(), 1.01 * all.candidates.front().seconds()) << ranks;
  }
}

/// With stages of nearly equal costs, zb-v waits a sixth of the time of 1f1b.
TEST(Search, ChoosesAVScheduleIfFaster) {
  const deck::Deck deck = deck_to_search({"parallel.pipeline=2", "parallel.data=1", "batch.micro=3",
                                          "parallel.recompute=none", "model.vocabulary=2"});
  const SearchResult found = search_layouts(deck, 2, cluster(), {.best = 100});
  EXPECT_EQ(found.candidates.front().layout.schedule, ScheduleKind::zb_v);
}

TEST(Search, CandidatesMatchTheirLayouts) {
  const deck::Deck deck = deck_to_search({"precision.compute=bf16"});
  const SearchResult found = search_layouts(deck, 8, cluster(), {.best = 30});
  ASSERT_EQ(found.candidates.size(), 30u);
  for (const Candidate& c : found.candidates) {
    deck::Config config = deck.config;
    c.layout.set(config);
    const Candidate again = simulate_layout(config, cluster(), true);
    EXPECT_EQ(again.layout, c.layout);
    EXPECT_EQ(again.bytes, c.bytes);
    EXPECT_EQ(again.time.seconds, c.time.seconds);
    EXPECT_EQ(again.time.shares, c.time.shares);
    EXPECT_EQ(again.estimate, c.estimate);
  }
  EXPECT_TRUE(std::ranges::is_sorted(found.candidates, {}, &Candidate::seconds));
}

/// Layouts with the same arrays share what is known of them; these do not have the same.
TEST(Search, CandidatesOfDividedWeightsMatchTheirLayouts) {
  Machine machine = cluster();
  machine.network.bandwidth = 1e9;  // for which groups avoid the network
  for (const char* shard : {"parallel.shard=gradients", "parallel.shard=weights"}) {
    const deck::Deck deck = deck_to_search({shard, "parallel.bucket_bytes=65536"});
    const SearchResult found = search_layouts(deck, 16, machine, {.best = 1000000});
    std::set<std::int64_t> groups;
    for (const Candidate& c : found.candidates) {
      deck::Config config = deck.config;
      c.layout.set(config);
      groups.insert(c.layout.shard_group);
      EXPECT_EQ(simulate_layout(config, machine, true).bytes, c.bytes);
    }
    EXPECT_EQ(groups.contains(4), std::string(shard) == "parallel.shard=weights");
  }
}

TEST(Search, ParetoFrontHasNoDominatedLayout) {
  const SearchResult found = search_layouts(deck_to_search(), 12, cluster());
  ASSERT_GT(found.front.size(), 2u);
  EXPECT_EQ(found.front.front().layout, found.candidates.front().layout);
  for (std::size_t i = 1; i < found.front.size(); ++i) {
    EXPECT_GE(found.front[i].seconds(), found.front[i - 1].seconds());
    EXPECT_LT(found.front[i].bytes, found.front[i - 1].bytes);
  }
}

TEST(Search, RejectsLayoutsThatDoNotFit) {
  const deck::Deck deck = deck_to_search();
  const SearchResult free = search_layouts(deck, 8, cluster());
  const Bytes limit =
      free.front.back().bytes + (free.front.front().bytes - free.front.back().bytes) / 4;
  const SearchResult tight = search_layouts(deck, 8, cluster(), {.memory_limit = limit});
  EXPECT_EQ(tight.limit, limit);
  EXPECT_LT(tight.evaluated, free.evaluated);
  for (const Candidate& c : tight.candidates) EXPECT_LE(c.bytes, limit);
  EXPECT_TRUE(std::ranges::any_of(tight.rejected, [](const Rejection& r) {
    return r.reason == "does not fit into the memory" && r.layouts > 0;
  }));
}

std::string layout_error(const deck::Deck& deck, std::int64_t ranks, Bytes limit = 0) {
  try {
    search_layouts(deck, ranks, cluster(), {.memory_limit = limit});
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Search, ErrorsSuggestRemedies) {
  const std::string nowhere = layout_error(deck_to_search(), 8, 100000);
  EXPECT_NE(nowhere.find("no layout of a.toml fits into 97.7 KiB per rank on 8 ranks: the "
                         "smallest needs "),
            std::string::npos)
      << nowhere;
  EXPECT_NE(nowhere.find("use more ranks"), std::string::npos) << nowhere;
  EXPECT_NE(nowhere.find("precision.compute=bf16"), std::string::npos) << nowhere;
  const std::string fixed = layout_error(deck_to_search({"parallel.tensor=2"}), 8, 100000);
  EXPECT_NE(fixed.find("fix fewer keys (parallel.tensor)"), std::string::npos) << fixed;
  const std::string ranks = layout_error(deck_to_search(), 7);
  EXPECT_NE(ranks.find("no layout fits 7 ranks"), std::string::npos) << ranks;
  EXPECT_NE(ranks.find("start 5, 6, 8 or 9 ranks"), std::string::npos) << ranks;
}

TEST(Search, TypicalSpeedsCoverEveryPrecision) {
  for (const DeviceKind kind : {DeviceKind::host, DeviceKind::cuda, DeviceKind::hip}) {
    const Machine machine = with_usual_speeds(testing::installation(kind));
    for (const DType type : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
      deck::PrecisionConfig precision;
      precision.compute = type;
      EXPECT_EQ(machine.time_mistake(precision, 1000), "");
    }
  }
  const Machine known = with_usual_speeds(cluster());
  EXPECT_EQ(known.device.peak_fp32, cluster().device.peak_fp32) << "known speeds stay";
  EXPECT_EQ(known.device.bandwidth, cluster().device.bandwidth);
  EXPECT_EQ(known.node, cluster().node);
  EXPECT_EQ(known.network, cluster().network);
}

TEST(Search, KnownStagesGiveTheSameCosts) {
  deck::Config c = deck_to_search().config;
  Layout{2, 3, 2, 2, 2, ScheduleKind::interleaved}.set(c);
  const auto a = architecture::describe(c.model);
  const Machine machine = cluster();
  const BlockTimes parts = part_times(c, a, false, machine);
  EXPECT_EQ(estimated_seconds(c, step_costs(c, a, parts, machine)),
            estimated_seconds(c, step_costs(c, a, parts, stage_sizes(c, a), machine)));
}

}  // namespace
}  // namespace trireme::plan
