#include <trireme/plan/program.hpp>
#include <trireme/plan/step_time.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "plan/example.hpp"

/// estimated_seconds() against the simulated program.
namespace trireme::plan {
namespace {

using testing::config_of;
using testing::schedules_in_order;

constexpr ScheduleKind in_a_v[]{ScheduleKind::zb_v, ScheduleKind::v_half, ScheduleKind::v_min,
                                ScheduleKind::dualpipe_v};

/// A layer on each stage.
deck::Config pipeline_of(ScheduleKind schedule, std::int64_t ranks, std::int64_t chunks,
                         std::int64_t micro_batches) {
  deck::Config c = config_of({.pipeline = ranks, .chunks = chunks});
  c.model.layers = ranks * chunks;
  c.parallel.schedule = schedule;
  c.batch.global = micro_batches * c.batch.micro;
  return c;
}

struct Lengths {
  Seconds forward = 1;
  Seconds input = 1;
  Seconds weight = 1;
};

/// Costs of passes alone.
StepCosts passes_of(const deck::Config& c, const Lengths& lengths) {
  StepCosts costs;
  BlockTime stage;
  stage.forward.compute = lengths.forward;
  stage.backward.compute = lengths.input + lengths.weight;
  stage.backward_input.compute = lengths.input;
  stage.backward_weight.compute = lengths.weight;
  const auto ranks = static_cast<std::size_t>(c.parallel.pipeline);
  const std::size_t stages = ranks * static_cast<std::size_t>(c.parallel.chunks);
  costs.stages.assign(stages, stage);
  costs.activations.assign(stages, 0);
  costs.gradients.assign(stages, 0);
  costs.reductions.assign(stages, 0);
  costs.updates.assign(ranks, 0);
  costs.gathers.assign(ranks, 0);
  return costs;
}

StepTime simulated(const deck::Config& c, const StepCosts& costs) {
  return simulated_time(c, architecture::describe(c.model), costs, step_program(c, Machine{}));
}

/// (m + p − 1) (f + b) for gpipe and 1f1b, m v (f + b) + (p − 1) (f + b) for v chunks (Narayanan et
/// al. 2021, section 2.2), m (f + b + w) + (p − 1) (f + b − w) for zb-h1 (Qi et al. 2023, 2.3).
TEST(StepEstimate, UniformStagesMatchTheory) {
  const Lengths l{1, 1.25, 0.75};
  const double all = l.forward + l.input + l.weight;
  for (const ScheduleKind schedule : schedules_in_order)
    for (const int p : {1, 2, 3, 5, 8})
      for (const int rounds : {1, 2, 5}) {
        const bool interleaved = schedule == ScheduleKind::interleaved;
        if (interleaved && p == 1) continue;
        const int m = p * rounds, v = interleaved ? 3 : 1;
        const deck::Config c = pipeline_of(schedule, p, v, m);
        const StepCosts costs = passes_of(c, l);
        const double bubble =
            schedule == ScheduleKind::zb_h1 ? l.forward + l.input - l.weight : all;
        const double want = m * v * all + (p - 1) * bubble;
        SCOPED_TRACE(text(name_of(schedule), " p ", p, " m ", m));
        EXPECT_NEAR(simulated(c, costs).seconds, want, 1e-9 * want);
        EXPECT_NEAR(estimated_seconds(c, costs), want, 1e-9 * want);
      }
}

/// generate_v(): what a step is longer than a rank's work.
TEST(StepEstimate, UniformVStagesMatchTheory) {
  for (const ScheduleKind schedule : in_a_v)
    for (const int p : {2, 3, 5, 8})
      for (const int m : {p, 2 * p, 3 * p + 1}) {
        const deck::Config c = pipeline_of(schedule, p, 2, m);
        const StepCosts costs = passes_of(c, {1, 1, 1});
        if (schedule == ScheduleKind::dualpipe_v && m < 2 * p) continue;
        const int longer = schedule == ScheduleKind::v_half  ? 3 * p - 4
                           : schedule == ScheduleKind::v_min ? 4 * p - 5
                                                             : p - 1;
        SCOPED_TRACE(text(name_of(schedule), " p ", p, " m ", m));
        EXPECT_NEAR(simulated(c, costs).seconds, 6 * m + longer, 1e-9 * m);
        EXPECT_NEAR(estimated_seconds(c, costs), 6 * m + longer, 1e-9 * m);
      }
}

/// With fewer micro-batches than ranks, and with an incomplete last round.
TEST(StepEstimate, EstimatesAnyNumberOfMicroBatches) {
  for (const ScheduleKind schedule : schedules_in_order)
    for (const int p : {2, 4, 7})
      for (int m = 1; m <= 3 * p; ++m) {
        const int v = schedule == ScheduleKind::interleaved ? 2 : 1;
        const deck::Config c = pipeline_of(schedule, p, v, m);
        const StepCosts costs = passes_of(c, {1, 1, 1});
        const Seconds want = simulated(c, costs).seconds;
        SCOPED_TRACE(text(name_of(schedule), " p ", p, " m ", m));
        EXPECT_NEAR(estimated_seconds(c, costs), want, 1e-9 * want);
      }
}

/// Messages between equal stages. With 1f1b a rank waits for each way there and back, unless it has
/// sent others before: p ranks pass p micro-batches on in the time of one loop.
TEST(StepEstimate, CountsMessagesOfTheMicroBatchLoop) {
  for (const int p : {2, 5, 12})
    for (const int m : {1, p - 1, p, 2 * p + 1, 40}) {
      const deck::Config c = pipeline_of(ScheduleKind::one_forward_one_backward, p, 1, m);
      StepCosts costs = passes_of(c, {1, 1, 1});
      const Seconds before = simulated(c, costs).seconds;
      for (int s = 0; s < p; ++s) {
        if (s + 1 < p) costs.activations[static_cast<std::size_t>(s)] = 0.1;
        if (s > 0) costs.gradients[static_cast<std::size_t>(s)] = 0.1;
      }
      SCOPED_TRACE(text("p ", p, " m ", m));
      const Seconds with = simulated(c, costs).seconds;
      EXPECT_GE(with - before, (p - 1) * 0.2 - 1e-9);
      EXPECT_NEAR(estimated_seconds(c, costs), with, 0.015 * with);
    }
}

/// Weights' gradients longer than those of inputs: the last rank waits for its first input alone.
TEST(StepEstimate, ZeroBubblesCannotBeNegative) {
  for (const int m : {8, 20}) {
    const deck::Config c = pipeline_of(ScheduleKind::zb_h1, 4, 1, m);
    const StepCosts costs = passes_of(c, {1, 1, 2});
    EXPECT_GE(estimated_seconds(c, costs), m * 4 + 3 * 1 - 1e-9);
    EXPECT_NEAR(estimated_seconds(c, costs), simulated(c, costs).seconds, 0.03 * m * 4);
  }
}

/// Passes that differ by up to 30 %, messages of up to a tenth of a forward pass that are hidden or
/// waited for, and sums and updates as long as a pass.
StepCosts random_costs(const deck::Config& c, std::mt19937& random) {
  std::uniform_real_distribution<double> share(0, 1);
  StepCosts costs = passes_of(c, {});
  const bool spread = share(random) < 0.5;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    BlockTime& stage = costs.stages[s];
    for (PassTime* pass : {&stage.forward, &stage.backward_input, &stage.backward_weight})
      pass->compute = 1 + (spread ? 0.3 * share(random) : 0);
    stage.backward = stage.backward_input;
    stage.backward += stage.backward_weight;
    if (s + 1 < costs.stages.size()) costs.activations[s] = 0.1 * share(random);
    if (s > 0) costs.gradients[s] = 0.1 * share(random);
    costs.reductions[s] = share(random);
  }
  for (Seconds& update : costs.updates) update = share(random);
  for (Seconds& gather : costs.gathers) gather = share(random);
  if (c.parallel.pipeline > 1) costs.tied = share(random);
  costs.norm = 0.01;
  costs.waiting = share(random) < 0.5 ? 0 : share(random);
  return costs;
}

TEST(StepEstimate, MatchesTheSimulatedProgram) {
  std::mt19937 random(11);
  std::uniform_int_distribution<int> ranks(2, 12), chunks(2, 4), micro(1, 60);
  for (const schedule::Schedule& schedule : schedule::schedules()) {
    if (schedule.generate == nullptr || schedule::traits_of(schedule.kind).overlaps_steps) continue;
    double worst = 0, sum = 0;
    constexpr int cases = 120;
    for (int n = 0; n < cases; ++n) {
      const int p = ranks(random);
      const int v = schedule.has_fixed_chunks() ? schedule.least_chunks : chunks(random);
      const deck::Config c = pipeline_of(schedule.kind, p, v, micro(random));
      const StepCosts costs = random_costs(c, random);
      const double ratio = estimated_seconds(c, costs) / simulated(c, costs).seconds;
      EXPECT_LE(least_seconds(c, costs), simulated(c, costs).seconds * (1 + 1e-9));
      worst = std::max(worst, std::abs(ratio - 1));
      sum += std::abs(ratio - 1);
    }
    EXPECT_LT(worst, 0.02) << schedule.word;
    EXPECT_LT(sum / cases, 0.002) << schedule.word;
  }
}

}  // namespace
}  // namespace trireme::plan
