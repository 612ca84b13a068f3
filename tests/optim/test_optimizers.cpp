// SGD, LAMB and LARS against reference implementations, and what all optimizers have in common:
// state, launches and skipped steps.
#include <trireme/optim/learning_rate.hpp>
#include <trireme/plan/memory.hpp>

#include "optim/rig.hpp"
#include "support/launch_recorder.hpp"
#include "support/source_folder.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace trireme::optim {
namespace {

using namespace trireme::testing;

deck::OptimizerConfig sgd(double momentum, bool nesterov) {
  auto o = golden_optimizer();
  o.kind = OptimizerKind::sgd;
  o.momentum = momentum;
  o.nesterov = nesterov;
  o.learning_rate = 0.5;  // tests/golden/sgd_fp64/make.py: the minimum is a tenth of it, too
  o.minimum_learning_rate = 0.05;
  return o;
}

TEST(Sgd, TwentyStepsMatchPyTorch) {
  for (const auto& [form, momentum, nesterov] :
       {std::tuple{"plain", 0.0, false}, {"momentum", 0.9, false}, {"nesterov", 0.9, true}}) {
    SCOPED_TRACE(form);
    const auto config = sgd(momentum, nesterov);
    Rig rig(2, false, config);
    const auto losses = golden_losses(golden_file(text("sgd_fp64/", form, ".txt")));
    ASSERT_EQ(losses.size(), 20u);
    for (std::int64_t step = 1; step <= 20; ++step) {
      const auto [loss, norm] = losses[static_cast<std::size_t>(step - 1)];
      EXPECT_NEAR(rig.pass(step), loss, 1e-9 * loss) << "step " << step;
      EXPECT_NEAR(rig.update(step, learning_rate(config, step)), norm, 1e-9 * norm)
          << "step " << step;
    }
  }
}

/// Weights and gradients before an update, from which a reference takes the same step.
struct Snapshot {
  std::vector<std::vector<double>> weights, gradients;
  double squares = 0;  ///< of all gradients

  explicit Snapshot(const Rig& rig) {
    for (const auto& entry : rig.parameters.entries()) {
      weights.push_back(values_of(entry.weight.data));
      gradients.push_back(values_of(entry.gradient.data));
      for (const double g : gradients.back()) squares += g * g;
    }
  }
  double clip(const deck::OptimizerConfig& o) const {
    return std::min(1.0, o.clip_norm / (std::sqrt(squares) + 1e-6));
  }
};

/// LAMB as algorithm 2 of You et al. 2020, array by array in double precision.
struct NaiveLamb {
  std::vector<std::vector<double>> m, v;

  void step(const deck::OptimizerConfig& o, double rate, int update, std::size_t array, bool decay,
            std::vector<double>& w, std::vector<double> g, double clip) {
    if (m.size() <= array) m.resize(array + 1), v.resize(array + 1);
    m[array].resize(w.size());
    v[array].resize(w.size());
    double weight_norm = 0;
    double direction_norm = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      double& mi = m[array][i];
      double& vi = v[array][i];
      g[i] *= clip;
      mi = o.beta1 * mi + (1 - o.beta1) * g[i];
      vi = o.beta2 * vi + (1 - o.beta2) * g[i] * g[i];
      const double m_hat = mi / (1 - std::pow(o.beta1, update));
      const double v_hat = vi / (1 - std::pow(o.beta2, update));
      g[i] = m_hat / (std::sqrt(v_hat) + o.epsilon) + (decay ? o.weight_decay : 0) * w[i];
      weight_norm += w[i] * w[i];
      direction_norm += g[i] * g[i];
    }
    const double ratio = weight_norm > 0 && direction_norm > 0
                             ? std::sqrt(weight_norm) / std::sqrt(direction_norm)
                             : 1;
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= rate * ratio * g[i];
  }
};

