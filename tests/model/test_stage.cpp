#include <trireme/model/decoder.hpp>
#include <trireme/model/rank_model.hpp>
#include <trireme/plan/memory.hpp>

#include "support/small_gpt.hpp"

#include <gtest/gtest.h>

namespace trireme::model {
namespace {

using namespace trireme::testing;
using P = Fp64;

MicroContext stage_context(double dropout, std::int64_t first_sample = 0) {
  MicroContext c;
  c.seed = 7;
  c.step = 3;
  c.first_sample = first_sample;
  c.sequence = golden_model().sequence;
  c.dropout = dropout;
  return c;
}

void set_tokens(const WholeModel<P>& stage, std::int64_t samples, std::int64_t first = 0) {
  set_golden_tokens(stage, 1, samples, first);
}

class TiedOrNot : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Embeddings, TiedOrNot, ::testing::Bool());

TEST_P(TiedOrNot, GradientsMatchFiniteDifferencesWithDropout) {
  auto model = golden_model();
  model.tied_embeddings = GetParam();
  const auto architecture = architecture::describe(model);
  Parameters<P> parameters(architecture, architecture::whole_model(architecture), true);
  set_golden_weights(parameters);
  WholeModel<P> stage(architecture, parameters, {2, 1, true, false});
  const kernels::Handle handle;
  const auto c = stage_context(0.2);
  const auto loss = [&] {
    set_tokens(stage, 2);
    stage.zero_loss(handle);
    stage.forward(handle, 0, c);
    return value_of(stage.loss());
  };
  loss();
  stage.backward(handle, 0, c, [](std::int64_t) {});
  std::vector<double> analytic;
  std::vector<View1<double>> at;
  for (const auto& e : parameters.entries())
    for (const std::int64_t i :
         {std::int64_t{0}, e.weight.elements() / 2, e.weight.elements() - 1}) {
      double g = value_of(e.gradient.data, i);
      if (e.spec->name == "embedding.token" && GetParam())
        g += value_of(parameters.tied_gradient(), i);
      analytic.push_back(g);
      at.emplace_back(e.weight.data.data() + i, 1);
    }
  // Central differences at h = 1e-5 of a loss f of about 100: rounding ε f / h = 2e-9, truncation
  // h² f''' / 6 = 2e-7 at a third derivative of 1e4.
  const double h = 1e-5;
  for (std::size_t k = 0; k < at.size(); ++k) {
    const double saved = value_of(at[k]);
    set_value(at[k], 0, saved + h);
    const double above = loss();
    set_value(at[k], 0, saved - h);
    const double below = loss();
    set_value(at[k], 0, saved);
    EXPECT_NEAR(analytic[k], (above - below) / (2 * h), 2e-7)
        << "entry " << k / 3 << ", probe " << k % 3;
  }
}

TEST(Stage, DropoutMasksBelongToGlobalSamples) {
  const auto architecture = architecture::describe(golden_model());
  Parameters<P> parameters(architecture, architecture::whole_model(architecture), true);
  set_golden_weights(parameters);
  const kernels::Handle handle;
  WholeModel<P> together(architecture, parameters, {4, 1, true, false});
  set_tokens(together, 4);
  together.zero_loss(handle);
  together.forward(handle, 0, stage_context(0.3));
  double apart_sum = 0;
  WholeModel<P> apart(architecture, parameters, {1, 1, true, false});
  for (std::int64_t b = 0; b < 4; ++b) {
    set_tokens(apart, 1, b);
    apart.zero_loss(handle);
    apart.forward(handle, 0, stage_context(0.3, b));
    apart_sum += value_of(apart.loss());
  }
  EXPECT_NEAR(value_of(together.loss()), apart_sum, 1e-12 * apart_sum);
}

TEST(Stage, EvaluationMatchesTheForwardPassWithoutDropout) {
  const auto architecture = architecture::describe(golden_model());
  Parameters<P> parameters(architecture, architecture::whole_model(architecture), true);
  set_golden_weights(parameters);
  const kernels::Handle handle;
  WholeModel<P> training(architecture, parameters, {3, 1, true, false});
  set_tokens(training, 3);
  training.zero_loss(handle);
  training.forward(handle, 0, stage_context(0));
  WholeModel<P> evaluating(architecture, parameters, {4, 1, false, false});
  set_tokens(evaluating, 4);
  evaluating.zero_loss(handle);
  evaluating.evaluate(handle, 0, stage_context(0.5), 3);
  const double expected = value_of(training.loss());
  EXPECT_NEAR(value_of(evaluating.loss()), expected, 1e-13 * expected);
}

TEST(Decoder, TokenByTokenMatchesTheLossOfTheWholeText) {
  const auto model = golden_model();
  const auto architecture = architecture::describe(model);
  Parameters<P> parameters(architecture, architecture::whole_model(architecture), false);
  set_golden_weights(parameters);
  const kernels::Handle handle;
  WholeModel<P> stage(architecture, parameters, {2, 1, false, false});
  set_tokens(stage, 2);
  stage.zero_loss(handle);
  stage.evaluate(handle, 0, stage_context(0), 2);

  const auto alone = grid::Communicator::self();
  Decoder<P> decoder(architecture, parameters, *alone, {2, 2});
  const auto token = [](std::int32_t b, std::int32_t s) {
    return CachedToken{b, golden_token(1, b, s), s};
  };
  double nats = 0;
  for (std::int32_t s = 0; s < model.sequence; ++s) {
    decoder.run(handle, std::vector{token(0, s), token(1, s)}, PassWidth::narrow, true);
    const std::vector<double> logits = values_of(decoder.logits());  // [2, V]
    for (std::int64_t b = 0; b < 2; ++b) {
      const double* row = logits.data() + b * model.vocabulary;
      double sum = 0;
      for (std::int64_t v = 0; v < model.vocabulary; ++v) sum += std::exp(row[v]);
      nats += std::log(sum) - row[golden_token(1, b, s + 1)];
    }
  }
  EXPECT_NEAR(nats, value_of(stage.loss()), 1e-12 * nats);
  const auto next = static_cast<std::int32_t>(model.sequence);
  EXPECT_THROW(decoder.run(handle, std::vector<CachedToken>{{0, 1, next}}, PassWidth::narrow, true),
               Error);
}

/// Texts of different lengths in any places of the cache; tokens of a text in one pass or in
/// several; rows without a token.
TEST(Decoder, ManyTokensPerPassGiveTheSameLogits) {
  const auto model = golden_model();
  const auto architecture = architecture::describe(model);
  Parameters<P> parameters(architecture, architecture::whole_model(architecture), false);
  set_golden_weights(parameters);
  const kernels::Handle handle;
  const auto alone = grid::Communicator::self();
  Decoder<P> decoder(architecture, parameters, *alone, {3, 2});
  const auto tokens = [](std::int32_t text, int sample, std::int32_t begin, std::int32_t end) {
    std::vector<CachedToken> found;
    for (std::int32_t s = begin; s < end; ++s)
      found.push_back({text, golden_token(1, sample, s), s});
    return found;
  };
  const auto run = [&](std::vector<CachedToken> rows, PassWidth width, bool with_logits) {
    decoder.run(handle, rows, width, with_logits);
    return with_logits ? values_of(decoder.logits()) : std::vector<double>{};
  };
  const auto end = static_cast<std::int32_t>(model.sequence);
  for (std::int32_t s = 0; s + 1 < end; ++s) run(tokens(1, 0, s, s + 1), PassWidth::narrow, false);
  const auto expected = run(tokens(1, 0, end - 1, end), PassWidth::narrow, true);

  auto prompts = tokens(0, 0, 0, end / 2);
  const auto other = tokens(2, 1, 0, 5);
  prompts.insert(prompts.begin() + 3, other.begin(), other.end());
  ASSERT_LT(std::ssize(prompts), wide_rows);
  run(prompts, PassWidth::wide, false);
  run(tokens(0, 0, end / 2, end - 1), PassWidth::wide, false);
  auto last = tokens(2, 1, 5, 6);
  last.push_back({0, golden_token(1, 0, end - 1), end - 1});
  const auto found = run(last, PassWidth::narrow, true);
  const auto v = static_cast<std::size_t>(model.vocabulary);
  for (std::size_t i = 0; i < v; ++i) ASSERT_NEAR(found[v + i], expected[i], 1e-12) << i;

  for (std::int32_t s = 0; s < 5; ++s) run(tokens(1, 1, s, s + 1), PassWidth::narrow, false);
  const auto other_expected = run(tokens(1, 1, 5, 6), PassWidth::narrow, true);
  for (std::size_t i = 0; i < v; ++i) ASSERT_NEAR(found[i], other_expected[i], 1e-12) << i;
}

TEST(Stage, UntiedAndIndivisibleSizesWork) {
  auto model = golden_model();
  model.tied_embeddings = false;
  model.hidden = 15;
  model.feed_forward = 17;
  model.sequence = 13;
  model.layers = 1;
  const auto architecture = architecture::describe(model);
  Parameters<P> parameters(architecture, architecture::whole_model(architecture), true);
  parameters.initialise(Exec(), 5);
  WholeModel<P> stage(architecture, parameters, {2, 1, true, false});
  set_tokens(stage, 2);
  stage.zero_loss(kernels::Handle());
  stage.forward(kernels::Handle(), 0, stage_context(0));
  stage.backward(kernels::Handle(), 0, stage_context(0), [](std::int64_t) {});
  // Weights of deviation 0.02 leave the logits near zero: each token costs about log V.
  EXPECT_NEAR(value_of(stage.loss()) / 26, std::log(61.0), 0.05);
  EXPECT_EQ(parameters.tied_gradient().data(), nullptr);
}

TEST(Parameters, InitialValuesFollowTheSeedAndTheirDeviation) {
  const auto architecture = architecture::describe(golden_model());
  Parameters<P> a(architecture, architecture::whole_model(architecture), false);
  Parameters<P> b(architecture, architecture::whole_model(architecture), false);
  a.initialise(Exec(), 11);
  b.initialise(Exec(), 11);
  const auto up = [](const Parameters<P>& parameters) {
    return values_of(parameters.entry("layers.1.feed_forward.up").weight.data);
  };
  const std::vector<double> values = up(a);
  EXPECT_EQ(values, up(b));
  double squares = 0;
  for (const double value : values) squares += value * value;
  const auto n = static_cast<double>(values.size());
  // The deviation of a sample deviation is σ / √(2 n): five of them.
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 5 * 0.02 / std::sqrt(2 * n));
  b.initialise(Exec(), 12);
  EXPECT_NE(values, up(b));
}

