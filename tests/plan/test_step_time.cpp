#include <trireme/plan/program.hpp>
#include <trireme/plan/step_time.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "plan/example.hpp"
#include "plan/speeds.hpp"

namespace trireme::plan {
namespace {

using testing::Axes;
using testing::config_of;
using testing::costs_of;
using testing::predicted;
using testing::schedules_in_order;

struct DeckOnCluster {
  deck::Config config;
  Machine machine;
};

/// A random deck that runs, on a cluster of GPUs.
DeckOnCluster random_layout(std::mt19937& random) {
  const auto one_of = [&](auto... values) {
    const std::array all{values...};
    return all[std::uniform_int_distribution<std::size_t>(0, all.size() - 1)(random)];
  };
  Axes axes{.tensor = one_of(1, 2, 4),
            .pipeline = one_of(1, 2, 4),
            .data = one_of(1, 2, 8),
            .sequence_parallel = one_of(0, 1) == 1,
            .tied = one_of(0, 1) == 1};
  const ScheduleKind schedule = one_of(schedules_in_order[0], schedules_in_order[1],
                                       schedules_in_order[2], schedules_in_order[3]);
  if (schedule == ScheduleKind::interleaved && axes.pipeline > 1) axes.chunks = 2;
  DeckOnCluster out{config_of(axes), testing::cluster()};
  deck::Config& c = out.config;
  if (axes.pipeline > 1) c.parallel.schedule = schedule;
  c.model.layers = 8;
  c.model.hidden = 512;
  c.model.feed_forward = 2048;
  c.model.vocabulary = 4096;
  c.model.dropout = one_of(0.0, 0.1);
  c.precision.compute = one_of(DType::bf16, DType::fp32);
  c.batch.global = c.batch.micro * axes.data * one_of(1, 4, 6, 16);
  c.parallel.recompute = one_of(Recompute::none, Recompute::selective, Recompute::full);
  c.parallel.shard = one_of(0, 1) == 1 ? Sharding::optimizer : Sharding::none;
  Machine& m = out.machine;
  m.software.second_axis = one_of(SecondAxis::data, SecondAxis::pipeline);
  m.software.pipeline_overlap = one_of(0.0, 0.5, 1.0);
  m.software.gradient_overlap = one_of(0.0, 0.5);
  m.software.tensor_overlap = one_of(0.0, 0.5);
  m.software.host_per_layer = one_of(0.0, 1e-4);
  m.software.scatter_gather = one_of(0, 1) == 1;
  return out;
}

TEST(StepTime, EstimateMatchesTheProgramsOfDecks) {
  std::mt19937 random(3);
  double worst = 0, sum = 0;
  constexpr int cases = 200;
  for (int n = 0; n < cases; ++n) {
    const DeckOnCluster l = random_layout(random);
    const double ratio = estimated_seconds(l.config, costs_of(l.config, l.machine)) /
                         predicted(l.config, l.machine).seconds;
    worst = std::max(worst, std::abs(ratio - 1));
    sum += std::abs(ratio - 1);
  }
  EXPECT_LT(worst, 0.08);
  EXPECT_LT(sum / cases, 0.015);
}

TEST(StepTime, SharesSumToTheStep) {
  std::mt19937 random(7);
  for (int n = 0; n < 200; ++n) {
    const DeckOnCluster l = random_layout(random);
    const StepTime t = predicted(l.config, l.machine);
    EXPECT_NEAR(std::accumulate(t.shares.begin(), t.shares.end(), 0.0), t.seconds,
                1e-9 * t.seconds);
    for (std::size_t i = 0; i < causes; ++i)
      EXPECT_GE(t.shares[i], -1e-9 * t.seconds) << name_of(static_cast<Cause>(i));
    const deck::ParallelConfig& p = l.config.parallel;
    if (p.pipeline == 1) {
      EXPECT_NEAR(t.of(Cause::bubble), 0, 1e-9 * t.seconds);
    }
    EXPECT_EQ(t.of(Cause::tensor) > 0, p.tensor > 1);
    EXPECT_TRUE(p.data == 1 || t.of(Cause::data) > 0);
    if (l.machine.software.pipeline_overlap == 1) {
      EXPECT_EQ(t.of(Cause::pipeline), 0);
    }
  }
}

TEST(StepTime, FasterMachinesNeverTakeLonger) {
  std::mt19937 random(23);
  std::array<int, 11> shorter{};
  for (int n = 0; n < 150; ++n) {
    const DeckOnCluster l = random_layout(random);
    const Seconds time = predicted(l.config, l.machine).seconds;
    const Seconds estimate = estimated_seconds(l.config, costs_of(l.config, l.machine));
    for (std::size_t i = 0; i < shorter.size(); ++i) {
      Machine m = l.machine;
      const std::array more{&m.device.peak_bf16,           &m.device.peak_fp32,
                            &m.device.bandwidth,           &m.node.link_bandwidth,
                            &m.network.bandwidth,          &m.network.efficiency,
                            &m.network.gradient_efficiency};
      const std::array less{&m.device.launch, &m.node.link_latency, &m.network.latency,
                            &m.software.host_per_layer};
      if (i < more.size())
        *more[i] *= 1.7;
      else
        *less[i - more.size()] *= 0.3;
      const Seconds faster = predicted(l.config, m).seconds;
      EXPECT_LE(faster, time * (1 + 1e-12)) << i;
      EXPECT_LE(estimated_seconds(l.config, costs_of(l.config, m)), estimate * (1 + 1e-12)) << i;
      shorter[i] += faster < time * (1 - 1e-9) ? 1 : 0;
    }
  }
  for (std::size_t i = 0; i < shorter.size(); ++i) EXPECT_GT(shorter[i], 0) << i;
}

TEST(StepTime, OverlapHidesItsShare) {
  deck::Config c = config_of({.tensor = 2, .pipeline = 4, .data = 8});
  Machine m = testing::cluster();
  m.software.pipeline_overlap = 0;
  const StepCosts shown = costs_of(c, m);
  m.software.gradient_overlap = 0.75;
  m.software.pipeline_overlap = 0.5;
  const StepCosts hidden = costs_of(c, m);
  for (std::size_t s = 0; s < 4; ++s) {
    EXPECT_GT(shown.reductions[s], 0);
    EXPECT_DOUBLE_EQ(hidden.reductions[s], shown.reductions[s] / 4);
    EXPECT_EQ(hidden.activations[s], shown.activations[s]);
  }
  EXPECT_EQ(shown.waiting, 1);
  EXPECT_EQ(hidden.waiting, 0.5);
  const auto a = architecture::describe(c.model);
  const auto program = step_program(c, m);
  const StepTime t = simulated_time(c, a, hidden, program);
  // The last stage, with the head, is the longest; it sends gradients of 4 micro-batches.
  EXPECT_DOUBLE_EQ(t.of(Cause::pipeline), 4 * 0.5 * hidden.gradients[3]);
  EXPECT_DOUBLE_EQ(t.of(Cause::data), hidden.reductions[3] + hidden.tied);
}

/// Without a cut of the tokens, a rank sends its half of [64, 32] in fp64 and gathers what it
/// receives; without scatter and gather it sends all of them.
TEST(StepTime, StageMessagesAreScatteredAndGathered) {
  deck::Config c = config_of({.tensor = 2, .pipeline = 2});
  Machine m = testing::cluster();
  const auto whole = 64.0 * 32 * 8;
  const StepCosts cut = costs_of(c, m);
  EXPECT_DOUBLE_EQ(cut.activations[0], whole / 2 / 50e9 + 1e-6);
  EXPECT_EQ(cut.activations[1], 0) << "the last stage sends no activations,";
  EXPECT_EQ(cut.gradients[0], 0) << "and the first no gradients";
  EXPECT_DOUBLE_EQ(cut.gradients[1], whole / 2 / 50e9 + 1e-6);
  m.software.scatter_gather = false;
  const StepCosts all = costs_of(c, m);
  EXPECT_DOUBLE_EQ(all.activations[0], whole / 50e9 + 1e-6);
  const Seconds gather = whole / 2 / 50e9 + 1e-6 * 5 / 2;
  EXPECT_NEAR(cut.stages[1].forward.tensor - all.stages[1].forward.tensor, gather, 1e-15);
  EXPECT_NEAR(cut.stages[0].backward.tensor - all.stages[0].backward.tensor, gather, 1e-15);
  EXPECT_EQ(cut.stages[0].forward.tensor, all.stages[0].forward.tensor);
  EXPECT_EQ(cut.stages[1].backward.tensor, all.stages[1].backward.tensor);
  c.parallel.sequence_parallel = true;
  const StepCosts sequence = costs_of(c, m);
  EXPECT_DOUBLE_EQ(sequence.activations[0], whole / 2 / 50e9 + 1e-6);
}

/// gpt: 12 · 32² + 13 · 32 parameters per layer, (96 + 32) · 32 of the embedding, 2 · 32 of the
/// last norm.
TEST(StepTime, ReductionsAndUpdatesMoveAllParameters) {
  deck::Config c = config_of({.data = 4});
  c.precision.compute = DType::bf16;
  Machine m = testing::cluster();
  const double parameters = 4 * (12 * 32 * 32 + 13 * 32) + (96 + 32) * 32 + 2 * 32;
  EXPECT_EQ(static_cast<double>(architecture::describe(c.model).parameters()), parameters);
  const Seconds latency = 3 * 1e-6 * 7 / 2 / 3;
  const StepCosts whole = costs_of(c, m);
  EXPECT_DOUBLE_EQ(whole.reductions[0], 2 * (0.75 * parameters * 4 / 50e9 + latency));
  // Two states and the weights of 4 bytes read and written, the gradient read twice, 2 bytes of
  // rounded weights written.
  EXPECT_DOUBLE_EQ(whole.updates[0], parameters * (3 * 2 * 4 + 2 * 4 + 2) / 5e11 + 1e-6);
  EXPECT_EQ(whole.gathers[0], 0);
  c.parallel.shard = Sharding::optimizer;
  const StepCosts parts = costs_of(c, m);
  EXPECT_DOUBLE_EQ(parts.reductions[0], 0.75 * parameters * 4 / 50e9 + latency);
  EXPECT_DOUBLE_EQ(parts.updates[0], parameters / 4 * 34 / 5e11 + 1e-6);
  EXPECT_DOUBLE_EQ(parts.gathers[0], 0.75 * parameters * 2 / 50e9 + latency);
  const StepTime t = predicted(c, m);
  EXPECT_DOUBLE_EQ(t.of(Cause::data), parts.reductions[0] + parts.gathers[0]);
  EXPECT_DOUBLE_EQ(t.of(Cause::optimizer), parts.updates[0] + parts.norm);
  m.software.optimizer_bytes = 68;
  m.software.gradient_bytes = 2;
  const StepCosts given = costs_of(c, m);
  EXPECT_DOUBLE_EQ(given.updates[0] - 1e-6, 2 * (parts.updates[0] - 1e-6));
  EXPECT_DOUBLE_EQ(given.reductions[0] - latency, (parts.reductions[0] - latency) / 2);
}

TEST(StepTime, StagesSumToAllParametersPlusASecondTable) {
  Machine m = testing::cluster();
  m.device.launch = m.node.link_latency = 0;
  const auto updates = [&](const Axes& axes) {
    const StepCosts costs = costs_of(config_of(axes), m);
    return std::accumulate(costs.updates.begin(), costs.updates.end(), 0.0);
  };
  const double table = 96 * 32 * (3 * 2 * 8 + 2 * 8) / 5e11;
  EXPECT_NEAR(updates({.pipeline = 4}) - updates({}), table, 1e-15);
  EXPECT_NEAR(updates({.pipeline = 4, .tied = false}), updates({.tied = false}), 1e-15);
  EXPECT_NEAR(updates({.pipeline = 2, .chunks = 2}) - updates({}), table, 1e-15);
  EXPECT_NEAR(updates({.tied = false}) - updates({}), table, 1e-15);
  EXPECT_GT(costs_of(config_of({.pipeline = 4}), m).tied, 0);
  EXPECT_EQ(costs_of(config_of({}), m).tied, 0);
  EXPECT_EQ(costs_of(config_of({.pipeline = 4, .tied = false}), m).tied, 0);
}

TEST(StepTime, RanksShareFewProcessors) {
  Machine m = testing::cluster();
  const deck::Config tensor = config_of({.tensor = 4});
  const StepTime alone = predicted(tensor, m);
  m.node.processors = 2;
  const StepTime turns = predicted(tensor, m);
  EXPECT_DOUBLE_EQ(costs_of(tensor, m).crowding, 1);
  EXPECT_DOUBLE_EQ(turns.of(Cause::compute), 2 * alone.of(Cause::compute));
  m.node.processors = 4;
  EXPECT_EQ(predicted(tensor, m).seconds, alone.seconds) << "enough of them";
  // Stages compute in turns: the bubble of 4 ranks on one processor holds the other ranks' work.
  m.node.processors = 1;
  const deck::Config pipeline = config_of({.pipeline = 4});
  const StepCosts costs = costs_of(pipeline, m);
  EXPECT_EQ(costs.crowding, 4);
  Seconds work = 0;
  for (const BlockTime& stage : costs.stages)
    work += 4 * (stage.forward.total() + stage.backward.total());
  const StepTime shared = predicted(pipeline, m);
  EXPECT_GE(shared.seconds, work);
  EXPECT_LT(shared.seconds, 1.1 * work);
  EXPECT_GE(estimated_seconds(pipeline, costs), work);
  EXPECT_NEAR(std::accumulate(shared.shares.begin(), shared.shares.end(), 0.0), shared.seconds,
              1e-12);
}

TEST(StepTime, HardwareFlopsIncludeRecomputation) {
  const Machine m = testing::cluster();
  deck::Config c = config_of({.pipeline = 2});
  const double tokens = 8 * 32;
  const auto a = architecture::describe(c.model);
  const StepTime none = predicted(c, m);
  EXPECT_DOUBLE_EQ(none.model_flops, a.model_flops_per_token() * tokens);
  EXPECT_EQ(none.hardware_flops, none.model_flops);
  c.parallel.recompute = Recompute::full;
  const StepTime full = predicted(c, m);
  EXPECT_EQ(full.model_flops, none.model_flops);
  // All but the product that ends a layer: 8 of 12 · D² elements, and attention.
  const double again = 2.0 * (8 * 32 * 32 + 32 * 32);
  EXPECT_DOUBLE_EQ(full.hardware_flops - full.model_flops, 4 * again * tokens);
  c.parallel.schedule = ScheduleKind::zb_h1;
  EXPECT_GE(predicted(c, m).hardware_flops, full.hardware_flops);
}

}  // namespace
}  // namespace trireme::plan
