#include <trireme/deck/families.hpp>
#include <trireme/model/decoder.hpp>
#include <trireme/model/rank_model.hpp>

#include "model/golden_gradients.hpp"
#include "model/vision_batch.hpp"
#include "model/whole_model.hpp"
#include "support/small_gpt.hpp"

#include <gtest/gtest.h>

/// A language model that reads images against Hugging Face transformers'
/// LlavaForConditionalGeneration (tests/golden/llava_fp64/make.py).
namespace trireme::model {
namespace {

using namespace trireme::testing;

deck::ModelConfig vision_model(VisionFamily family) {
  deck::ModelConfig m;
  deck::set_family(m, Family::llama);
  m.layers = 2;
  m.hidden = 32;
  m.heads = 4;
  m.key_value_heads = 2;
  m.feed_forward = 36;
  m.sequence = image_sequence;
  m.vocabulary = image_vocabulary;
  m.tied_embeddings = false;
  m.vision = {.family = family,
              .layers = 2,
              .hidden = 24,
              .heads = 3,
              .feed_forward = 40,
              .image = 12,
              .patch = 4,
              .images = 2};
  return m;
}

GoldenGradients vision_golden(VisionFamily family) {
  return {text("llava_fp64/", name_of(family)), image_stride};
}

/// (family, recompute, split backward pass)
class Vision : public ::testing::TestWithParam<std::tuple<VisionFamily, Recompute, bool>> {};
INSTANTIATE_TEST_SUITE_P(
    All, Vision,
    ::testing::Combine(::testing::Values(VisionFamily::clip, VisionFamily::siglip),
                       ::testing::Values(Recompute::none, Recompute::selective, Recompute::full),
                       ::testing::Bool()),
    [](const auto& test) {
      return text(name_of(std::get<0>(test.param)), "_", name_of(std::get<1>(test.param)),
                  std::get<2>(test.param) ? "_split" : "");
    });

TEST_P(Vision, LossAndGradientsMatchTransformers) {
  const auto& [family, recompute, split] = GetParam();
  const GoldenGradients golden = vision_golden(family);
  const auto architecture = architecture::describe(vision_model(family));
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), true);
  golden.set_weights(parameters);
  const WholeModel<Fp64> stage(architecture, parameters,
                               {image_samples, 1, true, split, recompute});
  const kernels::Handle handle;
  set_vision_batch(stage, architecture.model.vision);
  const MicroContext micro = vision_context();
  stage.zero_loss(handle);
  stage.forward(handle, 0, micro);
  if (split) {
    stage.backward_input(handle, 0, micro);
    stage.backward_weight(handle, 0, micro, [](std::int64_t) {});
  } else {
    stage.backward(handle, 0, micro, [](std::int64_t) {});
  }
  EXPECT_NEAR(value_of(stage.loss()) * micro.token_weight, golden.losses.front(),
              1e-10 * golden.losses.front());
  golden.expect_gradients(architecture, parameters);
}

class VisionFamilies : public ::testing::TestWithParam<VisionFamily> {};
INSTANTIATE_TEST_SUITE_P(Models, VisionFamilies,
                         ::testing::Values(VisionFamily::clip, VisionFamily::siglip),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_P(VisionFamilies, EvaluationMatchesTransformers) {
  const GoldenGradients golden = vision_golden(GetParam());
  const auto architecture = architecture::describe(vision_model(GetParam()));
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), false);
  golden.set_weights(parameters);
  const WholeModel<Fp64> stage(architecture, parameters, {image_samples, 1, false, false});
  const kernels::Handle handle;
  set_vision_batch(stage, architecture.model.vision);
  stage.zero_loss(handle);
  stage.evaluate(handle, 0, vision_context(), image_samples);
  EXPECT_NEAR(value_of(stage.loss()) * vision_context().token_weight, golden.losses.front(),
              1e-10 * golden.losses.front());
}

TEST_P(VisionFamilies, GradientsWithDropoutMatchFiniteDifferences) {
  const auto architecture = architecture::describe(vision_model(GetParam()));
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), true);
  vision_golden(GetParam()).set_weights(parameters);
  const WholeModel<Fp64> stage(architecture, parameters, {image_samples, 1, true, false});
  const kernels::Handle handle;
  const MicroContext micro = vision_context(0.2);
  const auto loss = [&] {
    set_vision_batch(stage, architecture.model.vision);
    stage.zero_loss(handle);
    stage.forward(handle, 0, micro);
    return value_of(stage.loss()) * micro.token_weight;
  };
  loss();
  stage.backward(handle, 0, micro, [](std::int64_t) {});
  expect_derivatives(parameters, loss);
}

TEST_P(VisionFamilies, PlansTheirMemory) {
  expect_planned_bytes(vision_model(GetParam()), [](deck::ModelConfig&, bool) {});
}

/// The golden batch's samples as texts in a cache, token by token or several at a time: the logits
/// after each token are those of the whole model.
TEST_P(VisionFamilies, CachedLogitsMatchTheUncachedModel) {
  const GoldenGradients golden = vision_golden(GetParam());
  const auto architecture = architecture::describe(vision_model(GetParam()));
  const deck::VisionConfig& vision = architecture.model.vision;
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), false);
  golden.set_weights(parameters);
  const WholeModel<Fp64> stage(architecture, parameters, {image_samples, 1, false, false});
  const kernels::Handle handle;
  set_vision_batch(stage, vision);
  stage.zero_loss(handle);
  stage.evaluate(handle, 0, vision_context(), image_samples);
  const auto logits = stage.rank_model().head_tensor<double>(0, "logits");
  const std::size_t stride = logits.stride(0);
  const auto expected = values_of(View1<double>(logits.data(), logits.extent(0) * stride));
  const auto tokens = values_of(stage.tokens(0)), rows = values_of(stage.field(0, "image_rows"));
  const auto pixels = values_of(stage.field(0, "pixels"));

  const auto alone = grid::Communicator::self();
  Decoder<Fp64> decoder(architecture, parameters, *alone, {image_samples, image_samples});
  for (const std::int32_t text : {2, 0, 1})
    decoder.see(handle, text,
                std::span(pixels).subspan(static_cast<std::size_t>(text * vision.pixel_words()),
                                          static_cast<std::size_t>(vision.pixel_words())));
  const auto token = [&](std::int32_t text, std::int64_t s) {
    const auto at = static_cast<std::size_t>(text * image_sequence + s);
    return CachedToken{text, tokens[at], static_cast<std::int32_t>(s), rows[at]};
  };
  std::vector<CachedToken> wide;  // the first tokens of text 2
  for (std::int64_t s = 0; s < 9; ++s) wide.push_back(token(2, s));
  decoder.run(handle, wide, PassWidth::wide, false);
  double largest = 0;
  for (const double x : expected) largest = std::max(largest, std::abs(x));
  for (std::int64_t s = 0; s < image_sequence; ++s) {
    std::vector<CachedToken> narrow{token(0, s), token(1, s)};
    if (s >= 9) narrow.push_back(token(2, s));
    decoder.run(handle, narrow, PassWidth::narrow, true);
    const auto found = values_of(decoder.logits());
    for (std::size_t r = 0; r < narrow.size(); ++r)
      for (std::size_t v = 0; v < image_vocabulary; ++v)
        ASSERT_NEAR(found[r * image_vocabulary + v],
                    expected[(r * image_sequence + static_cast<std::size_t>(s)) * stride + v],
                    1e-10 * largest)
            << "text " << r << ", token " << s << ", logit " << v;
  }
}

}  // namespace
}  // namespace trireme::model
