#include <trireme/plan/program.hpp>
#include <trireme/plan/ranks.hpp>

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/example.hpp"
#include "plan/machines.hpp"

namespace trireme::plan {
namespace {

using testing::Axes;
using testing::config_of;
using testing::host_machine;

void expect_ranks_match_their_shards(const deck::Config& config) {
  const deck::ParallelConfig& axes = config.parallel;
  const auto a = architecture::describe(config.model);
  const auto program = step_program(config, host_machine);
  const auto ranks = plan_ranks(config, a, training_needs({&program, 1}), host_machine);
  ASSERT_EQ(ranks.size(), static_cast<std::size_t>(axes.pipeline * (axes.tensor > 1 ? 2 : 1)));
  for (const RankPlan& r : ranks) {
    const auto shard = testing::shard_of(config, a, r.pipeline, r.tensor);
    EXPECT_EQ(r.needs.slots, schedule::needs(program, r.pipeline).slots);
    EXPECT_EQ(r.traffic, step_traffic(config, a, shard, r.needs.split_backward, host_machine));
    EXPECT_EQ(total(r.memory), total(training_memory(config, a, shard, r.needs, host_machine)))
        << "pipeline rank " << r.pipeline;
  }
}

/// Short cuts for ranks that are alike change nothing.
TEST(Ranks, MatchTheirShards) {
  for (const Axes& axes : {Axes{}, Axes{.tensor = 3}, Axes{.tensor = 2, .pipeline = 4},
                           Axes{.pipeline = 3, .data = 2}, Axes{.tensor = 2, .pipeline = 6}})
    expect_ranks_match_their_shards(config_of(axes));
}

TEST(Ranks, WithDifferentKindsOfLayersMatchTheirShards) {
  for (const ScheduleKind schedule : {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward})
    for (const char* frozen : {"layers.2", "layers.3", "layers.1.feed_forward", "layers.0-2"}) {
      SCOPED_TRACE(text(name_of(schedule), ", frozen ", frozen));
      auto config = config_of({.tensor = 2, .pipeline = 4});
      config.model.layers = 8;
      config.model.window = 3;
      config.model.full_attention_every = 3;
      config.model.frozen = {frozen};
      config.parallel.schedule = schedule;
      expect_ranks_match_their_shards(config);
    }
}

/// 6 heads over 2 on 4 ranks: the second has heads of both groups, and so all keys and values.
TEST(Ranks, PlanOneRankPerKindWithSharedHeads) {
  auto config = config_of({.tensor = 4, .key_value_heads = 2});
  config.model.hidden = 36;
  config.model.heads = 6;
  const auto a = architecture::describe(config.model);
  const auto ranks =
      plan_ranks(config, a, training_needs(step_programs(config, host_machine)), host_machine);
  EXPECT_EQ(most_memory(ranks).tensor, 1);
  Bytes most = 0, least = 0, sent = 0;
  for (int t = 0; t < 4; ++t) {
    const auto shard = testing::shard_of(config, a, 0, t);
    const auto& needs = ranks.front().needs;
    const Bytes bytes = total(training_memory(config, a, shard, needs, host_machine));
    most = std::max(most, bytes);
    least = t == 0 ? bytes : std::min(least, bytes);
    sent =
        std::max(sent, total(step_traffic(config, a, shard, needs.split_backward, host_machine)));
  }
  EXPECT_EQ(total(most_memory(ranks).memory), most);
  EXPECT_EQ(total(least_memory(ranks).memory), least);
  EXPECT_EQ(total(most_traffic(ranks).traffic), sent);
}

TEST(Ranks, PeakSumsArraysCopyAndProcess) {
  auto config = config_of({.pipeline = 2});
  config.run.steps = 10;
  config.checkpoint.every = 5;
  const auto plan = [&] {
    return plan_ranks(config, architecture::describe(config.model),
                      training_needs(step_programs(config, host_machine)), host_machine);
  };
  const auto ranks = plan();
  for (const RankPlan& r : ranks) {
    EXPECT_GT(r.parts.checkpoint_copy, 0);
    EXPECT_EQ(r.peak(), total(r.memory) + r.parts.checkpoint_copy + r.parts.reduction + r.process);
    EXPECT_LE(r.peak(), most_at_peak(ranks).peak());
  }
  config.run.watchdog = 600;  // its page tables
  EXPECT_EQ(plan().front().peak() - ranks.front().peak(), 4 << 20);
}

/// What a ramp-up's largest step needs, the first ones need not; an early size can need more of
/// something else.
TEST(Ranks, SeveralProgramsNeedTheMaximumOfEach) {
  auto config = config_of({.pipeline = 4});
  config.parallel.schedule = ScheduleKind::gpipe;
  config.batch.ramp_start = 2;
  config.batch.ramp_increment = 2;
  config.batch.ramp_samples = 100;
  const auto programs = step_programs(config, host_machine);
  ASSERT_EQ(programs.size(), 4u);
  const auto needs = training_needs(programs);
  for (std::size_t i = 0; i < programs.size(); ++i) {
    EXPECT_EQ(programs[i].layout.micro_batches, static_cast<int>(i) + 1);
    for (std::size_t r = 0; r < needs.size(); ++r) {
      const auto one = schedule::needs(programs[i], static_cast<Rank>(r));
      EXPECT_LE(one.slots, needs[r].slots);
      EXPECT_LE(one.send_buffers, needs[r].send_buffers);
      EXPECT_LE(one.received_gradients, needs[r].received_gradients);
    }
  }
  EXPECT_EQ(needs[0].slots, 4) << "gpipe keeps all micro-batches";
  EXPECT_EQ(programs.back(), step_program(config, host_machine));
  auto other = programs;
  other.front().ranks.front().pop_back();
  EXPECT_NE(schedule::fingerprint(programs), schedule::fingerprint(other));
  other = programs;
  other.pop_back();
  EXPECT_NE(schedule::fingerprint(programs), schedule::fingerprint(other));
}

TEST(Ranks, TheFirstPipelineRankNeedsMostMemory) {
  const auto config = config_of({.tensor = 2, .pipeline = 4});
  const auto ranks = plan_ranks(config, architecture::describe(config.model),
                                training_needs(step_programs(config, host_machine)), host_machine);
  EXPECT_EQ(most_memory(ranks).pipeline, 0);
  EXPECT_EQ(most_memory(ranks).needs.slots, 4);
  EXPECT_EQ(least_memory(ranks).needs.slots, 1);
  EXPECT_GT(total(most_traffic(ranks).traffic), 0);
}

}  // namespace
}  // namespace trireme::plan
