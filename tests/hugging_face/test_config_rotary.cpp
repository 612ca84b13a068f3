// Scaled rotary positions in config.json: transformers' types, old and new files, and mistakes.
#include "configs.hpp"

#include <array>

namespace trireme::hugging_face {
namespace {

using namespace testing;
using Kind = RotaryScalingKind;

/// A llama with every number of the type away from its default.
deck::ModelConfig scaled(Kind kind) {
  deck::ModelConfig m = odd_llama(true);
  m.rope_scaling = kind;
  m.rope_theta = 500000;
  m.rope_factor = 8.5;
  if (kind != Kind::linear) m.rope_original_sequence = kind == Kind::dynamic ? m.sequence : 17;
  if (kind == Kind::llama3) {
    m.rope_low_frequency_factor = 1.5;
    m.rope_high_frequency_factor = 5.5;
  }
  if (kind == Kind::yarn) {
    m.rope_beta_fast = 31.5;
    m.rope_beta_slow = 1.25;
    m.rope_attention_factor = 1.125;
    m.rope_truncate = false;
  }
  return m;
}

constexpr std::array kinds{Kind::linear, Kind::dynamic, Kind::yarn, Kind::llama3};

TEST(ConfigRotary, WritesBothTransformersFormatsAndReadsBack) {
  for (const Kind kind : kinds) {
    const deck::ModelConfig model = scaled(kind);
    const std::string content = config_text(model, DType::fp32, {});
    EXPECT_EQ(parse_config(content, "c").model, model) << content;
    for (const char* name : {"rope_parameters", "rope_scaling"}) {
      json one = json::parse(content);
      one.erase(name);
      EXPECT_EQ(parse_config(one.dump(), "c").model, model) << "without " << name;
    }
    EXPECT_EQ(deck_of(model_toml(file_of(model))).config.model, model) << "as a deck's section";
  }
  EXPECT_EQ(config_text(odd_llama(true), DType::fp32, {}).find("rope_scaling"), std::string::npos);
}

TEST(ConfigRotary, ReadsConfigsOfTransformers) {
  for (const Kind kind : kinds) {
    const std::string path = text(TRIREME_SOURCE_DIR, "/tests/golden/decoders_hugging_face/llama_",
                                  name_of(kind), "/config.json");
    const deck::ModelConfig m = parse_config(read_file(path), path).model;
    EXPECT_EQ(m.rope_scaling, kind);
    EXPECT_EQ(m.rope_theta, 100);
    EXPECT_EQ(m.rope_factor, kind == Kind::linear    ? 2.5
                             : kind == Kind::dynamic ? 2
                             : kind == Kind::yarn    ? 4
                                                     : 8);
    EXPECT_EQ(m.rope_original_sequence, kind == Kind::linear ? 0 : 6);
    EXPECT_EQ(m.rope_beta_fast, kind == Kind::yarn ? 0.8 : 32);
    EXPECT_TRUE(m.rope_truncate);
    EXPECT_EQ(m.rope_high_frequency_factor, kind == Kind::llama3 ? 0.8 : 4);
  }
}

TEST(ConfigRotary, MissingMembersTakeTransformersDefaults) {
  const auto model = [](const std::string& parameters) {
    return parse_config(llama + ", \"rope_parameters\": " + parameters + "}", "c").model;
  };
  const auto yarn = model(R"({"type": "yarn", "factor": 4})");
  EXPECT_EQ(yarn.rope_original_sequence, 61) << "max_position_embeddings";
  EXPECT_EQ(yarn.rope_beta_fast, 32);
  EXPECT_EQ(yarn.rope_attention_factor, 0);
  EXPECT_TRUE(yarn.rope_truncate);
  EXPECT_TRUE(model(R"({"type": "yarn", "factor": 4, "truncate": true})").rope_truncate);
  EXPECT_FALSE(model(R"({"type": "yarn", "factor": 4, "truncate": false})").rope_truncate);
  EXPECT_TRUE(model(R"({"type": "linear", "factor": 4, "truncate": false})").rope_truncate)
      << "only yarn has limits";
  const auto scales = model(R"({"rope_type": "yarn", "factor": 40, "mscale": 1.0,
                               "mscale_all_dim": 0.5})");
  EXPECT_NEAR(scales.rope_attention_factor, (0.1 * std::log(40) + 1) / (0.05 * std::log(40) + 1),
              1e-15);
}

/// DeepSeek's factors of YaRN: mscale and mscale_all_dim, or none of them (0).
TEST(ConfigRotary, DeepseeksFactorsAreKeptAsTheyAre) {
  deck::ModelConfig model = odd_llama(false, Family::deepseek_v3);
  model.rope_scaling = Kind::yarn;
  model.rope_factor = 40;
  model.rope_original_sequence = 17;
  for (const auto& [one, all] : {std::pair(0.0, 0.0), {0.0, 0.5}, {0.75, 0.5}, {1.0, 1.0}}) {
    model.rope_mscale = one;
    model.rope_mscale_all = all;
    const std::string content = config_text(model, DType::fp32, {});
    for (const char* name : {"rope_parameters", "rope_scaling"}) {
      json file = json::parse(content);
      EXPECT_EQ(file[name].value("mscale", 0.0), one);
      EXPECT_EQ(file[name].value("mscale_all_dim", 0.0), all);
      EXPECT_FALSE(file[name].contains("attention_factor"));
      file.erase(name);
      EXPECT_EQ(parse_config(file.dump(), "c").model, model) << "without " << name;
    }
    EXPECT_EQ(deck_of(model_toml(file_of(model))).config.model, model) << "as a deck's section";
  }
  auto deck = deck_of(model_toml(file_of(model)));
  EXPECT_EQ(message_of([&] { expect_exportable(deck); }), "no error");
  deck.config.model.rope_mscale = 0;
  deck.config.model.rope_mscale_all = 0.5;
  expect_mentions(
      message_of([&] { expect_same_model(file_of(model), deck); }),
      {"rope_parameters.mscale = 1.0, but the deck has [model] rope_mscale",
       "rope_parameters.mscale_all_dim = 1.0, but the deck has [model] rope_mscale_all"});
}

TEST(ConfigRotary, SingleFactorsHaveTheEffectOfTransformers) {
  const auto read = [](Family family, const std::string& members) {
    const deck::ModelConfig model = odd_llama(false, family);
    json file = json::parse(config_text(model, DType::fp32, {}));
    for (const char* name : {"rope_scaling", "rope_theta"}) file.erase(name);
    file["rope_parameters"] =
        json::parse(R"({"rope_type": "yarn", "rope_theta": 1e4, "factor": 40)" + members + "}");
    return parse_config(file.dump(), "c").model;
  };
  for (const char* members :
       {"", R"(, "mscale": 0.7)", R"(, "mscale": 0.7, "mscale_all_dim": 0)"}) {
    const auto deepseek = read(Family::deepseek_v3, members);
    EXPECT_EQ(deepseek.rope_mscale, 0) << members;
    EXPECT_EQ(deepseek.rope_mscale_all, 0) << members;
    EXPECT_EQ(deepseek.rope_attention_factor, 0) << members;
    EXPECT_EQ(read(Family::llama, members).rope_attention_factor, 0) << members;
  }
  const auto all = R"(, "mscale_all_dim": 0.5)";
  EXPECT_EQ(read(Family::deepseek_v3, all).rope_mscale, 0);
  EXPECT_EQ(read(Family::deepseek_v3, all).rope_mscale_all, 0.5);
  EXPECT_EQ(read(Family::llama, all).rope_attention_factor, 0);
  const auto both = R"(, "mscale": 1.0, "mscale_all_dim": 0.5)";
  for (const Family family : {Family::llama, Family::qwen3, Family::gpt_oss}) {
    const auto other = read(family, both);
    EXPECT_EQ(other.rope_mscale, 0);
    EXPECT_EQ(other.rope_mscale_all, 0);
    EXPECT_GT(other.rope_attention_factor, 1);
  }
  const auto factor =
      read(Family::deepseek_v3, R"(, "attention_factor": 1.5, "mscale_all_dim": 1)");
  EXPECT_EQ(factor.rope_attention_factor, 1.5);
  EXPECT_EQ(factor.rope_mscale_all, 1);
}

TEST(ConfigRotary, ReportsTheInvalidMember) {
  const std::vector<std::pair<std::string, std::string>> wrong{
      {R"({"rope_type": "longrope", "factor": 2.0})",
       R"(.rope_type = "longrope", expected "default", "linear")"},
      {R"({"rope_type": "none"})", ".rope_type = \"none\", expected"},
      {R"({"rope_type": 7})", ".rope_type = 7, expected"},
      {R"({"rope_type": "linear"})", ".factor is missing, expected a number of at least 1"},
      {R"({"rope_type": "linear", "factor": 0.5})",
       ".factor = 0.5, expected a number of at least 1"},
      {R"({"rope_type": "llama3", "factor": 8})", ".low_freq_factor is missing"},
      {R"({"rope_type": "yarn", "factor": 8, "beta_fast": "x"})", ".beta_fast = \"x\", expected"},
      {R"({"rope_type": "yarn", "factor": 8, "truncate": 0})",
       ".truncate = 0, expected true or false"},
      {R"({"rope_type": "yarn", "factor": 8, "truncate": null})",
       ".truncate = null, expected true or false"},
      {R"({"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 0})",
       ".original_max_position_embeddings = 0, expected a whole number from 1"},
      {R"({"rope_type": "yarn", "factor": 8, "mscale": "x"})",
       ".mscale = \"x\", expected a number of at least 0"},
      {R"({"rope_type": "yarn", "factor": 8, "mscale_all_dim": -1})",
       ".mscale_all_dim = -1, expected a number of at least 0"},
      {R"({"rope_type": "linear", "factor": 2, "long_factor": [1]})",
       ".long_factor = [1], which Trireme does not have"},
      {R"({"rope_type": "linear", "type": "yarn", "factor": 2})", ".type = \"yarn\", expected"},
      {R"({"rope_theta": "big"})", ".rope_theta = \"big\", expected a number above 0"},
      {R"({"partial_rotary_factor": 0.5})", ".partial_rotary_factor = 0.5, expected 1"},
      {"[]", " = [], expected {\"rope_type\": \"default\", \"linear\""}};
  for (const char* name : {"rope_parameters", "rope_scaling"})
    for (const auto& [value, message] : wrong)
      expect_mentions(refusal(text(llama, ", \"", name, "\": ", value, "}")),
                      {"here/config.json", text(name, message)});
}

