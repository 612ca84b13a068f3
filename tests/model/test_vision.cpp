#include <trireme/deck/families.hpp>
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

}  // namespace
}  // namespace trireme::model
