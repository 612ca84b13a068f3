#include <trireme/checkpoint/writer.hpp>
#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/lower.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/fence.hpp>
#include <trireme/train/saver.hpp>

#include "support/source_folder.hpp"
#include "support/training.hpp"

#include <gtest/gtest.h>

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::train {
namespace {

using namespace trireme::testing;

class Training : public ::testing::Test {
 protected:
  // Each rank makes a file of its own: the content is the same.
  TemporaryFolder folder_;
  data::TokenFile tokens_{write_tokens(folder_, 20000)};
};

std::vector<double> golden_losses() {
  std::vector<double> values;
  std::ifstream in(golden_file("training_fp64/losses.txt"));
  for (double value = 0; in >> value;) values.push_back(value);
  return values;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                 double relative) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], relative * expected[i]) << "step " << i + 1;
}

/// Sums in another order differ by rounding errors of some ε = 2.2e-16 relative to the gradient's
/// norm, which 20 steps carry on: the design promises 1e-12.
constexpr double tolerance = 1e-12;

/// Kept losses: a change that moves them changes the numerics. Printed by TRIREME_PRINT_GOLDEN=1.
TEST_F(Training, GoldenLossesAreUnchanged) {
  const auto self = grid::Communicator::self();
  const Trace trace = Rig(small_config(8, 2, 1), tokens_, *self).run(1, 20);
  if (std::getenv("TRIREME_PRINT_GOLDEN") != nullptr)
    for (const double loss : trace.losses) std::printf("%.9g\n", loss);
  expect_near(trace.losses, golden_losses(), 5e-9);  // written with nine digits
}

TEST_F(Training, LossesAndNormsDoNotDependOnRanksOrMicroBatch) {
  const std::int64_t ranks = runtime().ranks();
  const std::int64_t global = ranks == 3 ? 12 : 8;
  const auto self = grid::Communicator::self();
  const Trace alone = Rig(small_config(global, 1, 1), tokens_, *self).run(1, 20);
  int compared = 0;
  for (const std::int64_t micro : {1, 2, 4, 8}) {
    if (global % (micro * ranks) != 0) continue;
    SCOPED_TRACE(text("micro-batch ", micro));
    const Trace trace = Rig(small_config(global, micro, ranks), tokens_).run(1, 20);
    expect_near(trace.losses, alone.losses, tolerance);
    expect_near(trace.norms, alone.norms, 1e-10);  // the promise for norms
    ++compared;
  }
  EXPECT_GE(compared, 1);
}

TEST_F(Training, SchedulesGiveTheSameBits) {
  const std::int64_t ranks = runtime().ranks();
  const std::int64_t global = 4 * ranks;
  const Trace a =
      Rig(small_config(global, 1, ranks, {"parallel.schedule=gpipe"}), tokens_).run(1, 5);
  const Trace b =
      Rig(small_config(global, 1, ranks, {"parallel.schedule=1f1b"}), tokens_).run(1, 5);
  EXPECT_EQ(a, b);
}

TEST_F(Training, RepeatedRunsGiveTheSameBits) {
  const std::int64_t ranks = runtime().ranks();
  for (const char* compute : {"fp32", "fp64"}) {
    const auto config = small_config(2 * ranks, 1, ranks, {text("precision.compute=", compute)});
    EXPECT_EQ(Rig(config, tokens_).run(1, 10), Rig(config, tokens_).run(1, 10)) << compute;
  }
}

TEST_F(Training, SmallBucketsGiveTheSameLosses) {
  const std::int64_t ranks = runtime().ranks();
  const Trace a = Rig(small_config(2 * ranks, 1, ranks), tokens_).run(1, 5);
  const Trace b =
      Rig(small_config(2 * ranks, 1, ranks, {"parallel.bucket_bytes=1024"}), tokens_).run(1, 5);
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    EXPECT_NEAR(a.losses[i], b.losses[i], tolerance * a.losses[i]);
}

TEST_F(Training, RestartContinuesBitForBit) {
  const std::int64_t ranks = runtime().ranks();
  const auto config = small_config(2 * ranks, 1, ranks);
  Rig whole(config, tokens_);
  whole.run(1, 6);
  const Trace expected = whole.run(7, 12);

  Rig first(config, tokens_);
  first.run(1, 6);
  const std::string folder =
      runtime().world().broadcast(folder_.file("checkpoints"), 0, "rank 0's folder");
  deck::CheckpointConfig where;
  where.directory = folder;
  Saver(where, runtime().world(), *first.engine, 0).save({6, 12 * ranks, "# deck"}, false);

  Rig second(config, tokens_);
  second.engine->load(checkpoint::Reader(folder + "/step_00000006"));
  EXPECT_EQ(second.run(7, 12), expected);
}

