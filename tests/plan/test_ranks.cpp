#include <trireme/plan/program.hpp>
#include <trireme/plan/ranks.hpp>

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/example.hpp"

namespace trireme::plan {
namespace {

using testing::Axes;
using testing::config_of;

/// Short cuts for ranks that are alike change nothing.
TEST(Ranks, AreThoseOfTheirShards) {
  for (const Axes& axes : {Axes{}, Axes{.tensor = 3}, Axes{.tensor = 2, .pipeline = 4},
                           Axes{.pipeline = 3, .data = 2}, Axes{.tensor = 2, .pipeline = 6}}) {
    const auto config = config_of(axes);
    const auto a = architecture::describe(config.model);
    const auto program = step_program(config);
    const auto ranks = plan_ranks(config, a, training_needs({&program, 1}));
    ASSERT_EQ(ranks.size(), static_cast<std::size_t>(axes.pipeline * (axes.tensor > 1 ? 2 : 1)));
    for (const RankPlan& r : ranks) {
      const auto shard = testing::shard_of(config, a, r.pipeline, r.tensor);
      EXPECT_EQ(r.needs.slots, schedule::needs(program, r.pipeline).slots);
      EXPECT_EQ(r.traffic, step_traffic(config, a, shard, r.needs.split_backward));
      EXPECT_EQ(total(r.memory), total(training_memory(config, a, shard, r.needs)));
    }
  }
}

/// 6 heads over 2 on 4 ranks: the second has heads of both groups, and so all keys and values.
TEST(Ranks, OneOfEachKindIsPlannedWhereHeadsAreShared) {
  auto config = config_of({.tensor = 4, .key_value_heads = 2});
  config.model.hidden = 36;
  config.model.heads = 6;
  const auto a = architecture::describe(config.model);
  const auto program = step_program(config);
  const auto ranks = plan_ranks(config, a, program);
  EXPECT_EQ(most_memory(ranks).tensor, 1);
  Bytes most = 0, least = 0, sent = 0;
  for (int t = 0; t < 4; ++t) {
    const auto shard = testing::shard_of(config, a, 0, t);
    const auto& needs = ranks.front().needs;
    const Bytes bytes = total(training_memory(config, a, shard, needs));
    most = std::max(most, bytes);
    least = t == 0 ? bytes : std::min(least, bytes);
    sent = std::max(sent, total(step_traffic(config, a, shard, needs.split_backward)));
  }
  EXPECT_EQ(total(most_memory(ranks).memory), most);
  EXPECT_EQ(total(least_memory(ranks).memory), least);
  EXPECT_EQ(total(most_traffic(ranks).traffic), sent);
}

TEST(Ranks, TheFirstOfAPipelineKeepsMost) {
  const auto config = config_of({.tensor = 2, .pipeline = 4});
  const auto ranks = plan_ranks(config, architecture::describe(config.model),
                                training_needs(step_programs(config)));
  EXPECT_EQ(most_memory(ranks).pipeline, 0);
  EXPECT_EQ(most_memory(ranks).needs.slots, 4);
  EXPECT_EQ(least_memory(ranks).needs.slots, 1);
  EXPECT_GT(total(most_traffic(ranks).traffic), 0);
}

}  // namespace
}  // namespace trireme::plan
