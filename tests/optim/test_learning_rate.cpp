#include <trireme/optim/learning_rate.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace trireme::optim {
namespace {

constexpr double peak = 2e-2;
constexpr double minimum = 2e-3;

/// 5 steps of warm-up and an end at step 25; the last 8 of these are the cool-down.
deck::OptimizerConfig with(LearningRateSchedule schedule) {
  deck::OptimizerConfig o;
  o.schedule = schedule;
  o.learning_rate = peak;
  o.minimum_learning_rate = minimum;
  o.warmup_steps = 5;
  o.decay_steps = 25;
  o.cooldown_steps = 8;
  return o;
}

double part(double x) {
  return minimum + (peak - minimum) * x;
}

class Schedules : public ::testing::TestWithParam<LearningRateSchedule> {};

TEST_P(Schedules, WarmUpLinearlyToThePeak) {
  const auto o = with(GetParam());
  for (std::int64_t step = 1; step <= 5; ++step)
    EXPECT_EQ(learning_rate(o, step), peak * static_cast<double>(step) / 5) << step;
  auto cold = o;
  cold.warmup_steps = 0;
  EXPECT_GT(learning_rate(cold, 1), 0.9 * peak);
  EXPECT_LE(learning_rate(cold, 1), peak);
  auto only = o;
  only.warmup_steps = 25;
  only.cooldown_steps = 0;
  EXPECT_EQ(learning_rate(only, 25), peak);
}

TEST_P(Schedules, NeverRiseAfterWarmUpNorFallBelowTheMinimum) {
  for (const auto shape : {CooldownShape::linear, CooldownShape::cosine, CooldownShape::exponential,
                           CooldownShape::minus_square_root}) {
    auto o = with(GetParam());
    o.cooldown_shape = shape;
    for (std::int64_t step = 6; step < 4000; ++step) {
      EXPECT_LE(learning_rate(o, step), learning_rate(o, step - 1)) << step;
      EXPECT_GE(learning_rate(o, step), minimum) << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Schedules,
                         ::testing::Values(LearningRateSchedule::cosine,
                                           LearningRateSchedule::linear,
                                           LearningRateSchedule::constant,
                                           LearningRateSchedule::inverse_square_root,
                                           LearningRateSchedule::warmup_stable_decay),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST(LearningRate, CosineReachesTheMinimumAndStays) {
  const auto o = with(LearningRateSchedule::cosine);
  EXPECT_DOUBLE_EQ(learning_rate(o, 10), part((1 + std::numbers::sqrt2 / 2) / 2));
  EXPECT_NEAR(learning_rate(o, 15), part(0.5), 1e-17);
  EXPECT_GT(learning_rate(o, 24), minimum);
  EXPECT_EQ(learning_rate(o, 25), minimum);
  EXPECT_EQ(learning_rate(o, 1000), minimum);
}

TEST(LearningRate, LinearFallsByEqualSteps) {
  const auto o = with(LearningRateSchedule::linear);
  for (std::int64_t step = 5; step <= 25; ++step)
    EXPECT_NEAR(learning_rate(o, step), part(static_cast<double>(25 - step) / 20), 1e-17) << step;
  EXPECT_EQ(learning_rate(o, 25), minimum);
  EXPECT_EQ(learning_rate(o, 1000), minimum);
}

TEST(LearningRate, ConstantStaysAtThePeak) {
  const auto o = with(LearningRateSchedule::constant);
  for (const std::int64_t step : {5, 6, 25, 1000}) EXPECT_EQ(learning_rate(o, step), peak);
}

TEST(LearningRate, InverseSquareRootHalvesInFourTimesTheSteps) {
  auto o = with(LearningRateSchedule::inverse_square_root);
  EXPECT_DOUBLE_EQ(learning_rate(o, 6), peak * std::sqrt(5.0 / 6));
  EXPECT_DOUBLE_EQ(learning_rate(o, 20), peak / 2);
  EXPECT_DOUBLE_EQ(learning_rate(o, 320), peak / 8) << "decay_steps has no effect";
  EXPECT_EQ(learning_rate(o, 5 * 100), minimum) << "a tenth of the peak";
  EXPECT_EQ(learning_rate(o, 100000), minimum);
  o.warmup_steps = 0;
  EXPECT_EQ(learning_rate(o, 1), peak);
  EXPECT_DOUBLE_EQ(learning_rate(o, 4), peak / 2);
}

TEST(LearningRate, WarmupStableDecayIsConstantUntilItsCooldown) {
  auto o = with(LearningRateSchedule::warmup_stable_decay);
  for (std::int64_t step = 5; step <= 17; ++step) EXPECT_EQ(learning_rate(o, step), peak) << step;
  // A quarter of the cool-down, half of it, all of it, and beyond.
  const auto expect = [&o](CooldownShape shape, double quarter, double half) {
    o.cooldown_shape = shape;
    EXPECT_DOUBLE_EQ(learning_rate(o, 19), part(quarter)) << name_of(shape);
    EXPECT_DOUBLE_EQ(learning_rate(o, 21), part(half)) << name_of(shape);
    EXPECT_GT(learning_rate(o, 24), minimum) << name_of(shape);
    EXPECT_EQ(learning_rate(o, 25), minimum) << name_of(shape);
    EXPECT_EQ(learning_rate(o, 1000), minimum) << name_of(shape);
  };
  expect(CooldownShape::linear, 0.75, 0.5);
  expect(CooldownShape::cosine, (1 + std::numbers::sqrt2 / 2) / 2, 0.5);
  expect(CooldownShape::exponential, std::pow(2.0, 0.75) - 1, std::numbers::sqrt2 - 1);
  expect(CooldownShape::minus_square_root, 0.5, 1 - std::sqrt(0.5));
}

TEST(LearningRate, CooldownMayFollowTheWarmUp) {
  auto o = with(LearningRateSchedule::warmup_stable_decay);
  o.cooldown_steps = 20;
  EXPECT_EQ(learning_rate(o, 5), peak);
  EXPECT_DOUBLE_EQ(learning_rate(o, 6), part(0.95));
}

TEST(LearningRate, ScalesLinearlyOrBySquareRootOfTheBatch) {
  auto o = with(LearningRateSchedule::cosine);
  o.reference_batch = 64;
  for (const std::int64_t step : {1, 5, 17, 30}) {
    const double rate = learning_rate(o, step);
    o.learning_rate_scaling = RateScaling::none;
    EXPECT_EQ(learning_rate(o, step, 1024), rate);
    o.learning_rate_scaling = RateScaling::linear;
    EXPECT_DOUBLE_EQ(learning_rate(o, step, 1024), 16 * rate);
    EXPECT_EQ(learning_rate(o, step, 64), rate) << "the bits of no scaling";
    EXPECT_DOUBLE_EQ(learning_rate(o, step, 16), rate / 4);
    o.learning_rate_scaling = RateScaling::square_root;
    EXPECT_DOUBLE_EQ(learning_rate(o, step, 1024), 4 * rate);
    EXPECT_EQ(learning_rate(o, step, 64), rate);
  }
}

}  // namespace
}  // namespace trireme::optim