TEST(Lamb, FiveStepsMatchThePapersAlgorithm) {
  auto config = golden_optimizer();
  config.kind = OptimizerKind::lamb;
  Rig rig(2, false, config);
  NaiveLamb naive;
  for (int step = 1; step <= 5; ++step) {
    rig.pass(step);
    const Snapshot before(rig);
    const double rate = learning_rate(config, step);
    rig.update(step, rate);
    for (std::size_t a = 0; a < before.weights.size(); ++a) {
      const auto& entry = rig.parameters.entries()[a];
      auto expected = before.weights[a];
      naive.step(config, rate, step, a, entry.spec->decay, expected, before.gradients[a],
                 before.clip(config));
      const auto updated = values_of(entry.weight.data);
      for (std::size_t i = 0; i < updated.size(); ++i)
        ASSERT_NEAR(updated[i], expected[i], 1e-12) << entry.spec->name << ", step " << step;
    }
  }
}

/// LARS as algorithm 1 of You et al. 2017, array by array in double precision.
struct NaiveLars {
  std::vector<std::vector<double>> b;

  void step(const deck::OptimizerConfig& o, double rate, std::size_t array, bool decays,
            std::vector<double>& w, const std::vector<double>& g, double clip) {
    if (b.size() <= array) b.resize(array + 1);
    b[array].resize(w.size());
    double weight = 0;
    double gradient = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      weight += w[i] * w[i];
      gradient += clip * g[i] * clip * g[i];
    }
    weight = std::sqrt(weight);
    gradient = std::sqrt(gradient);
    const double decay = decays ? o.weight_decay : 0;
    const double local = decays ? o.trust_coefficient * weight / (gradient + decay * weight) : 1;
    for (std::size_t i = 0; i < w.size(); ++i) {
      b[array][i] = o.momentum * b[array][i] + rate * local * (clip * g[i] + decay * w[i]);
      w[i] -= b[array][i];
    }
  }
};

TEST(Lars, FiveStepsMatchThePapersAlgorithm) {
  for (const double momentum : {0.0, 0.9}) {
    auto config = golden_optimizer();
    config.kind = OptimizerKind::lars;
    config.momentum = momentum;
    config.trust_coefficient = 0.02;
    config.learning_rate = 1;
    Rig rig(2, false, config);
    NaiveLars naive;
    for (int step = 1; step <= 5; ++step) {
      rig.pass(step);
      const Snapshot before(rig);
      const double rate = learning_rate(config, step);
      rig.update(step, rate);
      for (std::size_t a = 0; a < before.weights.size(); ++a) {
        const auto& entry = rig.parameters.entries()[a];
        auto expected = before.weights[a];
        naive.step(config, rate, a, entry.spec->decay, expected, before.gradients[a],
                   before.clip(config));
        const auto updated = values_of(entry.weight.data);
        for (std::size_t i = 0; i < updated.size(); ++i)
          ASSERT_NEAR(updated[i], expected[i], 1e-12) << entry.spec->name << ", step " << step;
      }
    }
  }
}

TEST(Adafactor, StepsMatchPyTorch) {
  for (const auto& [form, times, decay] :
       {std::tuple{"given", 1.0, 0.1}, {"relative", 25.0, 0.0}}) {
    SCOPED_TRACE(form);
    auto config = golden_optimizer();
    config.kind = OptimizerKind::adafactor;
    config.learning_rate *= times;
    config.minimum_learning_rate *= times;
    config.weight_decay = decay;
    Rig rig(2, false, config);
    const auto losses = golden_losses(golden_file(text("adafactor_fp64/", form, ".txt")));
    ASSERT_EQ(losses.size(), times > 1 ? 8u : 20u);
    for (std::int64_t step = 1; step <= std::ssize(losses); ++step) {
      const auto [loss, norm] = losses[static_cast<std::size_t>(step - 1)];
      EXPECT_NEAR(rig.pass(step), loss, 1e-9 * loss) << "step " << step;
      EXPECT_NEAR(rig.update(step, learning_rate(config, step)), norm, 1e-9 * norm)
          << "step " << step;
    }
  }
}

