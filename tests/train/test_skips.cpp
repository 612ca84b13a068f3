#include <trireme/tensor/views.hpp>
#include <trireme/train/saver.hpp>
#include <trireme/train/skips.hpp>

#include "support/training.hpp"
#include "support/whole_arrays.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::train {
namespace {

using namespace trireme::testing;

/// Sets the first number of an array to infinity on the one rank that would write it to a
/// checkpoint, and back: one replica's losses and gradients are bad, as after a fault of its own.
class Infinity {
 public:
  explicit Infinity(Engine& engine) {
    for (const auto& slice : engine.share())
      if (slice.name == "layers.1.feed_forward.up" && slice.bytes() > 0 &&
          std::ranges::all_of(slice.offset, [](std::int64_t at) { return at == 0; }))
        place_ = static_cast<double*>(const_cast<void*>(slice.data));
    if (place_ == nullptr) return;
    kept_ = *place_;
    *place_ = std::numeric_limits<double>::infinity();
  }
  ~Infinity() {
    if (place_ != nullptr) *place_ = kept_;
  }
  Infinity(const Infinity&) = delete;
  Infinity& operator=(const Infinity&) = delete;

 private:
  double* place_ = nullptr;
  double kept_ = 0;
};

StepResult bad_step(Rig& rig, std::int64_t step) {
  const Infinity infinity(*rig.engine);
  rig.engine->train_step(step, rig.samples);
  return rig.engine->result();
}

class SkippedSteps : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!exec_on_host) GTEST_SKIP() << "the test writes to the worker's memory";
  }

  /// Layouts of this number of ranks.
  static std::vector<std::vector<std::string>> layouts() {
    std::vector<std::vector<std::string>> all{{}, {"parallel.shard=optimizer"}};
    const int ranks = runtime().ranks();
    if (ranks % 2 == 0) {
      all.push_back({"parallel.tensor=2", "parallel.sequence_parallel=true"});
      all.push_back({"parallel.pipeline=2", "parallel.schedule=zb-h1"});
    }
    if (ranks == 3) all.push_back({"parallel.tensor=3", "optimizer.kind=lamb"});
    return all;
  }
  static deck::Config config_of(std::vector<std::string> overrides) {
    overrides.push_back("parallel.bucket_bytes=20000");
    return small_config(12, 1, runtime().ranks(), overrides);
  }

  TemporaryFolder folder_;
  data::TokenFile tokens_{write_tokens(folder_, 20000)};
};

TEST_F(SkippedSteps, AllRanksSkipAnInfinityAndTrainingContinues) {
  for (const auto& overrides : layouts()) {
    SCOPED_TRACE(overrides.empty() ? "data" : overrides.front());
    Rig rig(config_of(overrides), tokens_);
    const Trace before = rig.run(1, 6);
    const auto arrays = whole_arrays(*rig.engine, runtime().world());
    const StepResult bad = bad_step(rig, 7);
    EXPECT_FALSE(std::isfinite(bad.loss));
    EXPECT_FALSE(std::isfinite(bad.gradient_norm));
    EXPECT_EQ(bad.skips.total, 1);
    EXPECT_EQ(bad.skips.in_row, 1);
    EXPECT_EQ(bad.skips.last_step, 7);
    EXPECT_FALSE(bad.skips.array.empty());
    EXPECT_EQ(whole_arrays(*rig.engine, runtime().world()), arrays) << "weights and moments";
    const Trace after = rig.run(8, 12);
    for (const double loss : after.losses) EXPECT_TRUE(std::isfinite(loss));
    EXPECT_LT(after.losses.back(), before.losses.front());
    const Skips skips = rig.engine->result().skips;
    EXPECT_EQ(skips.total, 1);
    EXPECT_EQ(skips.in_row, 0);
  }
}

TEST_F(SkippedSteps, RestartAfterASkipContinuesBitForBit) {
  const std::string where =
      runtime().world().broadcast(folder_.file("checkpoints"), 0, "rank 0's folder");
  int number = 0;
  for (auto overrides : layouts())
    for (const char* kind : {"adamw", "sgd", "lamb", "lars"}) {
      overrides.push_back(text("optimizer.kind=", kind));
      SCOPED_TRACE(text(overrides.front(), ", ", kind));
      const deck::Config config = config_of(overrides);
      Rig whole(config, tokens_);
      whole.run(1, 3);
      const Skips skips = bad_step(whole, 4).skips;
      deck::CheckpointConfig checkpoints;
      checkpoints.directory = text(where, number++);
      Saver(checkpoints, runtime().world(), *whole.engine, 0)
          .save({4, 48, "# deck", "", to_values(skips, 4)}, false);
      bad_step(whole, 5);
      const Trace expected = whole.run(6, 8);

      Rig second(config, tokens_);
      second.engine->load(checkpoint::Reader(checkpoints.directory + "/step_00000004"));
      EXPECT_EQ(bad_step(second, 5).skips.in_row, 2);
      EXPECT_EQ(second.run(6, 8), expected);
      EXPECT_EQ(second.engine->result().skips.total, 2);
    }
}

TEST_F(SkippedSteps, TooManyInARowStopAllUpdates) {
  Rig rig(config_of({"optimizer.maximum_skips=2"}), tokens_);
  rig.run(1, 2);
  const auto arrays = whole_arrays(*rig.engine, runtime().world());
  bad_step(rig, 3);
  EXPECT_EQ(bad_step(rig, 4).skips.in_row, 2);
  rig.run(5, 6);  // would be fine, but the run is to stop with the weights that it had
  EXPECT_EQ(rig.engine->result().skips.in_row, 4);
  EXPECT_EQ(whole_arrays(*rig.engine, runtime().world()), arrays);
}

TEST(Skips, ReadBackFromTheValuesOfACheckpoint) {
  checkpoint::RunState state;
  state.step = 10;
  EXPECT_EQ(skips_of(state), Skips{}) << "one that knows nothing of them";
  state.values = to_values({3, 2, 9, "x"}, 10);
  EXPECT_EQ(state.values.at("optimizer.updates"), "7");
  EXPECT_EQ(skips_of(state), (Skips{3, 2}));
  for (const char* damage : {"-1", "11", "7x", ""}) {
    state.values["optimizer.updates"] = damage;
    EXPECT_THROW(skips_of(state), Error) << damage;
  }
  state.values = {{"optimizer.updates", "9"}, {"optimizer.skipped_in_row", "2"}};
  EXPECT_THROW(skips_of(state), Error) << "two in a row, one in all";
}

}  // namespace
}  // namespace trireme::train
