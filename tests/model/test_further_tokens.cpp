#include <trireme/architecture/objective.hpp>
#include <trireme/deck/families.hpp>
#include <trireme/model/rank_model.hpp>

#include "model/golden_gradients.hpp"
#include "model/whole_model.hpp"
#include "support/small_gpt.hpp"

#include <gtest/gtest.h>

#include <algorithm>

/// Modules that predict further tokens, after the layers of Qwen3 and of DeepSeek-V3, against
/// PyTorch (tests/golden/further_tokens_fp64/make.py).
namespace trireme::model {
namespace {

using namespace trireme::testing;

constexpr std::int64_t further_samples = 2;
constexpr std::int64_t further_sequence = 61;
constexpr std::int64_t further_stride = 97;  ///< of the stored elements of gradients

deck::ModelConfig further_model(Family family) {
  deck::ModelConfig m;
  deck::set_family(m, family);
  m.layers = 2;
  m.hidden = 144;
  m.heads = 6;
  m.key_value_heads = 3;
  m.explicit_head_size = 32;
  m.feed_forward = 100;
  m.sequence = further_sequence;
  m.vocabulary = 503;
  m.tied_embeddings = false;
  m.predicts = 3;
  m.predict_weight = 0.7;
  if (family == Family::qwen3) return m;
  m.predicts = 2;
  m.layers = 3;
  m.key_value_heads = 6;
  m.key_value_rank = 36;
  m.query_rank = 40;
  m.rotary_size = 12;
  m.value_size = 24;
  m.rope_theta = 100;
  m.rope_scaling = RotaryScalingKind::yarn;
  m.rope_factor = 4;
  m.rope_beta_fast = 0.8;
  m.rope_beta_slow = 0.1;
  m.rope_mscale = m.rope_mscale_all = 1;
  m.rope_original_sequence = 16;
  m.experts.number = 6;
  m.experts.active = 2;
  m.experts.feed_forward = m.experts.shared_feed_forward = 24;
  m.experts.groups = 3;
  m.experts.active_groups = 2;
  m.experts.first_layer = 1;
  m.experts.balance = ExpertBalance::none;
  return m;
}

/// Token of sample b at position s.
std::int32_t further_token(std::int64_t b, std::int64_t s) {
  return static_cast<std::int32_t>((7919 + b * 104729 + s * 1299709 + s * s * (b + 31)) % 503);
}
/// Whether the target of a row counts.
bool counts(std::int64_t b, std::int64_t s) {
  return (b * further_sequence + s) % 5 != 3;
}
std::int64_t counted_targets() {
  std::int64_t n = 0;
  for (std::int64_t b = 0; b < further_samples; ++b)
    for (std::int64_t s = 0; s < further_sequence; ++s) n += counts(b, s) ? 1 : 0;
  return n;
}

/// Rows of the n-th predicted token that have no target have a token of their own, on which nothing
/// may depend.
template <class P>
void set_further_batch(const WholeModel<P>& stage, std::int64_t predicts) {
  for (std::int64_t n = 1; n <= predicts; ++n) {
    std::vector<std::int32_t> tokens, targets;
    for (std::int64_t b = 0; b < further_samples; ++b)
      for (std::int64_t s = 0; s < further_sequence; ++s) {
        const bool inside = s + n - 1 < further_sequence;
        tokens.push_back(inside ? further_token(b, s + n - 1) : 311);
        targets.push_back(inside && counts(b, s + n - 1) ? further_token(b, s + n) : -1);
      }
    const std::string suffix = n == 1 ? "" : text("_", n);
    set_values(stage.field(0, "tokens" + suffix), tokens);
    set_values(stage.field(0, "targets" + suffix), targets);
  }
}

MicroContext further_context(double dropout = 0) {
  MicroContext c;
  c.seed = 7;
  c.step = 3;
  c.sequence = further_sequence;
  c.dropout = dropout;
  c.token_weight = 1.0 / static_cast<double>(counted_targets());
  return c;
}

GoldenGradients further_golden(Family family) {
  return {text("further_tokens_fp64/", name_of(family)), further_stride};
}

/// The means of the terms.
template <class P>
std::vector<double> means(const WholeModel<P>& stage) {
  const RankModel<P>& model = stage.rank_model();
  std::vector<double> found = model.objective().terms_of(values_of(model.losses()));
  for (double& mean : found) mean /= static_cast<double>(counted_targets());
  return found;
}

void expect_losses(const std::vector<double>& found, const GoldenGradients& golden) {
  ASSERT_EQ(found.size(), golden.losses.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], golden.losses[i], 1e-10 * golden.losses[i]) << "term " << i;
}

/// (family, recompute, split backward pass)
class FurtherTokens : public ::testing::TestWithParam<std::tuple<Family, Recompute, bool>> {};
INSTANTIATE_TEST_SUITE_P(All, FurtherTokens,
                         ::testing::Combine(::testing::Values(Family::qwen3, Family::deepseek_v3),
                                            ::testing::Values(Recompute::none, Recompute::selective,
                                                              Recompute::full),
                                            ::testing::Bool()),
                         [](const auto& test) {
                           return text(name_of(std::get<0>(test.param)), "_",
                                       name_of(std::get<1>(test.param)),
                                       std::get<2>(test.param) ? "_split" : "");
                         });

TEST_P(FurtherTokens, LossesAndGradientsMatchPyTorch) {
  const auto& [family, recompute, split] = GetParam();
  const GoldenGradients golden = further_golden(family);
  const deck::ModelConfig model = further_model(family);
  golden.expect_batch(
      model, further_samples, recompute, split, further_context(),
      [&](const auto& stage) { set_further_batch(stage, model.predicts); },
      [&](const auto& stage) { expect_losses(means(stage), golden); });
}

class FurtherTokensByFamily : public ::testing::TestWithParam<Family> {};
INSTANTIATE_TEST_SUITE_P(Models, FurtherTokensByFamily,
                         ::testing::Values(Family::qwen3, Family::deepseek_v3),
                         [](const auto& test) { return text(name_of(test.param)); });

TEST_P(FurtherTokensByFamily, EvaluationMatchesPyTorch) {
  const GoldenGradients golden = further_golden(GetParam());
  const auto architecture = architecture::describe(further_model(GetParam()));
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), false);
  golden.set_weights(parameters);
  const WholeModel<Fp64> stage(architecture, parameters, {further_samples, 1, false, false});
  const kernels::Handle handle;
  set_further_batch(stage, architecture.model.predicts);
  stage.zero_loss(handle);
  stage.evaluate(handle, 0, further_context(), further_samples);
  expect_losses(means(stage), golden);
}