/// Matrices have one number of each row and of each column, and no state of their own shape.
TEST(Adafactor, HasStateOfRowsAndColumns) {
  auto config = golden_optimizer();
  config.kind = OptimizerKind::adafactor;
  const Rig rig(1, false, config), adamw(1, false);
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const auto& array : rig.optimizer.factor_state()) shapes[array.name] = array.shape;
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(shapes["optimizer.row_mean.layers.0.attention.query"], (Shape{3, 8}));
  EXPECT_EQ(shapes["optimizer.column_mean.layers.0.attention.query"], (Shape{24}));
  EXPECT_EQ(shapes["optimizer.row_mean.layers.0.attention.key_value"], (Shape{2, 3, 8}));
  EXPECT_EQ(shapes["optimizer.column_mean.layers.0.attention.key_value"], (Shape{2, 24}));
  EXPECT_EQ(shapes["optimizer.row_mean.layers.0.attention.output"], (Shape{24}));
  EXPECT_EQ(shapes["optimizer.column_mean.layers.0.attention.output"], (Shape{3, 8}));
  EXPECT_EQ(shapes["optimizer.row_mean.embedding.token"], (Shape{61}));
  EXPECT_EQ(shapes["optimizer.column_mean.embedding.token"], (Shape{24}));
  for (const auto& block : rig.optimizer.state()) {
    const auto& local = rig.parameters.entries()[block.local].local;
    EXPECT_EQ(block.arrays.size(), local.matrix == rules::Matrices::none ? 1u : 0u);
  }
  EXPECT_LT(static_cast<double>(rig.optimizer.state_bytes()),
            0.15 * static_cast<double>(adamw.optimizer.state_bytes()));
}

/// Lion as algorithm 2 of Chen et al. 2023, in double precision.
TEST(Lion, FiveStepsMatchThePapersAlgorithm) {
  auto config = golden_optimizer();
  config.kind = OptimizerKind::lion;
  Rig rig(2, false, config);
  std::vector<std::vector<double>> m(rig.parameters.entries().size());
  for (int step = 1; step <= 5; ++step) {
    rig.pass(step);
    const Snapshot before(rig);
    const double rate = learning_rate(config, step);
    rig.update(step, rate);
    for (std::size_t a = 0; a < m.size(); ++a) {
      const auto& entry = rig.parameters.entries()[a];
      const auto updated = values_of(entry.weight.data);
      m[a].resize(updated.size());
      for (std::size_t i = 0; i < updated.size(); ++i) {
        const double g = before.clip(config) * before.gradients[a][i], w = before.weights[a][i];
        const double c = config.beta1 * m[a][i] + (1 - config.beta1) * g;
        const double decay = entry.spec->decay ? config.weight_decay : 0;
        ASSERT_NEAR(updated[i], w - rate * ((c > 0) - (c < 0) + decay * w), 1e-12)
            << entry.spec->name << ", step " << step;
        m[a][i] = config.beta2 * m[a][i] + (1 - config.beta2) * g;
      }
    }
  }
}

TEST(Optimizer, EachKindHasThePlannedState) {
  const auto names = [](const deck::OptimizerConfig& config) {
    const Rig rig(1, false, config);
    deck::Config deck;
    deck.model = golden_model();
    deck.batch.micro = 1;
    deck.precision.compute = DType::fp64;
    deck.optimizer = config;
    const auto planned =
        plan::training_memory(deck, rig.architecture, rig.parameters.shard(), {.slots = 1}, {});
    EXPECT_EQ(planned.at(2).bytes, rig.optimizer.state_bytes());
    std::vector<std::string> found;
    const auto state = rig.optimizer.state();
    for (const auto& array : state.back().arrays) found.push_back(array.name);
    return found;
  };
  using Names = std::vector<std::string>;
  auto lamb = golden_optimizer();
  lamb.kind = OptimizerKind::lamb;
  const Names moments{"optimizer.first_moment.final_norm.bias",
                      "optimizer.second_moment.final_norm.bias"};
  EXPECT_EQ(names(golden_optimizer()), moments);
  EXPECT_EQ(names(lamb), moments);
  EXPECT_EQ(names(sgd(0.9, true)), Names{"optimizer.momentum.final_norm.bias"});
  EXPECT_EQ(names(sgd(0, false)), Names{});
  auto lars = sgd(0.9, false);
  lars.kind = OptimizerKind::lars;
  EXPECT_EQ(names(lars), Names{"optimizer.momentum.final_norm.bias"});
  auto other = golden_optimizer();
  other.kind = OptimizerKind::adafactor;
  EXPECT_EQ(names(other), Names{"optimizer.second_moment.final_norm.bias"});
  other.kind = OptimizerKind::lion;
  EXPECT_EQ(names(other), Names{"optimizer.momentum.final_norm.bias"});
}

