#include <trireme/deck/batch_schedule.hpp>
#include <trireme/installation/this_installation.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/fence.hpp>

#include "support/training.hpp"

#include <gtest/gtest.h>

#include <cmath>

/// The global batch grows: 12, 12, 24, 36, 36 … samples.
namespace trireme::train {
namespace {

using namespace trireme::testing;

constexpr std::int64_t ramp_steps = 6;

class Ramp : public ::testing::Test {
 protected:
  static deck::Config config(std::int64_t ranks, std::vector<std::string> overrides = {}) {
    for (const char* ramp :
         {"batch.ramp_start=12", "batch.ramp_increment=12", "batch.ramp_samples=36"})
      overrides.emplace_back(ramp);
    return small_config(36, 1, ranks, overrides);
  }

  TemporaryFolder folder_;
  data::TokenFile tokens_{write_tokens(folder_, 20000)};
};

TEST_F(Ramp, EveryLayoutMatchesOneRank) {
  const int ranks = runtime().ranks();
  const auto self = grid::Communicator::self();
  const Trace alone = Rig(config(1), tokens_, *self).run(1, ramp_steps);
  std::vector<std::vector<std::string>> layouts{
      {text("parallel.pipeline=", ranks), "parallel.schedule=gpipe"},
      {text("parallel.pipeline=", ranks), "parallel.schedule=zb-h1"},
      {text("parallel.pipeline=", ranks), "parallel.schedule=interleaved", "parallel.chunks=2"},
      {"parallel.shard=optimizer", "parallel.recompute=full"}};
  if (ranks <= 3) layouts.push_back({text("parallel.tensor=", ranks)});
  if (ranks == 4) layouts.push_back({"parallel.tensor=2", "parallel.pipeline=2"});
  for (const auto& layout : layouts) {
    SCOPED_TRACE(join(layout, " "));
    const Trace trace = Rig(config(ranks, layout), tokens_).run(1, ramp_steps);
    for (std::size_t i = 0; i < ramp_steps; ++i) {
      EXPECT_NEAR(trace.losses[i], alone.losses[i], 1e-10 * alone.losses[i]) << "step " << i + 1;
      EXPECT_NEAR(trace.norms[i], alone.norms[i], 1e-10 * alone.norms[i]) << "step " << i + 1;
    }
  }
}

TEST_F(Ramp, SchedulesGiveTheSameBits) {
  const int ranks = runtime().ranks();
  const Trace a = Rig(config(ranks, {"parallel.schedule=gpipe"}), tokens_).run(1, ramp_steps);
  EXPECT_EQ(Rig(config(ranks, {"parallel.schedule=zb-h1"}), tokens_).run(1, ramp_steps), a);
}

TEST_F(Ramp, StartingAtTheFullBatchChangesNothing) {
  const int ranks = runtime().ranks();
  const Trace none = Rig(small_config(12, 1, ranks), tokens_).run(1, ramp_steps);
  EXPECT_EQ(Rig(small_config(12, 1, ranks, {"batch.ramp_start=12"}), tokens_).run(1, ramp_steps),
            none);
  // Nor do the sizes to come show in the first steps.
  EXPECT_EQ(Rig(config(ranks), tokens_).run(1, 2),
            Rig(small_config(12, 1, ranks), tokens_).run(1, 2));
}

/// With weights that stay, the loss of a step is the mean over its samples, whatever their batch.
TEST_F(Ramp, StepsUseConsecutiveSamples) {
  const int ranks = runtime().ranks();
  const std::vector<std::string> still{"model.dropout=0", "optimizer.learning_rate=1e-30"};
  const std::vector<double> twelve =
      Rig(small_config(12, 1, ranks, still), tokens_).run(1, 14).losses;
  const std::vector<double> found = Rig(config(ranks, still), tokens_).run(1, ramp_steps).losses;
  std::size_t next = 0;
  for (std::size_t step = 0; step < ramp_steps; ++step) {
    const std::size_t twelves = std::vector<std::size_t>{1, 1, 2, 3, 3, 3}[step];
    double sum = 0;
    for (std::size_t i = 0; i < twelves; ++i) sum += twelve[next++];
    EXPECT_NEAR(found[step], sum / static_cast<double>(twelves), 1e-12 * found[step])
        << "step " << step + 1;
  }
  EXPECT_GT(std::abs(twelve[2] - twelve[3]), 1e-6) << "samples differ, or this shows nothing";
}

TEST_F(Ramp, MemoryIsAllocatedOnceForAllSizes) {
  const int ranks = runtime().ranks();
  const deck::Config c = config(ranks, {text("parallel.pipeline=", ranks)});
  Rig rig(c, tokens_);
  const auto architecture = architecture::describe(c.model);
  const int stage = rig.grid().coordinates()[Axis::pipeline];
  const auto needs = plan::training_needs(plan::step_programs(c, installation::this_machine()));
  EXPECT_EQ(plan::total(rig.engine->memory()),
            plan::total(plan::training_memory(
                c, architecture, architecture::make_shard(architecture, c.parallel, stage, 0),
                needs[static_cast<std::size_t>(stage)], installation::this_machine())));
  rig.run(1, 1);
  const std::int64_t arenas = arena_allocation_count();
  const std::int64_t waits = fence_count();
  for (std::int64_t step = 2; step <= ramp_steps; ++step) rig.engine->train_step(step, rig.samples);
  EXPECT_EQ(arena_allocation_count(), arenas);
  if (exec_on_host) {  // devices wait for buffers of tokens, and for messages
    EXPECT_EQ(fence_count(), waits);
  }
}

}  // namespace
}  // namespace trireme::train