/// With learned positions, biases, tied and scaled embeddings, and dropout.
TEST(FurtherTokensOfGpt, GradientsWithDropoutMatchFiniteDifferences) {
  deck::ModelConfig m = further_model(Family::qwen3);
  deck::ModelConfig gpt;
  deck::set_family(gpt, Family::gpt);
  gpt.layers = 2;
  gpt.hidden = 24;
  gpt.heads = gpt.key_value_heads = 3;
  gpt.feed_forward = 40;
  gpt.sequence = m.sequence;
  gpt.vocabulary = m.vocabulary;
  gpt.scaled_embeddings = true;
  gpt.predicts = 3;
  gpt.predict_weight = 0.9;
  const auto architecture = architecture::describe(gpt);
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), true);
  set_golden_weights(parameters);
  const WholeModel<Fp64> stage(architecture, parameters, {further_samples, 1, true, false});
  const kernels::Handle handle;
  const MicroContext micro = further_context(0.2);
  const auto loss = [&] {
    set_further_batch(stage, gpt.predicts);
    stage.zero_loss(handle);
    stage.forward(handle, 0, micro);
    const std::vector<double> terms = means(stage);
    return terms[0] + gpt.predict_weight * (terms[1] + terms[2]) / 2;
  };
  loss();
  stage.backward(handle, 0, micro, [](std::int64_t) {});
  expect_derivatives(parameters, loss);
}

TEST_P(FurtherTokensByFamily, PlannedBytesMatchTheAllocation) {
  for (const std::int64_t feed_forward : {100, 300})
    expect_planned_bytes(further_model(GetParam()), [&](deck::ModelConfig& model, bool) {
      model.feed_forward = feed_forward;
    });
}

}  // namespace
}  // namespace trireme::model