/// The number of launches does not depend on the number of arrays.
TEST(Optimizer, StepsNeedFewLaunches) {
  const std::map<OptimizerKind, std::vector<std::string>> of_kind{
      {OptimizerKind::adamw, {"adamw_update"}},
      {OptimizerKind::sgd, {"sgd_update"}},
      {OptimizerKind::lamb,
       {"lamb_direction", "squared_norm_blocks", "squared_norm_blocks", "segment_sums",
        "segment_sums", "lamb_ratios", "lamb_update"}},
      {OptimizerKind::lars, {"squared_norm_blocks", "segment_sums", "lars_ratios", "lars_update"}},
      {OptimizerKind::adafactor,
       {"fill", "sum_squares_rows", "sum_squares_columns", "adafactor_means", "adafactor_direction",
        "adafactor_direction", "squared_norm_blocks", "squared_norm_blocks", "segment_sums",
        "segment_sums", "adafactor_ratios", "adafactor_update", "adafactor_update"}},
      {OptimizerKind::lion, {"lion_update"}}};
  for (const auto& [kind, launches] : of_kind) {
    deck::OptimizerConfig config = golden_optimizer();
    config.kind = kind;
    Rig rig(golden_batch, false, config);
    rig.pass(1);
    std::vector<std::string> expected{"kernels/squared_norm_blocks", "kernels/segment_sums",
                                      "kernels/root_of_sum", "kernels/plan_update"};
    for (const std::string& launch : launches) expected.push_back("kernels/" + launch);
    const LaunchRecorder recorder;
    rig.optimizer.find_norm(rig.handle);
    rig.optimizer.step(rig.handle, 1, 0.1);
    EXPECT_EQ(recorder.labels(), expected);
  }
}

/// All other steps have PyTorch's numbers: skipped steps change neither weights nor moments nor the
/// count of the bias correction.
TEST(Optimizer, SkippedStepsLeaveNoTrace) {
  Rig rig(2, false);
  const auto losses = golden_losses(golden_file("gpt_fp64/losses.txt"));
  std::int64_t step = 0;  // of the run
  for (std::int64_t update = 1; update <= 20; ++update) {
    for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
      if (update != 3 && update != 8) break;
      rig.pass(update);
      const auto& entry = rig.parameters.entry("layers.1.feed_forward.up");
      auto gradient = values_of(entry.gradient.data);
      gradient[5] = bad;
      set_values(entry.gradient.data, gradient);
      rig.update(++step, 1.0);
      const auto status = values_of(rig.optimizer.status());
      EXPECT_EQ(status[kernels::status_skipped_step], static_cast<double>(step));
      EXPECT_EQ(rig.optimizer.array_of_sum(
                    static_cast<std::int64_t>(status[kernels::status_skipped_sum])),
                "layers.1.feed_forward.up");
    }
    const auto [loss, norm] = losses[static_cast<std::size_t>(update - 1)];
    EXPECT_NEAR(rig.pass(update), loss, 1e-9 * loss) << "update " << update;
    EXPECT_NEAR(rig.update(++step, learning_rate(golden_optimizer(), update)), norm, 1e-9 * norm)
        << "update " << update;
  }
  EXPECT_EQ(values_of(rig.optimizer.status())[kernels::status_skipped], 4);
}

TEST(Optimizer, NonFiniteLossSkipsTheStep) {
  Rig rig(2, false);
  rig.pass(1);
  set_values(rig.stage.loss(), std::vector{std::numeric_limits<double>::infinity()});
  rig.optimizer.mark_loss(rig.handle, rig.stage.loss());
  EXPECT_TRUE(std::isnan(rig.update(1, 1.0)));
  EXPECT_EQ(values_of(rig.optimizer.status())[kernels::status_skipped], 1);
}

}  // namespace
}  // namespace trireme::optim
