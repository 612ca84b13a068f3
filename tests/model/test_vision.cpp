#include <trireme/deck/families.hpp>
#include <trireme/model/decoder.hpp>
#include <trireme/model/rank_model.hpp>

#include "model/golden_gradients.hpp"
#include "model/vision_batch.hpp"
#include "model/whole_model.hpp"
#include "support/small_gpt.hpp"

#include <gtest/gtest.h>

/// Language models that read images against Hugging Face transformers'
/// LlavaForConditionalGeneration (tests/golden/llava_fp64/make.py) and
/// Gemma3ForConditionalGeneration (tests/golden/gemma3_images_fp64/make.py).
namespace trireme::model {
namespace {

using namespace trireme::testing;

/// A golden model. `window`: of the first layer; `gap`: tokens between the images of a sample.
struct VisionCase {
  const char* name;
  VisionFamily family;
  std::int64_t window = 0;
  std::int64_t gap = image_gap;
};
constexpr VisionCase clip{"clip", VisionFamily::clip}, siglip{"siglip", VisionFamily::siglip},
    short_window{"short", VisionFamily::gemma3, 5}, long_window{"long", VisionFamily::gemma3, 13},
    joined{"joined", VisionFamily::gemma3, 5, 0};
const auto vision_cases = ::testing::Values(clip, siglip, short_window, long_window, joined);

deck::ModelConfig vision_model(const VisionCase& of) {
  const bool gemma = of.family == VisionFamily::gemma3;
  deck::ModelConfig m;
  deck::set_family(m, gemma ? Family::gemma3 : Family::llama);
  m.layers = 2;
  m.hidden = 32;
  m.heads = 4;
  m.key_value_heads = 2;
  m.feed_forward = 36;
  m.sequence = image_sequence;
  m.vocabulary = image_vocabulary;
  m.tied_embeddings = gemma;
  m.vision = {.family = of.family,
              .layers = 2,
              .hidden = 24,
              .heads = 3,
              .feed_forward = 40,
              .image = 12,
              .patch = gemma ? 2 : 4,
              .pool = gemma ? 2 : 1,
              .images = 2};
  if (!gemma) return m;
  m.explicit_head_size = 10;
  m.query_pre_attention_scalar = 12;
  m.window = of.window;
  m.full_attention_every = 2;
  m.rope_scaling = RotaryScalingKind::linear;
  m.rope_factor = 8;
  return m;
}

GoldenGradients vision_golden(const VisionCase& of) {
  const bool gemma = of.family == VisionFamily::gemma3;
  return {text(gemma ? "gemma3_images_fp64/" : "llava_fp64/", of.name), image_stride};
}

/// (model, recompute, split backward pass)
class Vision : public ::testing::TestWithParam<std::tuple<VisionCase, Recompute, bool>> {};
INSTANTIATE_TEST_SUITE_P(All, Vision,
                         ::testing::Combine(vision_cases,
                                            ::testing::Values(Recompute::none, Recompute::selective,
                                                              Recompute::full),
                                            ::testing::Bool()),
                         [](const auto& test) {
                           return text(std::get<0>(test.param).name, "_",
                                       name_of(std::get<1>(test.param)),
                                       std::get<2>(test.param) ? "_split" : "");
                         });

TEST_P(Vision, LossAndGradientsMatchTransformers) {
  const auto& [of, recompute, split] = GetParam();
  const GoldenGradients golden = vision_golden(of);
  const deck::ModelConfig model = vision_model(of);
  golden.expect_batch(
      model, image_samples, recompute, split, vision_context(),
      [&](const auto& stage) { set_vision_batch(stage, model.vision, of.gap); },
      [&](const auto& stage) { golden.expect_loss(stage, vision_context()); });
}

class VisionModels : public ::testing::TestWithParam<VisionCase> {};
INSTANTIATE_TEST_SUITE_P(Models, VisionModels, vision_cases,
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(VisionModels, EvaluationMatchesTransformers) {
  const GoldenGradients golden = vision_golden(GetParam());
  const auto architecture = architecture::describe(vision_model(GetParam()));
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), false);
  golden.set_weights(parameters, architecture.model);
  const WholeModel<Fp64> stage(architecture, parameters, {image_samples, 1, false, false});
  const kernels::Handle handle;
  set_vision_batch(stage, architecture.model.vision, GetParam().gap);
  stage.zero_loss(handle);
  stage.evaluate(handle, 0, vision_context(), image_samples);
  EXPECT_NEAR(value_of(stage.loss()) * vision_context().token_weight, golden.losses.front(),
              1e-10 * golden.losses.front());
}

TEST_P(VisionModels, GradientsWithDropoutMatchFiniteDifferences) {
  const auto architecture = architecture::describe(vision_model(GetParam()));
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), true);
  vision_golden(GetParam()).set_weights(parameters, architecture.model);
  const WholeModel<Fp64> stage(architecture, parameters, {image_samples, 1, true, false});
  const kernels::Handle handle;
  const MicroContext micro = vision_context(0.2);
  const auto loss = [&] {
    set_vision_batch(stage, architecture.model.vision, GetParam().gap);
    stage.zero_loss(handle);
    stage.forward(handle, 0, micro);
    return value_of(stage.loss()) * micro.token_weight;
  };
  loss();
  stage.backward(handle, 0, micro, [](std::int64_t) {});
  expect_derivatives(parameters, loss);
}

