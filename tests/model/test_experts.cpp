#include <trireme/deck/families.hpp>
#include <trireme/model/rank_model.hpp>

#include "model/whole_model.hpp"
#include "support/small_gpt.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

/// The losses of layers with experts against plain loops and finite differences, on one rank.
namespace trireme::model {
namespace {

using namespace trireme::testing;

constexpr std::int64_t batch_samples = 3;

deck::ModelConfig model_with_experts() {
  deck::ModelConfig m = golden_model();
  deck::set_family(m, Family::mixtral);
  m.key_value_heads = m.heads;
  m.window = 0;
  m.experts.number = 5;
  m.experts.active = 2;
  m.experts.feed_forward = 20;
  m.experts.balance = ExpertBalance::sequence;
  m.experts.balance_weight = 0.3;
  m.experts.z_weight = 0.2;
  return m;
}

MicroContext context_of(const deck::ModelConfig& m) {
  MicroContext c;
  c.seed = 7;
  c.step = 3;
  c.sequence = m.sequence;
  c.token_weight = 1.0 / static_cast<double>(batch_samples * m.sequence);
  c.sample_weight = 1.0 / batch_samples;
  return c;
}

struct ExpertModel {
  explicit ExpertModel(const deck::ModelConfig& model)
      : m(model),
        architecture(architecture::describe(m)),
        parameters(architecture, architecture::whole_model(architecture), true),
        stage(architecture, parameters, {batch_samples, 1, true, false}) {
    set_golden_weights(parameters);
  }

  /// The terms of the objective, divided by the tokens or samples of the batch.
  std::vector<double> losses(const MicroContext& c) {
    set_golden_tokens(stage, 0, batch_samples, 0);
    stage.zero_loss(handle);
    stage.forward(handle, 0, c);
    stage.backward(handle, 0, c, [](std::int64_t) {});
    const auto& objective = stage.rank_model().objective();
    std::vector<double> terms = objective.terms_of(values_of(stage.rank_model().losses()));
    for (std::size_t t = 0; t < terms.size(); ++t)
      terms[t] /= static_cast<double>(batch_samples * objective.losses[t].per_sample);
    return terms;
  }
  double total(const MicroContext& c) {
    double sum = 0;
    for (const double term : losses(c)) sum += term;
    return sum;
  }
  void zero_gradients() {
    for (const auto& e : parameters.entries())
      if (e.gradient.data.extent(0) > 0) kernels::fill(handle, e.gradient.data, 0.0);
  }

