#include <trireme/deck/families.hpp>
#include <trireme/model/rank_model.hpp>

#include "model/whole_model.hpp"
#include "support/small_gpt.hpp"
#include "support/source_folder.hpp"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <sstream>

/// The family bert against Hugging Face transformers' BertForPreTraining
/// (tests/golden/bert_fp64/make.py).
namespace trireme::model {
namespace {

using namespace trireme::testing;

constexpr std::int64_t bert_samples = 2;
constexpr std::int64_t sequence = 61;
constexpr std::int64_t masked = 9;
constexpr std::int64_t vocabulary = 503;
constexpr std::int64_t stored_stride = 29;

deck::ModelConfig bert_model(Gelu gelu, SentenceLoss sentence_loss = SentenceLoss::next) {
  deck::ModelConfig m;
  deck::set_family(m, Family::bert);
  m.layers = 2;
  m.hidden = 144;
  m.heads = m.key_value_heads = 6;
  m.feed_forward = 100;
  m.sequence = sequence;
  m.vocabulary = vocabulary;
  m.norm_epsilon = 1e-12;
  m.gelu = gelu;
  m.sentence_loss = sentence_loss;
  return m;
}

/// Of sample b at position s.
std::int32_t bert_token(std::int64_t b, std::int64_t s) {
  return static_cast<std::int32_t>((7919 + b * 104729 + s * 1299709 + s * s * (b + 31)) %
                                   vocabulary);
}

template <class P>
void set_batch(const WholeModel<P>& stage) {
  std::vector<std::int32_t> tokens, segments, targets, rows, pairs;
  for (std::int64_t b = 0; b < bert_samples; ++b) {
    for (std::int64_t s = 0; s < sequence; ++s) {
      tokens.push_back(bert_token(b, s));
      segments.push_back(s >= 20 + 13 * b ? 1 : 0);
    }
    for (std::int64_t k = 0; k < masked; ++k) {
      const std::int64_t at = 1 + b + 6 * k;
      rows.push_back(static_cast<std::int32_t>(b * sequence + at));
      targets.push_back(static_cast<std::int32_t>((bert_token(b, at) + 17 * k + 3) % vocabulary));
    }
    pairs.push_back(static_cast<std::int32_t>(b % 2));
  }
  set_values(stage.tokens(0), tokens);
  set_values(stage.field(0, "segments"), segments);
  set_values(stage.targets(0), targets);
  if (stage.rank_model().objective().find("pairs")) {
    for (std::int64_t b = 0; b < bert_samples; ++b)
      rows.push_back(static_cast<std::int32_t>(b * sequence));
    set_values(stage.field(0, "pairs"), pairs);
  }
  set_values(stage.field(0, "rows"), rows);
}

MicroContext bert_context(double dropout = 0) {
  MicroContext c;
  c.seed = 7;
  c.step = 3;
  c.sequence = sequence;
  c.dropout = dropout;
  c.token_weight = 1.0 / static_cast<double>(bert_samples * masked);
  return c;
}

/// Masked loss, sentence loss and their sum.
template <class P>
std::array<double, 3> losses(const WholeModel<P>& stage) {
  const double tokens = value_of(stage.loss()) / static_cast<double>(bert_samples * masked);
  const bool has_pairs = stage.rank_model().losses().extent(0) > 1;
  const double pairs = has_pairs ? value_of(stage.loss(1)) / static_cast<double>(bert_samples) : 0;
  return {tokens, pairs, tokens + pairs};
}

/// What make.py has written, line by line.
struct BertGolden {
  std::array<double, 3> loss{};
  std::map<std::string, std::array<double, 3>> sums;  ///< Σ g, Σ g·noise, Σ g²
  std::vector<double> logits;
  std::vector<double> pairs;
  std::vector<double> gradients;  ///< every 29th element of each array

  explicit BertGolden(Gelu form) {
    const std::string stem = golden_file(text("bert_fp64/", name_of(form)));
    std::ifstream in(stem + ".txt");
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      std::string name;
      words >> name;
      if (name == "logits" || name == "pairs") {
        for (double x = 0; words >> x;) (name == "pairs" ? pairs : logits).push_back(x);
        continue;
      }
      for (double& x : name == "loss" ? loss : sums[name]) words >> x;
    }
    gradients = read_doubles(stem + ".f64");
  }
};

/// (form of GELU, recompute, split backward pass)
class Bert : public ::testing::TestWithParam<std::tuple<Gelu, Recompute, bool>> {};
INSTANTIATE_TEST_SUITE_P(All, Bert,
                         ::testing::Combine(::testing::Values(Gelu::exact, Gelu::tanh),
                                            ::testing::Values(Recompute::none, Recompute::selective,
                                                              Recompute::full),
                                            ::testing::Bool()));

void expect_gradients(const BertGolden& golden, const Parameters<Fp64>& parameters) {
  double largest = 0;  // over the model: the norm of design promise 1
  for (const double g : golden.gradients) largest = std::max(largest, std::abs(g));
  ASSERT_EQ(golden.sums.size(), parameters.entries().size());
  std::size_t at = 0;
  for (const auto& entry : parameters.entries()) {
    std::vector<double> g = values_of(entry.gradient.data);
    if (entry.spec->name == "embedding.token") {
      const auto& second = parameters.tied_gradient();
      const auto logits = values_of(View1<double>(second.data(), second.size()));
      for (std::size_t i = 0; i < g.size(); ++i) g[i] += logits[i];
    }
    double sum = 0, projection = 0, squares = 0;
    for (std::size_t i = 0; i < g.size(); ++i) {
      sum += g[i];
      projection += g[i] * golden_noise(static_cast<std::int64_t>(i));
      squares += g[i] * g[i];
      if (i % stored_stride != 0) continue;
      ASSERT_LT(at, golden.gradients.size());
      ASSERT_NEAR(g[i], golden.gradients[at], 1e-9 * largest) << entry.spec->name << ", " << i;
      ++at;
    }
    // Each of n elements may be off by 1e-9 of the largest.
    const auto n = static_cast<double>(g.size());
    const auto& expected = golden.sums.at(entry.spec->name);
    EXPECT_NEAR(sum, expected[0], 1e-9 * largest * n) << entry.spec->name;
    EXPECT_NEAR(projection, expected[1], 1e-9 * largest * n) << entry.spec->name;
    EXPECT_NEAR(std::sqrt(squares), std::sqrt(expected[2]), 1e-9 * largest * std::sqrt(n))
        << entry.spec->name;
  }
  EXPECT_EQ(at, golden.gradients.size());
}

TEST_P(Bert, LossAndGradientsMatchTransformers) {
  const auto [form, recompute, split] = GetParam();
  const BertGolden golden(form);
  const auto architecture = architecture::describe(bert_model(form));
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), true);
  set_golden_weights(parameters);
  const WholeModel<Fp64> stage(architecture, parameters, {bert_samples, 1, true, split, recompute});
  const kernels::Handle handle;
  set_batch(stage);
  stage.zero_loss(handle);
  stage.forward(handle, 0, bert_context());
  if (split) {
    stage.backward_input(handle, 0, bert_context());
    stage.backward_weight(handle, 0, bert_context(), [](std::int64_t) {});
  } else {
    stage.backward(handle, 0, bert_context(), [](std::int64_t) {});
  }
  const auto found = losses(stage);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], golden.loss[i], 1e-9 * golden.loss[i]) << i;
  expect_gradients(golden, parameters);
}

