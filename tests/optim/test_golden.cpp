#include <trireme/optim/learning_rate.hpp>
#include <trireme/plan/memory.hpp>

#include "optim/rig.hpp"
#include "support/source_folder.hpp"

#include <gtest/gtest.h>

namespace trireme::optim {
namespace {

using namespace trireme::testing;

class Golden : public ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(Golden, LossAndGradientsMatchPyTorch) {
  const auto [micro, split] = GetParam();
  Rig rig(micro, split);
  EXPECT_NEAR(rig.pass(1), golden_losses(golden_file("gpt_fp64/losses.txt")).at(0).first, 1e-12);

  const auto reference = read_doubles(golden_file("gpt_fp64/gradients.f64"));
  ASSERT_EQ(static_cast<std::int64_t>(reference.size()), rig.architecture.parameters());
  double largest = 0;  // over the model: the norm in design promise 1
  for (const double g : reference) largest = std::max(largest, std::abs(g));
  std::size_t at = 0;
  for (const auto& entry : rig.parameters.entries())
    for (const double g : values_of(entry.gradient.data)) {
      ASSERT_NEAR(g, reference[at], 1e-10 * largest) << entry.spec->name << ", element " << at;
      ++at;
    }
}

TEST_P(Golden, TwentyStepsMatchPyTorch) {
  const auto [micro, split] = GetParam();
  Rig rig(micro, split);
  const auto losses = golden_losses(golden_file("gpt_fp64/losses.txt"));
  ASSERT_EQ(losses.size(), 20u);
  for (std::int64_t step = 1; step <= 20; ++step) {
    const auto [loss, norm] = losses[static_cast<std::size_t>(step - 1)];
    EXPECT_NEAR(rig.pass(step), loss, 1e-9 * loss) << "step " << step;
    rig.optimizer.find_norm(rig.handle);
    rig.optimizer.step(rig.handle, step, learning_rate(golden_optimizer(), step));
    EXPECT_NEAR(value_of(rig.optimizer.gradient_norm()), norm, 1e-9 * norm) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(MicroBatchesAndSplitBackward, Golden,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Bool()));

TEST(Optimizer, PlannedBytesMatchTheAllocation) {
  deck::Config config;
  config.model = golden_model();
  config.batch.micro = 1;
  config.precision.compute = DType::fp64;
  const Rig rig(1, false);
  EXPECT_EQ(
      plan::training_memory(config, rig.architecture, rig.parameters.shard(), {.slots = 1}, {})
          .at(2)
          .bytes,
      rig.optimizer.state_bytes());
}

}  // namespace
}  // namespace trireme::optim