  deck::ModelConfig m;
  architecture::Architecture architecture;
  Parameters<Fp64> parameters;
  WholeModel<Fp64> stage;
  kernels::Handle handle;
};

struct Experts : ::testing::Test, ExpertModel {
  explicit Experts(const deck::ModelConfig& model = model_with_experts()) : ExpertModel(model) {}
};

TEST_F(Experts, GradientsOfAllLossesMatchFiniteDifferences) {
  const MicroContext c = context_of(m);
  total(c);
  zero_gradients();
  total(c);
  expect_derivatives(parameters, [&] { return total(c); });
}

/// A dropped route has no result, and its weight still divides the others.
struct LimitedExperts : Experts {
  LimitedExperts() : Experts(limited()) {}
  static deck::ModelConfig limited() {
    deck::ModelConfig m = model_with_experts();
    m.experts.capacity = 0.7;
    return m;
  }
};

TEST_F(LimitedExperts, GradientsMatchFiniteDifferences) {
  const MicroContext c = context_of(m);
  total(c);
  const std::vector<double> dropped =
      stage.rank_model().objective().dropped_choices(values_of(stage.rank_model().losses()));
  ASSERT_EQ(std::ssize(dropped), m.layers);
  for (const double fraction : dropped) EXPECT_GT(fraction, 0.1);
  zero_gradients();
  total(c);
  expect_derivatives(parameters, [&] { return total(c); });
}

/// balance_loss = weight · Σ_layers mean over tokens of Σ_e load_e P_e.
struct BatchBalance : Experts {
  BatchBalance() : Experts(balanced()) {
    for (const auto& e : parameters.entries())
      if (e.spec->is_load)
        for (std::int64_t i = 0; i < 5; ++i)
          set_value(e.weight.data, i, loads[static_cast<std::size_t>(i)]);
  }
  static deck::ModelConfig balanced() {
    deck::ModelConfig m = model_with_experts();
    m.experts.balance = ExpertBalance::batch;
    return m;
  }
  static constexpr std::array<double, 5> loads{2, 0.5, 0, 1.5, 1};
};

TEST_F(BatchBalance, GradientsMatchFiniteDifferences) {
  const MicroContext c = context_of(m);
  total(c);
  zero_gradients();
  total(c);
  expect_derivatives(parameters, [&] { return total(c); });
}

/// With equal logits, every score is 1/E. The gradients of the loads are the tokens of experts 0
/// and 1.
TEST_F(BatchBalance, HasItsClosedFormForEqualLogits) {
  for (const auto& e : parameters.entries())
    if (e.spec->name.ends_with("experts.router")) kernels::fill(handle, e.weight.data, 0.0);
  const std::vector<double> terms = losses(context_of(m));
  EXPECT_NEAR(terms[1], 0.3 * static_cast<double>(m.layers) * (5.0 / 5), 1e-12);
  const auto tokens = static_cast<double>(batch_samples * m.sequence);
  for (const auto& e : parameters.entries())
    if (e.spec->is_load) {
      EXPECT_EQ(values_of(e.gradient.data), (std::vector<double>{tokens, tokens, 0, 0, 0}));
    }
}

/// Rounds of any number of rows give the losses and gradients of all rows at once.
TEST(ExpertRounds, GiveTheGradientsOfAllRowsAtOnce) {
  for (const Family family : {Family::mixtral, Family::gpt_oss})
    for (const double capacity : {0.0, 0.7}) {
      deck::ModelConfig m = model_with_experts();
      deck::set_family(m, family);
      m.window = 0;
      m.experts.number = 5;
      m.experts.active = 2;
      m.experts.capacity = capacity;
      const MicroContext c = context_of(m);
      ExpertModel expected(m);
      expected.total(c);
      expected.zero_gradients();
      const std::vector<double> losses = expected.losses(c);
      for (const double rows : {0.01, 0.3, 1.0, 10.0}) {
        SCOPED_TRACE(text(name_of(family), ", capacity ", capacity, ", rows ", rows));
        m.experts.rows = rows;
        ExpertModel found(m);
        found.total(c);
        found.zero_gradients();
        const std::vector<double> terms = found.losses(c);
        ASSERT_EQ(terms.size(), losses.size());
        for (std::size_t i = 0; i < terms.size(); ++i)
          EXPECT_NEAR(terms[i], losses[i], 1e-13 * losses[i]);
        for (const auto& e : expected.parameters.entries()) {
          const std::vector<double> of_all = values_of(e.gradient.data);
          const std::vector<double> of_rounds =
              values_of(found.parameters.entry(e.spec->name).gradient.data);
          ASSERT_EQ(of_rounds.size(), of_all.size()) << e.spec->name;
          for (std::size_t i = 0; i < of_all.size(); ++i)
            ASSERT_NEAR(of_rounds[i], of_all[i], 1e-14 + 1e-11 * std::abs(of_all[i]))
                << e.spec->name << " " << i;
        }
      }
    }
}

TEST_F(Experts, LossesOfRoutersAloneHaveGradientsThatReachTheRouter) {
  MicroContext c = context_of(m);
  c.token_weight = 0;
  total(c);
  zero_gradients();
  const auto of_routers = [&] {
    const std::vector<double> terms = losses(c);
    return terms[1] + terms[2];
  };
  of_routers();
  double squares = 0;
  for (const auto& e : parameters.entries())
    if (e.spec->name.ends_with("experts.router"))
      for (const double g : values_of(e.gradient.data)) squares += g * g;
  EXPECT_GT(squares, 1e-6);
  expect_derivatives(parameters, of_routers);
}

/// With equal logits, every token uses experts 0 and 1, and every expert has the score 1/E:
/// balance_loss is weight · L · E/(k S) · 2 S / E = weight L, and router_z_loss is
/// weight · L · (log E)².
TEST_F(Experts, LossesOfEqualLogitsHaveTheirClosedForm) {
  for (const auto& e : parameters.entries())
    if (e.spec->name.ends_with("experts.router")) kernels::fill(handle, e.weight.data, 0.0);
  const std::vector<double> terms = losses(context_of(m));
  const auto layers = static_cast<double>(m.layers);
  EXPECT_NEAR(terms[1], 0.3 * layers, 1e-12);
  EXPECT_NEAR(terms[2], 0.2 * layers * std::log(5.0) * std::log(5.0), 1e-12);
}

TEST_F(Experts, AnEvaluationCountsTheLossesOfItsSamples) {
  MicroContext c = context_of(m);
  const auto evaluated = [&](std::int64_t counted) {
    set_golden_tokens(stage, 0, batch_samples, 0);
    stage.zero_loss(handle);
    stage.evaluate(handle, 0, c, counted);
    return stage.rank_model().objective().terms_of(values_of(stage.rank_model().losses()));
  };
  const std::vector<double> trained = losses(c), all = evaluated(batch_samples);
  EXPECT_NEAR(all[1], trained[1] * batch_samples, 1e-12);
  EXPECT_NEAR(all[2], trained[2] * static_cast<double>(batch_samples * m.sequence), 1e-10);
  const std::vector<double> two = evaluated(2);
  EXPECT_LT(two[1], all[1]);
  EXPECT_GT(two[1], 0.5 * all[1]);
  EXPECT_EQ(evaluated(0)[1], 0);
}

TEST_F(Experts, AnExpertWithoutTokensHasNoGradient) {
  MicroContext c = context_of(m);
  for (const auto& e : parameters.entries())
    if (e.spec->name.ends_with("experts.router")) kernels::fill(handle, e.weight.data, 0.0);
  total(c);
  for (const auto& e : parameters.entries()) {
    if (!e.spec->name.ends_with("experts.down")) continue;
    const std::vector<double> g = values_of(e.gradient.data);
    const auto half = static_cast<std::ptrdiff_t>(g.size() / 5 * 2);
    EXPECT_TRUE(std::any_of(g.begin(), g.begin() + half, [](double x) { return x != 0; }));
    EXPECT_TRUE(std::all_of(g.begin() + half, g.end(), [](double x) { return x == 0; }));
  }
}

TEST(ExpertMemory, PlannedBytesMatchTheAllocation) {
  for (const auto& [capacity, rows] : {std::pair{0.0, 0.0}, {0.7, 0.0}, {0.0, 0.6}}) {
    deck::ModelConfig m = model_with_experts();
    m.experts.capacity = capacity;
    m.experts.rows = rows;
    expect_planned_bytes(
        m, [](deck::ModelConfig& model, bool split) { model.experts.first_layer = split ? 1 : 0; });
  }
}

TEST(ExpertLossTerms, HaveASumPerLayer) {
  deck::ModelConfig m = model_with_experts();
  for (const std::int64_t layers : {1, 3}) {
    m.layers = layers;
    const auto objective = architecture::objective_of(m);
    EXPECT_EQ(objective.head_losses(), 1);
    EXPECT_EQ(objective.loss_sums(), (1 + 2 * layers) + layers * 5);
    EXPECT_EQ(objective.loss_sum("router_z_loss"), 1 + layers);
    EXPECT_EQ(objective.expert_sum(layers - 1), (1 + 2 * layers) + (layers - 1) * 5);
  }
  m.layers = 2;
  EXPECT_EQ(architecture::objective_of(m).terms_of(std::vector<double>{1, 2, 3, 4, 5}),
            (std::vector<double>{1, 5, 9}));
}

TEST(ExpertLoads, AreTheLargestCountsOverTheMeans) {
  deck::ModelConfig m = model_with_experts();
  m.layers = 4;
  m.experts.first_layer = 1;
  const auto objective = architecture::objective_of(m);
  EXPECT_EQ(objective.expert_layers, (std::vector<std::int64_t>{1, 2, 3}));
  std::vector<double> sums(static_cast<std::size_t>(objective.loss_sums()), 100.0);
  const std::vector<double> counts{2, 2, 2, 2, 2, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0};
  std::ranges::copy(counts, sums.end() - 15);
  EXPECT_EQ(objective.expert_loads(sums), (std::vector<double>{1, 5, 0}));
  EXPECT_THROW(objective.expert_sum(0), Error);
}

TEST(ExpertCosts, OnlyActiveExpertsCountAsFlops) {
  deck::ModelConfig m = model_with_experts();
  const auto with = architecture::describe(m);
  m.experts.number = 50;
  const auto more = architecture::describe(m);
  const auto router = static_cast<double>(m.layers * 45 * m.hidden);
  EXPECT_NEAR(more.layer_products() - with.layer_products(), router, 1e-6);
  EXPECT_EQ(more.active_parameters() - with.active_parameters(), static_cast<std::int64_t>(router));
  EXPECT_EQ(more.parameters() - with.parameters(),
            static_cast<std::int64_t>(router) + m.layers * 45 * 3 * 20 * m.hidden);
}

}  // namespace
}  // namespace trireme::model