TEST(ConfigRotary, RopeScalingReplacesRopeParameters) {
  const deck::ModelConfig m =
      parse_config(llama + R"(, "rope_parameters": {"rope_type": "yarn", "factor": 4,
          "beta_fast": 30.0, "truncate": false, "original_max_position_embeddings": 17},
          "rope_scaling": {"rope_type": "linear", "factor": 2}})",
                   "c")
          .model;
  deck::ModelConfig linear = odd_llama(false);
  linear.rope_scaling = Kind::linear;
  linear.rope_factor = 2;
  EXPECT_EQ(m, linear);
}

TEST(ConfigRotary, RejectsADeckWithAnotherScaling) {
  const deck::ModelConfig model = scaled(Kind::yarn);
  std::string section = model_toml(file_of(model));
  const std::string factor = "rope_factor = 8.5";
  section.replace(section.find(factor), factor.size(), "rope_factor = 4.0");
  expect_mentions(message_of([&] { expect_same_model(file_of(model), deck_of(section)); }),
                  {"rope_parameters.factor = 8.5, but the deck has [model] rope_factor = 4.0"});
  section = model_toml(file_of(model));
  const std::string rounded = "rope_truncate = false";
  section.erase(section.find(rounded), rounded.size());
  expect_mentions(message_of([&] { expect_same_model(file_of(model), deck_of(section)); }),
                  {"rope_parameters.truncate = false, but the deck has [model] rope_truncate"});
  expect_mentions(
      message_of([&] {
        expect_same_model(file_of(model), deck_of(model_toml(file_of(odd_llama(true)))));
      }),
      {"rope_parameters.rope_type = \"yarn\", but the deck has [model] rope_scaling = \"none\""});
}

}  // namespace
}  // namespace trireme::hugging_face
