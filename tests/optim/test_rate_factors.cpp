#include <trireme/optim/learning_rate.hpp>

#include "optim/rig.hpp"
#include "support/source_folder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

/// [optimizer] rate_factors: parts of a model with learning rates of their own.
namespace trireme::optim {
namespace {

using namespace trireme::testing;

deck::OptimizerConfig with_factors(OptimizerKind kind, std::vector<std::string> factors) {
  auto o = golden_optimizer();
  o.kind = kind;
  o.nesterov = kind == OptimizerKind::sgd || kind == OptimizerKind::muon;
  o.rate_factors = std::move(factors);
  return o;
}

/// PyTorch's param_groups: tests/golden/rate_factors_fp64/make.py.
TEST(RateFactors, StepsMatchPyTorch) {
  for (const auto& [kind, file, times, decay] :
       {std::tuple{OptimizerKind::adamw, "adamw", 1.0, 0.1},
        {OptimizerKind::sgd, "nesterov", 25.0, 0.1},
        {OptimizerKind::adafactor, "adafactor", 25.0, 0.0}}) {
    SCOPED_TRACE(file);
    auto config = with_factors(kind, {"0.25 embedding", "1.75 layers.0", "0.5 layers.1.attention"});
    config.learning_rate *= times;
    config.minimum_learning_rate *= times;
    config.weight_decay = decay;
    Rig rig(2, false, config);
    const auto losses = golden_losses(golden_file(text("rate_factors_fp64/", file, ".txt")));
    ASSERT_EQ(losses.size(), 8u);
    for (std::int64_t step = 1; step <= std::ssize(losses); ++step) {
      const auto [loss, norm] = losses[static_cast<std::size_t>(step - 1)];
      EXPECT_NEAR(rig.pass(step), loss, 1e-9 * loss) << "step " << step;
      EXPECT_NEAR(rig.update(step, learning_rate(config, step)), norm, 1e-9 * norm)
          << "step " << step;
    }
  }
}

using Weights = std::map<std::string, std::vector<double>>;

/// The weights after steps with one learning rate.
Weights weights_after(const deck::OptimizerConfig& config, double rate, std::int64_t steps) {
  Rig rig(2, false, config);
  for (std::int64_t step = 1; step <= steps; ++step) {
    rig.pass(step);
    rig.update(step, rate);
  }
  Weights weights;
  for (const auto& entry : rig.parameters.entries())
    weights[entry.spec->name] = values_of(entry.weight.data);
  return weights;
}

/// With every rule, a step changes the arrays of a pattern as one with the factor times the
/// learning rate does, and all other arrays as one without factors. Bits are equal, because the
/// factor is a power of two.
TEST(RateFactors, ChangeTheRateOfTheirArraysWithEveryRule) {
  for (std::size_t i = 0; i < names<OptimizerKind>().size(); ++i) {
    const auto kind = static_cast<OptimizerKind>(i);
    SCOPED_TRACE(name_of(kind));
    constexpr double rate = 2e-2, factor = 0.25;
    const Weights found =
        weights_after(with_factors(kind, {"0.25 layers.1", "0.25 embedding"}), rate, 1);
    const Weights whole = weights_after(with_factors(kind, {}), rate, 1);
    const Weights part = weights_after(with_factors(kind, {}), factor * rate, 1);
    std::size_t changed = 0;
    for (const auto& [name, weights] : found) {
      const bool named = name.starts_with("layers.1.") || name.starts_with("embedding.");
      EXPECT_EQ(weights, (named ? part : whole).at(name)) << name;
      if (named) {
        changed += part.at(name) != whole.at(name) ? 1 : 0;
      }
    }
    EXPECT_GT(changed, 5u);
  }
}

TEST(RateFactors, FactorsOfOneKeepTheBits) {
  for (std::size_t i = 0; i < names<OptimizerKind>().size(); ++i) {
    const auto kind = static_cast<OptimizerKind>(i);
    SCOPED_TRACE(name_of(kind));
    EXPECT_EQ(weights_after(with_factors(kind, {"1 embedding", "1.0 layers.*"}), 2e-2, 3),
              weights_after(with_factors(kind, {}), 2e-2, 3));
  }
}

}  // namespace
}  // namespace trireme::optim
