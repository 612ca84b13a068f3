#include <trireme/deck/families.hpp>

#include <trireme/deck/table.hpp>
#include <trireme/deck/value.hpp>

#include <gtest/gtest.h>

#include "deck/example.hpp"

namespace trireme::deck {
namespace {

/// Sizes that the presets of all families fit.
Config config_of(Family family, std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.end(), {text("model.family=", name_of(family)), "model.layers=4",
                                     "model.head_size=192"});
  if (family == Family::t5)
    overrides.insert(overrides.end(), {"encoder.sequence=512", "model.sequence=114"});
  return parse_deck(example, "a.toml", overrides).config;
}
ModelConfig model_of(Family family, const std::vector<std::string>& overrides = {}) {
  return config_of(family, overrides).model;
}

/// Properties of the published models of a family.
struct Published {
  Family family;
  NormKind norm;
  NormPlacement placement;
  double epsilon;
  QueryKeyNorm query_key_norm;
  Positions positions;
  double theta;
  Activation activation;
  Gelu gelu;
  Biases biases;
  Mask mask;
  std::int64_t window;
  Objective objective;
  bool gemma = false;  ///< gains around 0, scaled embeddings
  std::int64_t full_attention_every = 0;
  double window_theta = 0;
  double attention_softcap = 0;
  double logit_softcap = 0;
  ExpertsConfig experts = {};
  bool sinks = false;
  /// key_value_rank, query_rank, rotary_size and value_size of latent attention.
  std::array<std::int64_t, 4> latent = {};
};

constexpr auto pre = NormPlacement::pre;
constexpr auto rms = NormKind::rms;
constexpr auto rotary = Positions::rotary;
constexpr auto swiglu = Activation::swiglu;
constexpr auto geglu = Activation::geglu;
constexpr auto causal = Mask::causal;
constexpr auto next = Objective::next_token;

constexpr auto without = QueryKeyNorm::none;
constexpr Published published[] = {
    {Family::gpt, NormKind::layer, pre, 1e-5, without, Positions::learned, 1e4, Activation::gelu,
     Gelu::tanh, Biases::all, causal, 0, next},
    {Family::llama, rms, pre, 1e-5, without, rotary, 1e4, swiglu, Gelu::tanh, Biases::none, causal,
     0, next},
    {Family::bert, NormKind::layer, NormPlacement::post, 1e-12, without, Positions::learned, 1e4,
     Activation::gelu, Gelu::exact, Biases::all, Mask::full, 0, Objective::masked_token},
    {Family::qwen2, rms, pre, 1e-6, without, rotary, 1e6, swiglu, Gelu::tanh,
     Biases::query_key_value, causal, 0, next},
    {Family::qwen3, rms, pre, 1e-6, QueryKeyNorm::head, rotary, 1e6, swiglu, Gelu::tanh,
     Biases::none, causal, 0, next},
    {Family::mistral, rms, pre, 1e-5, without, rotary, 1e4, swiglu, Gelu::tanh, Biases::none,
     causal, 4096, next},
    {Family::gemma, rms, pre, 1e-6, without, rotary, 1e4, geglu, Gelu::tanh, Biases::none, causal,
     0, next, true},
    {Family::gemma2, rms, NormPlacement::sandwich, 1e-6, without, rotary, 1e4, geglu, Gelu::tanh,
     Biases::none, causal, 4096, next, true, 2, 0, 50, 30},
    {Family::gemma3, rms, NormPlacement::sandwich, 1e-6, QueryKeyNorm::head, rotary, 1e6, geglu,
     Gelu::tanh, Biases::none, causal, 4096, next, true, 6, 1e4},
    {Family::olmo2, rms, NormPlacement::output, 1e-6, QueryKeyNorm::width, rotary, 5e5, swiglu,
     Gelu::tanh, Biases::none, causal, 0, next},
    {.family = Family::mixtral,
     .norm = rms,
     .placement = pre,
     .epsilon = 1e-5,
     .query_key_norm = without,
     .positions = rotary,
     .theta = 1e6,
     .activation = swiglu,
     .gelu = Gelu::tanh,
     .biases = Biases::none,
     .mask = causal,
     .window = 0,
     .objective = next,
     .experts = {8, 2}},
    {.family = Family::qwen3_moe,
     .norm = rms,
     .placement = pre,
     .epsilon = 1e-6,
     .query_key_norm = QueryKeyNorm::head,
     .positions = rotary,
     .theta = 1e6,
     .activation = swiglu,
     .gelu = Gelu::tanh,
     .biases = Biases::none,
     .mask = causal,
     .window = 0,
     .objective = next,
     .experts = {128, 8}},
    {.family = Family::olmoe,
     .norm = rms,
     .placement = pre,
     .epsilon = 1e-5,
     .query_key_norm = QueryKeyNorm::width,
     .positions = rotary,
     .theta = 1e4,
     .activation = swiglu,
     .gelu = Gelu::tanh,
     .biases = Biases::none,
     .mask = causal,
     .window = 0,
     .objective = next,
     .experts = {64, 8, 0, false}},
    {.family = Family::qwen2_moe,
     .norm = rms,
     .placement = pre,
     .epsilon = 1e-6,
     .query_key_norm = without,
     .positions = rotary,
     .theta = 1e6,
     .activation = swiglu,
     .gelu = Gelu::tanh,
     .biases = Biases::query_key_value,
     .mask = causal,
     .window = 0,
     .objective = next,
     .experts = {.number = 60, .active = 4, .normalised = false, .shared_gate = true}},
    {.family = Family::gpt_oss,
     .norm = rms,
     .placement = pre,
     .epsilon = 1e-5,
     .query_key_norm = without,
     .positions = rotary,
     .theta = 150000,
     .activation = Activation::clamped_swiglu,
     .gelu = Gelu::tanh,
     .biases = Biases::all,
     .mask = causal,
     .window = 128,
     .objective = next,
     .full_attention_every = 2,
     .experts = {.number = 128, .active = 4},
     .sinks = true},
    {.family = Family::deepseek_v3,
     .norm = rms,
     .placement = pre,
     .epsilon = 1e-6,
     .query_key_norm = without,
     .positions = rotary,
     .theta = 1e4,
     .activation = swiglu,
     .gelu = Gelu::tanh,
     .biases = Biases::none,
     .mask = causal,
     .window = 0,
     .objective = next,
     .experts = {.number = 256,
                 .active = 8,
                 .first_layer = 3,
                 .score = ExpertScore::sigmoid,
                 .scale = 2.5,
                 .groups = 8,
                 .active_groups = 4,
                 .choice_bias = true},
     .latent = {512, 1536, 64, 128}},
    {.family = Family::t5,
     .norm = rms,
     .placement = pre,
     .epsilon = 1e-6,
     .query_key_norm = without,
     .positions = Positions::relative,
     .theta = 1e4,
     .activation = Activation::relu,
     .gelu = Gelu::tanh,
     .biases = Biases::none,
     .mask = causal,
     .window = 0,
     .objective = Objective::corrupted_spans},
};

TEST(Families, HaveThePropertiesOfTheirPublishedModels) {
  ASSERT_EQ(std::size(published), names<Family>().size());
  for (const Published& p : published) {
    const ModelConfig m = model_of(p.family);
    SCOPED_TRACE(name_of(p.family));
    EXPECT_EQ(m.family, p.family);
    EXPECT_EQ(m.norm, p.norm);
    EXPECT_EQ(m.norm_placement, p.placement);
    EXPECT_EQ(m.norm_epsilon, p.epsilon);
    EXPECT_EQ(m.query_key_norm, p.query_key_norm);
    EXPECT_EQ(m.positions, p.positions);
    EXPECT_EQ(m.rope_theta, p.theta);
    EXPECT_EQ(m.activation, p.activation);
    EXPECT_EQ(m.gelu, p.gelu);
    EXPECT_EQ(m.biases, p.biases);
    EXPECT_EQ(m.mask, p.mask);
    EXPECT_EQ(m.window, p.window);
    EXPECT_EQ(m.objective, p.objective);
    EXPECT_EQ(m.zero_centered_gains, p.gemma);
    EXPECT_EQ(m.scaled_embeddings, p.gemma);
    EXPECT_EQ(m.full_attention_every, p.full_attention_every);
    EXPECT_EQ(m.window_rope_theta, p.window_theta);
    EXPECT_EQ(m.attention_softcap, p.attention_softcap);
    EXPECT_EQ(m.logit_softcap, p.logit_softcap);
    EXPECT_EQ(m.attention_sinks, p.sinks);
    EXPECT_EQ(m.query_pre_attention_scalar, p.family == Family::t5 ? 1 : 0);
    EXPECT_EQ(m.scaled_logits, p.family == Family::t5);
    EXPECT_EQ(m.encoder.layers, p.family == Family::t5 ? 4 : 0);
    EXPECT_EQ((std::array{m.key_value_rank, m.query_rank, m.rotary_size, m.value_size}), p.latent);
    EXPECT_EQ(m.rope_interleaved, p.latent[0] > 0);
    ExpertsConfig experts = p.experts;
    experts.feed_forward = m.feed_forward;
    if (experts.shared_gate || p.latent[0] > 0) experts.shared_feed_forward = m.feed_forward;
    experts.balance = experts.present() ? ExpertBalance::sequence : ExpertBalance::none;
    EXPECT_EQ(m.experts, experts);
  }
}

/// The sizes that config_of() sets for some families only.
void set_lengths(ModelConfig& m, const ModelConfig& from) {
  m.sequence = from.sequence;
  m.encoder = from.encoder;
}

/// set_family gives a deck's sizes the same properties as the deck's family does.
TEST(Families, DecksAndCodeUseTheSamePresets) {
  const ModelConfig sizes = model_of(Family::gpt);
  for (const Published& p : published) {
    ModelConfig m = sizes;
    set_family(m, p.family);
    set_lengths(m, model_of(p.family));
    EXPECT_EQ(m, model_of(p.family)) << name_of(p.family);
    EXPECT_EQ(preset(p.family).window, p.window);
  }
}

TEST(Families, ChangingTheFamilyResetsEveryProperty) {
  for (const Published& from : published)
    for (const Published& to : published) {
      ModelConfig m = model_of(from.family);
      set_family(m, to.family);
      set_lengths(m, model_of(to.family));
      EXPECT_EQ(m, model_of(to.family)) << name_of(from.family) << " to " << name_of(to.family);
    }
}

/// Properties that the family presets, but another one excludes.
void drop_excluded(ModelConfig& m) {
  if (m.norm != NormKind::rms) m.zero_centered_gains = false;
  if (m.positions != Positions::rotary) m.window_rope_theta = 0;
  if (m.activation != Activation::clamped_swiglu) m.activation_limit = 7;
  if (m.predicts_masked_tokens()) m.logit_softcap = 0;
}

/// Another value that a property may have by itself.
Value another(const Key& key, const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return !*flag;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer + 2;
  if (const auto* number = std::get_if<double>(&value)) return *number / 2;
  return std::string(key.choices[std::get<std::string>(value) == key.choices[0] ? 1 : 0]);
}

TEST(Families, ADeckOverridesAnySingleProperty) {
  for (const Published& p : published)
    for (const char* name :
         {"norm", "norm_placement", "norm_epsilon", "query_key_norm", "positions", "rope_theta",
          "activation", "gelu", "biases", "mask", "window", "objective"}) {
      const Key& key = *find_key("model", name);
      Config expected = config_of(p.family);
      const Value value = another(key, key.load(expected));
      key.store(expected, value);
      ModelConfig& m = expected.model;
      drop_excluded(m);
      if (!m.causal() && (m.window > 0 || !m.predicts_masked_tokens())) continue;  // contradictory
      // An encoder needs these, and positions and objective of t5 need an encoder.
      if (m.encoder.present() && (m.positions != Positions::relative || !m.predicts_spans() ||
                                  m.window > 0 || m.norm_placement != NormPlacement::pre))
        continue;
      if (m.has_latent_attention() &&
          (m.positions != Positions::rotary || m.query_key_norm != QueryKeyNorm::none ||
           m.biases != Biases::none || m.window > 0))
        continue;
      EXPECT_EQ(model_of(p.family, {text("model.", name, "=", literal(key, value))}), m)
          << name_of(p.family) << " " << name;
    }
}

}  // namespace
}  // namespace trireme::deck