TEST_F(Training, LossFallsBelowTheUniformLoss) {
  const std::int64_t ranks = runtime().ranks();
  const Trace trace =
      Rig(small_config(4 * ranks, 2, ranks, {"model.dropout=0"}), tokens_).run(1, 20);
  EXPECT_NEAR(trace.losses.front(), std::log(257.0), 0.1);
  EXPECT_LT(trace.losses.back(), 4.0);
}

TEST_F(Training, LaterStepsAllocateNothingAndWaitTwicePerResult) {
  const std::int64_t ranks = runtime().ranks();
  Rig rig(small_config(2 * ranks, 1, ranks), tokens_);
  rig.run(1, 1);
  static std::int64_t kokkos_allocations = 0;
  kokkos_allocations = 0;
  Kokkos::Tools::Experimental::set_allocate_data_callback(
      [](const Kokkos_Profiling_SpaceHandle, const char*, const void*, const uint64_t) {
        ++kokkos_allocations;
      });
  const std::int64_t arenas = arena_allocation_count();
  const std::int64_t waits = fence_count();
  rig.engine->train_step(2, rig.samples);
  const std::int64_t waits_of_result = fence_count();
  if (exec_on_host) {  // devices wait for buffers of tokens, and for messages
    EXPECT_EQ(waits_of_result - waits, 0) << "a step queues its work and waits for nothing";
  }
  rig.engine->result();
  EXPECT_EQ(fence_count() - waits_of_result, 2) << "loss and norm";
  EXPECT_EQ(arena_allocation_count(), arenas);
  EXPECT_EQ(kokkos_allocations, 0);
  Kokkos::Tools::Experimental::set_allocate_data_callback(nullptr);
}

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)

/// What the operating system had to do for this process so far.
struct Upkeep {
  std::int64_t faults;  ///< pages that were mapped when they were touched
  std::int64_t heap;    ///< bytes in use, of what malloc gave
};

Upkeep upkeep() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const struct mallinfo2 heap = mallinfo2();
  return {usage.ru_minflt, static_cast<std::int64_t>(heap.uordblks + heap.hblkhd)};
}

TEST_F(Training, LaterStepsTouchNoNewPageAndKeepTheHeap) {
  if (!exec_on_host) GTEST_SKIP() << "a device's driver has pages of its own";
  const std::int64_t ranks = runtime().ranks();
  for (const char* precision : {"precision.compute=fp32", "precision.compute=bf16"}) {
    // Large enough that libraries ask for more scratch memory than malloc keeps by itself.
    Rig rig(small_config(4 * ranks, 2, ranks,
                         {precision, "model.hidden=192", "model.feed_forward=768",
                          "model.sequence=64", "model.vocabulary=2048"}),
            tokens_);
    rig.run(1, 2);
    // Another process, or the kernel itself, may take a page from us: what steps cost would show in
    // every one of these windows.
    std::int64_t least_faults = std::numeric_limits<std::int64_t>::max();
    std::int64_t least_growth = std::numeric_limits<std::int64_t>::max();
    for (int window = 0; window < 4; ++window) {
      const Upkeep before = upkeep();
      rig.run(3 + 3 * window, 5 + 3 * window);
      const Upkeep after = upkeep();
      least_faults = std::min(least_faults, after.faults - before.faults);
      least_growth = std::min(least_growth, after.heap - before.heap);
    }
    EXPECT_EQ(least_faults, 0) << precision;
    EXPECT_LE(least_growth, 0) << precision;
  }
}

#endif

TEST_F(Training, EvaluationDoesNotDependOnRanksOrMicroBatch) {
  const std::int64_t ranks = runtime().ranks();
  const data::Windows windows(tokens_, 23);
  const std::vector<std::int32_t> bytes(257, 1);
  std::vector<double> nats;
  for (const std::int64_t micro : {1, 3, 4}) {
    Rig rig(small_config(micro * ranks, micro, ranks), tokens_);
    const Evaluation e = rig.engine->evaluate(windows, 37, bytes);
    ASSERT_EQ(e.losses.size(), 1u);
    EXPECT_EQ(e.tokens().name, "loss");
    EXPECT_EQ(e.tokens().count, 37 * 23);
    EXPECT_EQ(e.bytes, e.tokens().count);
    nats.push_back(e.tokens().nats);
  }
  EXPECT_NEAR(nats[0], nats[1], 1e-12 * nats[0]);
  EXPECT_NEAR(nats[0], nats[2], 1e-12 * nats[0]);
  EXPECT_NEAR(nats[0] / (37 * 23), std::log(257.0), 0.1);
}

}  // namespace
}  // namespace trireme::train