TEST_P(VisionModels, PlansTheirMemory) {
  expect_planned_bytes(vision_model(GetParam()), [](deck::ModelConfig&, bool) {});
}

/// The golden batch's samples as texts in a cache, token by token or several at a time: the logits
/// after each token are those of the whole model. If the tokens of an image see one another, they
/// are in one wide pass, and only the last one is passed again, for its logits.
TEST_P(VisionModels, CachedLogitsMatchTheUncachedModel) {
  const GoldenGradients golden = vision_golden(GetParam());
  const auto architecture = architecture::describe(vision_model(GetParam()));
  const deck::VisionConfig& vision = architecture.model.vision;
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), false);
  golden.set_weights(parameters, architecture.model);
  const WholeModel<Fp64> stage(architecture, parameters, {image_samples, 1, false, false});
  const kernels::Handle handle;
  set_vision_batch(stage, vision, GetParam().gap);
  stage.zero_loss(handle);
  stage.evaluate(handle, 0, vision_context(), image_samples);
  const auto logits = stage.rank_model().head_tensor<double>(0, "logits");
  const std::size_t stride = logits.stride(0);
  const auto expected = values_of(View1<double>(logits.data(), logits.extent(0) * stride));
  const auto tokens = values_of(stage.tokens(0)), rows = values_of(stage.field(0, "image_rows"));
  const auto pixels = values_of(stage.field(0, "pixels"));
  const bool whole = vision.sees_whole_images();
  const auto ends =
      whole ? values_of(stage.field(0, "key_end")) : std::vector<std::int32_t>(tokens.size());

  const auto alone = grid::Communicator::self();
  Decoder<Fp64> decoder(architecture, parameters, *alone, {image_samples, image_samples});
  for (const std::int32_t text : {2, 0, 1})
    decoder.see(handle, text,
                std::span(pixels).subspan(static_cast<std::size_t>(text * vision.pixel_words()),
                                          static_cast<std::size_t>(vision.pixel_words())));
  const auto token = [&](std::int32_t text, std::int64_t s) {
    const auto at = static_cast<std::size_t>(text * image_sequence + s);
    return CachedToken{text, tokens[at], static_cast<std::int32_t>(s), rows[at], ends[at]};
  };
  const auto pass = [&](std::int32_t text, std::int64_t from, std::int64_t to) {
    std::vector<CachedToken> wide;
    for (std::int64_t s = from; s < to; ++s) wide.push_back(token(text, s));
    decoder.run(handle, wide, PassWidth::wide, false);
  };
  const std::int64_t first = whole ? token(2, 8).end : 9;
  pass(2, 0, first);  // the first tokens of text 2
  double largest = 0;
  for (const double x : expected) largest = std::max(largest, std::abs(x));
  for (std::int64_t s = 0; s < image_sequence; ++s) {
    std::vector<CachedToken> narrow;
    for (std::int32_t text = 0; text < image_samples; ++text) {
      if (text == 2 && s < first) continue;
      const CachedToken next = token(text, s);
      const bool in_image = next.end > s + 1;
      if (in_image && token(text, s - 1).image_row < 0) pass(text, s, next.end);
      if (!in_image) narrow.push_back(next);
    }
    if (narrow.empty()) continue;
    decoder.run(handle, narrow, PassWidth::narrow, true);
    const auto found = values_of(decoder.logits());
    for (std::size_t r = 0; r < narrow.size(); ++r) {
      const std::size_t at = static_cast<std::size_t>(narrow[r].text * image_sequence + s) * stride;
      for (std::size_t v = 0; v < image_vocabulary; ++v)
        ASSERT_NEAR(found[r * image_vocabulary + v], expected[at + v], 1e-10 * largest)
            << "text " << narrow[r].text << ", token " << s << ", logit " << v;
    }
  }
}

/// A pass that has only some of the tokens of an image would give wrong results.
TEST(Vision, DecoderExpectsWholeImages) {
  const auto architecture = architecture::describe(vision_model(short_window));
  const Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), false);
  const auto alone = grid::Communicator::self();
  Decoder<Fp64> decoder(architecture, parameters, *alone, {1, 1});
  const kernels::Handle handle;
  const std::vector<CachedToken> part{{0, 1, 0, -1, 1}, {0, placeholder, 1, 0, 10}};
  EXPECT_THROW(decoder.run(handle, part, PassWidth::wide, false), Error);
}

}  // namespace
}  // namespace trireme::model