template <class Precision>
class Memory : public ::testing::Test {};
using PlainPrecisions = ::testing::Types<Fp32, Fp64>;
TYPED_TEST_SUITE(Memory, PlainPrecisions);

TYPED_TEST(Memory, PlannedBytesMatchTheAllocation) {
  for (const std::int64_t micro : {1, 3})
    for (const bool tied : {true, false}) {
      deck::Config config;
      config.model = golden_model();
      config.model.hidden = 21;
      config.model.tied_embeddings = tied;
      config.batch.micro = micro;
      config.precision.compute = dtype_of<typename TypeParam::Compute>;
      const auto architecture = architecture::describe(config.model);
      const Parameters<TypeParam> parameters(architecture, architecture::whole_model(architecture),
                                             true);
      const WholeModel<TypeParam> stage(architecture, parameters, {micro, 2, true, false});
      const auto plan =
          plan::training_memory(config, architecture, parameters.shard(), {.slots = 2}, {});
      EXPECT_EQ(plan.at(0).bytes, parameters.weight_bytes());
      EXPECT_EQ(plan.at(1).bytes, parameters.gradient_bytes());
      EXPECT_EQ(plan.at(3).bytes, stage.rank_model().saved_bytes());
      EXPECT_EQ(plan.at(5).bytes - plan::history_bytes(config.run, 1),
                stage.rank_model().scratch_bytes());
    }
}

}  // namespace
}  // namespace trireme::model
