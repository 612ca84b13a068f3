#include <trireme/kernels/elementwise.hpp>
#include <trireme/model/rank_model.hpp>
#include <trireme/optim/learning_rate.hpp>
#include <trireme/optim/optimizer.hpp>
#include <trireme/plan/memory.hpp>

#include "support/small_gpt.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

namespace trireme::optim {
namespace {

using namespace trireme::testing;

const std::string golden = TRIREME_SOURCE_DIR "/tests/golden/gpt_fp64/";

deck::OptimizerConfig golden_optimizer() {
  deck::OptimizerConfig o;
  o.learning_rate = 2e-2;
  o.minimum_learning_rate = 2e-3;
  o.warmup_steps = 5;
  o.decay_steps = 20;
  o.beta1 = 0.9;
  o.beta2 = 0.95;
  o.epsilon = 1e-8;
  o.weight_decay = 0.1;
  o.clip_norm = 0.8;
  return o;
}

/// The whole model on one rank, driven by hand.
struct Rig {
  using P = model::Fp64;

  Rig(std::int64_t micro_batch, bool split_backward)
      : micro(micro_batch),
        split(split_backward),
        architecture(architecture::describe(golden_model())),
        parameters(architecture, architecture::whole_model(architecture), true),
        self(grid::Communicator::self()),
        optimizer(golden_optimizer(), architecture, parameters, *self, *self,
                  architecture::whole_state(parameters.local_arrays(), parameters.placement()),
                  parameters.placement().elements),
        stage(architecture, parameters, {micro_batch, 1, true, split_backward}) {
    set_golden_weights(parameters);
  }

  /// Loss and gradients of step `step`'s batch, micro-batch by micro-batch.
  double pass(std::int64_t step) {
    const auto model = golden_model();
    stage.zero_loss(exec);
    optimizer.zero_gradients(exec);
    for (std::int64_t first = 0; first < golden_batch; first += micro) {
      set_golden_tokens(stage, step, micro, first);
      model::MicroContext c;
      c.first_sample = first;
      c.sequence = model.sequence;
      c.loss_scale = 1.0 / static_cast<double>(golden_batch * model.sequence);
      stage.forward(exec, 0, c);
      if (split) {
        stage.backward_input(exec, 0, c);
        stage.backward_weight(exec, 0, c, [](std::int64_t) {});
      } else {
        stage.backward(exec, 0, c, [](std::int64_t) {});
      }
    }
    optimizer.combine_tied_gradients(exec);
    return value_of(stage.loss()) / static_cast<double>(golden_batch * model.sequence);
  }

  Exec exec;
  std::int64_t micro;
  bool split;
  architecture::Architecture architecture;
  model::Parameters<P> parameters;
  std::unique_ptr<grid::Communicator> self;
  Optimizer<P> optimizer;
  WholeModel<P> stage;
};

std::vector<std::pair<double, double>> golden_losses() {
  std::vector<std::pair<double, double>> losses;
  std::ifstream in(golden + "losses.txt");
  for (double loss = 0, norm = 0; in >> loss >> norm;) losses.emplace_back(loss, norm);
  return losses;
}

class Golden : public ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(Golden, LossAndAllGradientsEqualPyTorchNormwise) {
  const auto [micro, split] = GetParam();
  Rig rig(micro, split);
  EXPECT_NEAR(rig.pass(1), golden_losses().at(0).first, 1e-12);

  const auto reference = read_doubles(golden + "gradients.f64");
  ASSERT_EQ(static_cast<std::int64_t>(reference.size()), rig.architecture.parameters());
  double largest = 0;  // over the model: the norm of design promise 1
  for (const double g : reference) largest = std::max(largest, std::abs(g));
  std::size_t at = 0;
  for (const auto& entry : rig.parameters.entries())
    for (const double g : values_of(entry.gradient.data)) {
      ASSERT_NEAR(g, reference[at], 1e-10 * largest) << entry.spec->name << ", element " << at;
      ++at;
    }
}

TEST_P(Golden, LossesAndNormsOfTwentyStepsEqualPyTorch) {
  const auto [micro, split] = GetParam();
  Rig rig(micro, split);
  const auto losses = golden_losses();
  ASSERT_EQ(losses.size(), 20u);
  for (std::int64_t step = 1; step <= 20; ++step) {
    const auto [loss, norm] = losses[static_cast<std::size_t>(step - 1)];
    EXPECT_NEAR(rig.pass(step), loss, 1e-9 * loss) << "step " << step;
    rig.optimizer.find_norm(rig.exec);
    rig.optimizer.step(rig.exec, step, learning_rate(golden_optimizer(), step));
    EXPECT_NEAR(value_of(rig.optimizer.gradient_norm()), norm, 1e-9 * norm) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(MicroBatchesAndSplitBackward, Golden,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Bool()));

TEST(Optimizer, PlannedBytesAreThoseAllocated) {
  deck::Config config;
  config.model = golden_model();
  config.batch.micro = 1;
  config.precision.compute = DType::fp64;
  const Rig rig(1, false);
  EXPECT_EQ(plan::training_memory(config, rig.architecture, rig.parameters.shard(), {.slots = 1})
                .at(2)
                .bytes,
            rig.optimizer.state_bytes());
}

TEST(LearningRate, WarmsUpLinearlyAndFollowsACosineToTheMinimum) {
  const auto o = golden_optimizer();
  EXPECT_DOUBLE_EQ(learning_rate(o, 1), 2e-2 / 5);
  EXPECT_DOUBLE_EQ(learning_rate(o, 5), 2e-2);
  EXPECT_DOUBLE_EQ(learning_rate(o, 20), 2e-3);
  EXPECT_DOUBLE_EQ(learning_rate(o, 1000), 2e-3);
  auto even = o;
  even.warmup_steps = 0;
  EXPECT_NEAR(learning_rate(even, 10), (2e-2 + 2e-3) / 2, 1e-15);
}

}  // namespace
}  // namespace trireme::optim