class BertGelu : public ::testing::TestWithParam<Gelu> {};
INSTANTIATE_TEST_SUITE_P(Forms, BertGelu, ::testing::Values(Gelu::exact, Gelu::tanh));

/// Logits are nowhere stored whole: behind a forward pass without gradients the scratch memory
/// holds those of the last block, here all masked tokens.
TEST_P(BertGelu, Fp32LogitsMatchTransformers) {
  const BertGolden golden(GetParam());
  const auto architecture = architecture::describe(bert_model(GetParam()));
  Parameters<Fp32> parameters(architecture, architecture::whole_model(architecture), false);
  set_golden_weights(parameters);
  const WholeModel<Fp32> stage(architecture, parameters, {bert_samples, 1, false, false});
  set_batch(stage);
  stage.zero_loss(kernels::Handle());
  stage.evaluate(kernels::Handle(), 0, bert_context(), bert_samples);
  const auto expect_near = [](const std::vector<double>& found,
                              const std::vector<double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    double largest = 0;
    for (const double x : expected) largest = std::max(largest, std::abs(x));
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-4 * largest) << i;
  };
  const auto logits = values_of(stage.rank_model().head_tensor<float>(0, "logits"));
  std::vector<double> some;
  for (std::int64_t k = 0; k < masked; ++k)
    some.insert(some.end(), logits.begin() + k * vocabulary, logits.begin() + k * vocabulary + 16);
  expect_near(some, golden.logits);
  const auto scores = values_of(flat(stage.rank_model().head_tensor<float>(0, "scores")));
  expect_near({scores.begin(), scores.end()}, golden.pairs);
}

TEST_P(BertGelu, EvaluationMatchesTrainingLosses) {
  const auto architecture = architecture::describe(bert_model(GetParam()));
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), true);
  set_golden_weights(parameters);
  const WholeModel<Fp64> training(architecture, parameters, {bert_samples, 1, true, false});
  const WholeModel<Fp64> evaluating(architecture, parameters, {bert_samples, 1, false, false});
  const kernels::Handle handle;
  set_batch(training);
  set_batch(evaluating);
  training.zero_loss(handle);
  training.forward(handle, 0, bert_context());
  evaluating.zero_loss(handle);
  evaluating.evaluate(handle, 0, bert_context(), bert_samples);
  EXPECT_EQ(losses(evaluating), losses(training));
  evaluating.zero_loss(handle);
  evaluating.evaluate(handle, 0, bert_context(), 1);
  EXPECT_LT(losses(evaluating)[0], 0.9 * losses(training)[0]) << "of one sample alone";
  EXPECT_LT(losses(evaluating)[1], 0.9 * losses(training)[1]);
}

TEST(BertDropout, GradientsMatchFiniteDifferences) {
  for (const SentenceLoss sentence_loss : {SentenceLoss::order, SentenceLoss::none}) {
    const auto architecture = architecture::describe(bert_model(Gelu::exact, sentence_loss));
    Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), true);
    set_golden_weights(parameters);
    const WholeModel<Fp64> stage(architecture, parameters,
                                 {bert_samples, 1, true, false, Recompute::selective});
    const kernels::Handle handle;
    set_batch(stage);
    const auto loss = [&] {
      stage.zero_loss(handle);
      stage.forward(handle, 0, bert_context(0.2));
      return losses(stage)[2];
    };
    loss();
    stage.backward(handle, 0, bert_context(0.2), [](std::int64_t) {});
    expect_derivatives(parameters, loss);
  }
}

TEST(BertMemory, PlannedBytesMatchTheAllocation) {
  for (const SentenceLoss sentence_loss : {SentenceLoss::next, SentenceLoss::none})
    expect_planned_bytes(bert_model(Gelu::exact, sentence_loss), [](deck::ModelConfig&, bool) {});
}

}  // namespace
}  // namespace trireme::model
