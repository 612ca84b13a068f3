#include "configs.hpp"

#include <array>

/// config.json of the families that follow llama, and of unsupported models.
namespace trireme::hugging_face {
namespace {

using namespace testing;

/// The config.json of a llama changed to another family, with more keys.
std::string as(const std::string& model_type, const std::string& more = "") {
  std::string out = llama;
  out.replace(out.find("\"llama\""), 7, '"' + model_type + '"');
  return out + (more.empty() ? "" : ", ") + more + "}";
}

deck::ModelConfig model_as(const std::string& model_type, const std::string& more = "") {
  return parse_config(as(model_type, more), "c").model;
}

TEST(ConfigFamilies, MissingKeysTakeTheDefaultsOfTheFamily) {
  for (const char* type : {"llama", "qwen2", "qwen3", "mistral", "olmo2"}) {
    const auto model = model_as(type);
    EXPECT_EQ(model.family, parse<Family>(type));
    EXPECT_EQ(model.norm_epsilon, model.family == Family::olmo2 ? 1e-5 : 1e-6) << type;
    EXPECT_EQ(model.rope_theta, 10000) << type;
    EXPECT_FALSE(model.tied_embeddings) << type;
    EXPECT_EQ(model.head_size(), model.family == Family::qwen3 ? 128 : 24) << type;
    EXPECT_EQ(model.explicit_head_size, model.family == Family::qwen3 ? 128 : 0) << type;
    EXPECT_EQ(model.window, model.family == Family::mistral ? 4096 : 0) << type;
    EXPECT_EQ(model_as(type, R"("head_dim": 24)").explicit_head_size, 0) << "hidden / heads";
    EXPECT_EQ(model_as(type, R"("head_dim": 40)").head_size(), 40);
    std::string silent = as(type);
    silent.replace(silent.find("\"num_key_value_heads\": 3,"), 25, "");
    if (model.family == Family::llama || model.family == Family::olmo2)
      EXPECT_EQ(parse_config(silent, "c").model.key_value_heads, 6);
    else
      expect_mentions(refusal(silent), {model.family == Family::mistral
                                            ? "num_key_value_heads = 8, expected a divisor"
                                            : "num_key_value_heads = 32, expected a divisor"});
    std::string null = as(type);
    null.replace(null.find("heads\": 3"), 9, "heads\": null");
    EXPECT_EQ(parse_config(null, "c").model.key_value_heads, 6) << type;
  }
}

TEST(ConfigFamilies, WindowCoversAllLayersOrNone) {
  EXPECT_EQ(model_as("mistral", R"("sliding_window": 9)").window, 9);
  EXPECT_EQ(model_as("mistral", R"("sliding_window": null)").window, 0);
  expect_mentions(refusal(as("mistral", R"("sliding_window": 0)")),
                  {"sliding_window = 0, expected a whole number from 1", "or null"});
  EXPECT_EQ(model_as("llama", R"("sliding_window": 9)").window, 0) << "a llama has no such key";
  for (const char* type : {"qwen2", "qwen3"}) {
    const auto window = [&](const std::string& keys) { return model_as(type, keys).window; };
    const std::string use = R"("use_sliding_window": true, "sliding_window": 9)";
    EXPECT_EQ(window(R"("sliding_window": 9, "max_window_layers": 1)"), 0) << "not in use";
    EXPECT_EQ(window(use), 0) << "from layer 28 on, where the model has 2";
    EXPECT_EQ(window(use + R"(, "max_window_layers": 2)"), 0);
    EXPECT_EQ(window(use + R"(, "max_window_layers": 0)"), 9);
    EXPECT_EQ(window(R"("use_sliding_window": true, "max_window_layers": 0)"), 4096);
    EXPECT_EQ(window(R"("use_sliding_window": true, "sliding_window": null,
                        "max_window_layers": 0)"),
              0);
    EXPECT_EQ(window(use + R"(, "max_window_layers": 0,
                        "layer_types": ["sliding_attention", "sliding_attention"])"),
              9);
    expect_mentions(refusal(as(type, use + R"(, "max_window_layers": 1)")),
                    {"max_window_layers = 1, expected 0 or num_hidden_layers"});
    expect_mentions(refusal(as(type, use + R"(, "max_window_layers": 0,
                        "layer_types": ["full_attention", "sliding_attention"])")),
                    {"layer_types = [\"full_attention\",\"sliding_attention\"], expected "
                     "[\"sliding_attention\",\"sliding_attention\"]"});
    expect_mentions(refusal(as(type, R"("use_sliding_window": 1)")),
                    {"use_sliding_window = 1, expected true or false"});
  }
  expect_mentions(refusal(as("qwen3", R"("attention_bias": true)")),
                  {"attention_bias = true, expected false"});
}

const std::vector<std::string> types_with_experts{"mixtral", "qwen3_moe", "olmoe", "qwen2_moe"};

TEST(ConfigFamilies, MissingKeysOfExpertsTakeTheDefaultsOfTheFamily) {
  const auto mixtral = model_as("mixtral");
  EXPECT_EQ(mixtral.experts, (deck::ExpertsConfig{8, 2, 333, true, 0, 1, ExpertBalance::sequence}));
  EXPECT_EQ(mixtral.feed_forward, 333);
  EXPECT_EQ(mixtral.rope_theta, 1e6);
  EXPECT_EQ(mixtral.norm_epsilon, 1e-5);
  EXPECT_EQ(mixtral.window, 0);
  const auto qwen3 = model_as("qwen3_moe");
  EXPECT_EQ(qwen3.experts,
            (deck::ExpertsConfig{128, 8, 768, false, 0, 1, ExpertBalance::sequence}));
  EXPECT_EQ(qwen3.feed_forward, 333);
  EXPECT_EQ(qwen3.rope_theta, 1e4);
  EXPECT_EQ(qwen3.norm_epsilon, 1e-6);
  EXPECT_EQ(qwen3.head_size(), 24);
  const auto olmoe = model_as("olmoe");
  EXPECT_EQ(olmoe.experts, (deck::ExpertsConfig{64, 8, 333, false, 0, 1, ExpertBalance::sequence}));
  EXPECT_EQ(olmoe.rope_theta, 1e4);
  EXPECT_EQ(olmoe.norm_epsilon, 1e-5);
  const auto qwen2 = model_as("qwen2_moe");
  deck::ExpertsConfig of_qwen2{60, 4, 1408, false, 0, 1, ExpertBalance::sequence};
  of_qwen2.shared_feed_forward = 5632;
  of_qwen2.shared_gate = true;
  EXPECT_EQ(qwen2.experts, of_qwen2);
  EXPECT_EQ(qwen2.biases, Biases::query_key_value);
  for (const std::string& type : types_with_experts) {
    for (const char* name : {"num_experts", "num_local_experts"}) {
      const std::string number = text('"', name, "\": 9");
      EXPECT_EQ(model_as(type, number).experts.number, 9) << type << ' ' << name;
    }
    EXPECT_EQ(model_as(type, R"("num_experts_per_tok": 1)").experts.active, 1) << type;
    EXPECT_EQ(refusal(as(type, R"("router_aux_loss_coef": 0.5, "output_router_logits": true,
                                  "num_experts": 9, "num_local_experts": 9)")),
              "no error");
  }
}

/// A gpt_oss with 8 heads, and otherwise the required keys only.
std::string gpt_oss(const std::string& more = "") {
  std::string out = as("gpt_oss", more);
  out.replace(out.find("heads\": 6"), 9, "heads\": 8");
  out.erase(out.find("\"num_key_value_heads\": 3,"), 25);
  return out;
}

TEST(ConfigFamilies, GptOssHasTheDefaultsOfItsClass) {
  const deck::ModelConfig m = parse_config(gpt_oss(), "c").model;
  EXPECT_EQ(m.family, Family::gpt_oss);
  EXPECT_EQ(m.key_value_heads, 8);
  EXPECT_EQ(m.head_size(), 64);
  EXPECT_EQ(m.norm_epsilon, 1e-5);
  EXPECT_EQ(m.experts, (deck::ExpertsConfig{128, 4, 333, true, 0, 1, ExpertBalance::sequence}));
  EXPECT_EQ(m.feed_forward, 333);
  EXPECT_EQ(m.window, 128);
  EXPECT_EQ(m.full_attention_every, 2);
  EXPECT_EQ(m.activation, Activation::clamped_swiglu);
  EXPECT_EQ(m.activation_limit, 7);
  EXPECT_EQ(m.biases, Biases::all);
  EXPECT_TRUE(m.attention_sinks);
  EXPECT_FALSE(m.tied_embeddings);
  EXPECT_EQ(m.rope_theta, 150000);
  EXPECT_EQ(m.rope_scaling, RotaryScalingKind::yarn);
  EXPECT_EQ(m.rope_factor, 32);
  EXPECT_EQ(m.rope_beta_fast, 32);
  EXPECT_EQ(m.rope_beta_slow, 1);
  EXPECT_EQ(m.rope_original_sequence, 4096);
  EXPECT_FALSE(m.rope_truncate);
}

TEST(ConfigFamilies, GptOssKeysAreWrittenAndReadBack) {
  deck::ModelConfig model = odd_llama(false, Family::gpt_oss);
  for (const bool scaled : {false, true}) {
    if (scaled) {
      model.rope_scaling = RotaryScalingKind::yarn;
      model.rope_factor = 4;
      model.rope_original_sequence = 17;
      model.rope_truncate = false;
    }
    const json file = json::parse(config_text(model, DType::fp32, {}));
    EXPECT_EQ(file["architectures"], json::array({"GptOssForCausalLM"}));
    EXPECT_EQ(file["swiglu_limit"], 2.5);
    EXPECT_EQ(file["attention_bias"], true);
    EXPECT_EQ(file["intermediate_size"], 41);
    EXPECT_EQ(file["num_local_experts"], 5);
    EXPECT_EQ(file["layer_types"], json::parse(R"(["sliding_attention", "full_attention"])"));
    EXPECT_EQ(file["rope_parameters"]["rope_type"], scaled ? "yarn" : "default");
    EXPECT_EQ(file["rope_parameters"].value("truncate", true), !scaled);
    EXPECT_FALSE(file.contains("quantization_config"));
    for (const char* name : {"rope_parameters", "rope_scaling"}) {
      json one = file;
      EXPECT_EQ(one.erase(name), 1u) << "without both, a model has the scaling of its class";
      EXPECT_EQ(parse_config(one.dump(), "c").model, model) << "without " << name;
    }
    const auto deck = deck_of(model_toml(file_of(model)));
    EXPECT_EQ(deck.config.model, model);
    EXPECT_EQ(message_of([&] { expect_exportable(deck); }), "no error");
    EXPECT_EQ(message_of([&] { expect_same_model(file_of(model), deck); }), "no error");
  }
  auto other = deck_of(model_toml(file_of(model)));
  other.config.model.activation_limit = 3;
  other.config.model.rope_truncate = true;
  expect_mentions(message_of([&] { expect_same_model(file_of(model), other); }),
                  {"swiglu_limit = 2.5, but the deck has [model] activation_limit",
                   "rope_parameters.truncate = false, but the deck has [model] rope_truncate"});
  other.config.model.attention_sinks = false;
  expect_mentions(message_of([&] { expect_exportable(other); }),
                  {"[model] attention_sinks", "expected true"});
}

TEST(ConfigFamilies, GptOssAcceptsPublishedMembersAndRejectsOthers) {
  for (const char* members :
       {R"("experts_per_token": 2, "num_experts_per_tok": 2)",
        R"("quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["x"]})",
        R"("quantization_config": null)", R"("swiglu_alpha": 1.702, "swiglu_limit": 5)",
        R"("num_experts": 8, "num_local_experts": 8)",
        R"("layer_types": ["sliding_attention", "full_attention"])"})
    EXPECT_EQ(refusal(gpt_oss(members)), "no error") << members;
  EXPECT_EQ(parse_config(gpt_oss(R"("num_experts": 9)"), "c").model.experts.number, 9);
  EXPECT_EQ(parse_config(gpt_oss(R"("sliding_window": 9)"), "c").model.window, 9);
  EXPECT_EQ(parse_config(gpt_oss(R"("sliding_window_pattern": 1)"), "c").model.window, 128)
      << "a member of Gemma";
  const auto full =
      parse_config(gpt_oss(R"("layer_types": ["full_attention", "full_attention"])"), "c").model;
  EXPECT_EQ(full.full_attention_every, 1);
  EXPECT_EQ(file_of(full).model, full);
  for (const auto& [members, message] :
       {std::pair(R"("experts_per_token": 2)",
                  "experts_per_token = 2, expected the value of num_experts_per_tok"),
        {R"("quantization_config": {"quant_method": "fp8"})",
         R"(quantization_config = {"quant_method":"fp8"}, expected null, or {"quant_method")"},
        {R"("attention_bias": false)", "attention_bias = false, expected true"},
        {R"("hidden_act": "gelu")", "hidden_act = \"gelu\", expected \"silu\""},
        {R"("swiglu_limit": 0)", "swiglu_limit = 0, expected a number above 0"},
        {R"("swiglu_alpha": 1.0)", "swiglu_alpha = 1.0, expected 1.702"},
        {R"("num_local_experts": 3)",
         "num_experts_per_tok = 4, expected at most num_local_experts = 3"},
        {R"("layer_types": ["full_attention", "sliding_attention"])",
         "expected one of \"sliding_attention\" and \"full_attention\""}})
    expect_mentions(refusal(gpt_oss(members)), {"here/config.json", message});
}

/// A deepseek_v3 with 4 layers, and otherwise the required keys only.
std::string deepseek(const std::string& more = "") {
  std::string out = as("deepseek_v3", more);
  out.replace(out.find("value_heads\": 3"), 15, "value_heads\": 6");
  out.replace(out.find("layers\": 2"), 10, "layers\": 4");
  return out;
}

TEST(ConfigFamilies, DeepseekV3HasTheDefaultsOfItsClass) {
  const deck::ModelConfig m = parse_config(deepseek(), "c").model;
  EXPECT_EQ(m.family, Family::deepseek_v3);
  EXPECT_EQ(m.key_value_rank, 512);
  EXPECT_EQ(m.query_rank, 1536);
  EXPECT_EQ(m.head_size(), 192);
  EXPECT_EQ(m.rotary_size, 64);
  EXPECT_EQ(m.value_size, 128);
  EXPECT_TRUE(m.rope_interleaved);
  EXPECT_EQ(m.rope_theta, 10000);
  EXPECT_EQ(m.rope_scaling, RotaryScalingKind::none);
  EXPECT_EQ(m.norm_epsilon, 1e-6);
  EXPECT_FALSE(m.tied_embeddings);
  EXPECT_EQ(m.feed_forward, 333);
  deck::ExpertsConfig experts{256, 8, 2048, true, 3, 1, ExpertBalance::sequence};
  experts.score = ExpertScore::sigmoid;
  experts.scale = 2.5;
  experts.groups = 8;
  experts.active_groups = 4;
  experts.choice_bias = true;
  experts.shared_feed_forward = 2048;
  EXPECT_EQ(m.experts, experts);
  std::string silent = deepseek();
  silent.replace(silent.find("\"num_key_value_heads\": 6,"), 25, "");
  expect_mentions(refusal(silent), {"num_key_value_heads = 128, expected num_attention_heads = 6"});
}

TEST(ConfigFamilies, DeepseekV3KeysAreWrittenAndReadBack) {
  deck::ModelConfig model = odd_llama(false, Family::deepseek_v3);
  for (const bool plain : {false, true}) {
    if (plain) {
      model.query_rank = 0;
      model.rope_interleaved = false;
      model.value_size = model.explicit_head_size;
      model.experts.groups = model.experts.active_groups = 1;
      model.experts.normalised = false;
      model.experts.scale = 1.5;
      model.experts.first_layer = 0;
      model.experts.shared_feed_forward = 40;
    }
    const json file = json::parse(config_text(model, DType::fp32, {}));
    EXPECT_EQ(file["architectures"], json::array({"DeepseekV3ForCausalLM"}));
    const json expected{{"kv_lora_rank", 19},
                        {"q_lora_rank", plain ? json() : json(25)},
                        {"qk_nope_head_dim", 18},
                        {"qk_rope_head_dim", 10},
                        {"v_head_dim", plain ? 28 : 15},
                        {"head_dim", 10},
                        {"qk_head_dim", 28},
                        {"rope_interleave", !plain},
                        {"intermediate_size", 333},
                        {"moe_intermediate_size", 40},
                        {"n_routed_experts", 6},
                        {"n_shared_experts", plain ? 1 : 2},
                        {"num_experts_per_tok", 2},
                        {"n_group", plain ? 1 : 3},
                        {"topk_group", plain ? 1 : 2},
                        {"routed_scaling_factor", plain ? 1.5 : 2.5},
                        {"norm_topk_prob", !plain},
                        {"first_k_dense_replace", plain ? 0 : 1},
                        {"num_nextn_predict_layers", 0},
                        {"attention_bias", false}};
    for (const auto& [name, value] : expected.items()) EXPECT_EQ(file[name], value) << name;
    EXPECT_TRUE(file.contains("q_lora_rank")) << "missing means 1536";
    EXPECT_FALSE(file.contains("num_local_experts"));
    EXPECT_FALSE(file.contains("scoring_func"));
    EXPECT_EQ(parse_config(file.dump(), "c").model, model);
    const auto deck = deck_of(model_toml(file_of(model)));
    EXPECT_EQ(deck.config.model, model);
    EXPECT_EQ(message_of([&] { expect_exportable(deck); }), "no error");
    EXPECT_EQ(message_of([&] { expect_same_model(file_of(model), deck); }), "no error");
  }
  auto other = deck_of(model_toml(file_of(model)));
  other.config.model.query_rank = 25;
  other.config.model.rotary_size = 12;
  other.config.model.experts.groups = 3;
  expect_mentions(message_of([&] { expect_same_model(file_of(model), other); }),
                  {"q_lora_rank = null, but the deck has [model] query_rank",
                   "qk_nope_head_dim = 18, but the deck has [model] head_size",
                   "qk_rope_head_dim = 10, but the deck has [model] rotary_size",
                   "n_group = 1, but the deck has [experts] groups"});
}

TEST(ConfigFamilies, DeepseekV3AcceptsPublishedMembers) {
  for (const char* members :
       {R"("scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1)",
        R"("ep_size": 1, "num_nextn_predict_layers": 1, "num_mtp_layers": 1)",
        R"("aux_loss_alpha": 0.001, "seq_aux": true, "pretraining_tp": 1)",
        R"("head_dim": 64, "qk_head_dim": 192)", R"("quantization_config": null)",
        R"("auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config",
           "AutoModel": "modeling_deepseek.DeepseekV3Model",
           "AutoModelForCausalLM": "x/y--modeling_deepseek.DeepseekV3ForCausalLM"})"}) {
    EXPECT_EQ(refusal(deepseek(members)), "no error") << members;
    EXPECT_TRUE(parse_config(deepseek(members), "c").unknown.empty()) << members;
  }
  const auto read = [](const char* members) { return parse_config(deepseek(members), "c").model; };
  EXPECT_EQ(read(R"("q_lora_rank": null)").query_rank, 0);
  EXPECT_EQ(read(R"("qk_nope_head_dim": 17, "v_head_dim": 80)").head_size(), 81);
  EXPECT_EQ(read(R"("num_local_experts": 16)").experts.number, 16);
  EXPECT_EQ(read(R"("num_local_experts": 16, "n_routed_experts": 16)").experts.number, 16);
  EXPECT_EQ(
      read(R"("n_shared_experts": 2, "moe_intermediate_size": 9)").experts.shared_feed_forward, 18);
}

TEST(ConfigFamilies, DeepseekV3RejectsOtherModels) {
  for (const auto& [members, message] :
       {std::pair(R"("n_group": 7)", "n_group = 7, expected a divisor of n_routed_experts = 256"),
        {R"("n_group": 256)", "n_group = 256, expected at most n_routed_experts / 2 = 128"},
        {R"("topk_group": 9)", "topk_group = 9, expected at most n_group = 8"},
        {R"("topk_group": 1, "num_experts_per_tok": 33)",
         "num_experts_per_tok = 33, expected at most the 32 experts of topk_group = 1 groups"},
        {R"("n_routed_experts": 16, "num_experts_per_tok": 17)",
         "num_experts_per_tok = 17, expected at most n_routed_experts = 16"},
        {R"("n_routed_experts": 16, "num_local_experts": 32)",
         "n_routed_experts = 16, but num_local_experts = 32, expected equal values"},
        {R"("first_k_dense_replace": 4)",
         "first_k_dense_replace = 4, expected less than num_hidden_layers = 4"},
        {R"("first_k_dense_replace": -1)",
         "first_k_dense_replace = -1, expected a whole number from 0 to num_hidden_layers - 1"},
        {R"("qk_rope_head_dim": 63)", "qk_rope_head_dim = 63, expected an even number"},
        {R"("v_head_dim": 193)",
         "v_head_dim = 193, expected at most qk_nope_head_dim + qk_rope_head_dim = 192"},
        {R"("head_dim": 192)", "head_dim = 192, expected 64"},
        {R"("attention_bias": true)", "attention_bias = true, expected false"},
        {R"("hidden_act": "gelu")", "hidden_act = \"gelu\", expected \"silu\""},
        {R"("n_shared_experts": 0)", "n_shared_experts = 0, expected a whole number from 1"},
        {R"("moe_intermediate_size": 0)", "moe_intermediate_size = 0, expected a whole number"},
        {R"("q_lora_rank": 0)", "q_lora_rank = 0, expected a whole number from 1"},
        {R"("q_lora_rank": "x")", "or null"},
        {R"("routed_scaling_factor": 0)", "routed_scaling_factor = 0, expected a number above 0"},
        {R"("norm_topk_prob": 1)", "norm_topk_prob = 1, expected true or false"},
        {R"("scoring_func": "softmax")", "scoring_func = \"softmax\", expected \"sigmoid\""},
        {R"("topk_method": "greedy")", "topk_method = \"greedy\", expected \"noaux_tc\""},
        {R"("moe_layer_freq": 2)", "moe_layer_freq = 2, expected 1"},
        {R"("quantization_config": {"quant_method": "fp8", "fmt": "e4m3"})",
         R"(quantization_config = {"fmt":"e4m3","quant_method":"fp8"}, expected null)"},
        {R"("auto_map": {"AutoModelForCausalLM": "modeling_other.DeepseekV3ForCausalLM"})",
         "expected no program for the model other than DeepSeek's"},
        {R"("rope_scaling": {"type": "linear", "factor": 2, "mscale_all_dim": 1})",
         R"(rope_scaling.mscale_all_dim = 1, expected 0 unless rope_type is "yarn")"}})
    expect_mentions(refusal(deepseek(members)), {"here/config.json", message});
  const std::string one = refusal(deepseek(R"("qk_nope_head_dim": 0)"));
  expect_mentions(one, {"qk_nope_head_dim = 0, expected a whole number from 1"});
  EXPECT_EQ(one.find("v_head_dim"), std::string::npos) << one;
  std::string fewer = deepseek();
  fewer.replace(fewer.find("value_heads\": 6"), 15, "value_heads\": 3");
  expect_mentions(refusal(fewer), {"num_key_value_heads = 3, expected num_attention_heads = 6"});
}

TEST(ConfigFamilies, DeepseekV3RejectsDecksThatItsClassCannotExpress) {
  const auto error = [](const std::function<void(deck::ModelConfig&)>& change) {
    auto deck = deck_of(model_toml(file_of(odd_llama(false, Family::deepseek_v3))));
    change(deck.config.model);
    return message_of([&] { expect_exportable(deck); });
  };
  EXPECT_EQ(error([](auto&) {}), "no error");
  EXPECT_EQ(error([](auto& m) { m.value_size = 0; }), "no error");
  expect_mentions(error([](auto& m) { m.rotary_size = 0; }), {"qk_nope_head_dim = 0, expected"});
  expect_mentions(error([](auto& m) { m.experts.choice_bias = false; }),
                  {"[experts] choice_bias", "expected true"});
  expect_mentions(error([](auto& m) { m.experts.score = ExpertScore::softmax; }),
                  {"[experts] score", "expected \"sigmoid\""});
  expect_mentions(error([](auto& m) { m.experts.every = 2; }), {"[experts] every", "expected 1"});
  expect_mentions(error([](auto& m) { m.experts.shared_feed_forward = 41; }),
                  {"n_shared_experts = 41 / 40, expected a whole number from 1"});
  expect_mentions(error([](auto& m) { m.experts.shared_feed_forward = 0; }),
                  {"n_shared_experts = 0 / 40, expected a whole number from 1"});
  auto llama = deck_of(model_toml(file_of(odd_llama(false))));
  llama.config.model.key_value_rank = 16;
  expect_mentions(message_of([&] { expect_exportable(llama); }),
                  {"[model] key_value_rank", "expected 0"});
}

TEST(ConfigFamilies, LayersWithExpertsAreEquallyFarApart) {
  const auto layers = [](const std::string& number, const std::string& keys) {
    std::string content = as("qwen3_moe", keys);
    content.replace(content.find("layers\": 2"), 10, "layers\": " + number);
    return content;
  };
  const auto experts = [&](const std::string& number, const std::string& keys) {
    const ModelFile file = parse_config(layers(number, keys), "c");
    EXPECT_EQ(file_of(file.model).model, file.model) << "as written";
    EXPECT_EQ(deck_of(model_toml(file)).config.model, file.model);
    const auto& e = file.model.experts;
    return std::pair(e.first_layer, e.every);
  };
  using Pair = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(experts("8", R"("decoder_sparse_step": 1)"), Pair(0, 1));
  EXPECT_EQ(experts("8", R"("decoder_sparse_step": 2)"), Pair(1, 2));
  EXPECT_EQ(experts("8", R"("decoder_sparse_step": 3, "mlp_only_layers": null)"), Pair(2, 3));
  EXPECT_EQ(experts("8", R"("mlp_only_layers": [0, 1, 2, 70])"), Pair(3, 1));
  EXPECT_EQ(experts("8", R"("mlp_only_layers": [1, 3, 5, 7])"), Pair(0, 2));
  EXPECT_EQ(experts("8", R"("decoder_sparse_step": 2, "mlp_only_layers": [1, 0])"), Pair(3, 2));
  EXPECT_EQ(experts("2", R"("decoder_sparse_step": 2)"), Pair(1, 2));
  for (const char* list : {"[1]", "[0, 1, 2, 3, 4, 5, 6, 7]", "[7]", "[0.5]", "3"})
    expect_mentions(refusal(layers("8", text("\"mlp_only_layers\": ", list))),
                    {"mlp_only_layers = ", "expected a list without which every n-th layer"});
  for (const char* step : {"0", "9", "1.5"})
    expect_mentions(
        refusal(layers("8", text("\"decoder_sparse_step\": ", step))),
        {text("decoder_sparse_step = ", step), "a whole number from 1 to num_hidden_layers"});
}

TEST(ConfigFamilies, RejectUnsupportedValuesOfExperts) {
  const std::vector<std::array<std::string, 3>> wrong{
      {"mixtral", R"("router_jitter_noise": 0.1)", "router_jitter_noise = 0.1, expected 0.0"},
      {"mixtral", R"("num_local_experts": 0)",
       "num_local_experts = 0, expected a whole number from 1 to 4096"},
      {"mixtral", R"("num_local_experts": 4, "num_experts_per_tok": 5)",
       "num_experts_per_tok = 5, expected at most num_local_experts = 4"},
      {"qwen3_moe", R"("num_local_experts": 16, "num_experts": 32)",
       "num_local_experts = 16, but num_experts = 32, expected equal values"},
      {"qwen3_moe", R"("attention_bias": true)", "attention_bias = true, expected false"},
      {"qwen3_moe", R"("norm_topk_prob": 1)", "norm_topk_prob = 1, expected true or false"},
      {"qwen3_moe", R"("moe_intermediate_size": 0)", "moe_intermediate_size = 0, expected"},
      {"qwen3_moe", R"("use_sliding_window": true, "max_window_layers": 28)",
       "max_window_layers = 28, expected 0, so that all layers are alike"},
      {"olmoe", R"("clip_qkv": 8.0)", "clip_qkv = 8.0, expected null"},
      {"olmoe", R"("attention_bias": true)", "attention_bias = true, expected false"},
      {"qwen2_moe", R"("qkv_bias": false)", "qkv_bias = false, expected true"},
      {"qwen2_moe", R"("use_sliding_window": true)", "use_sliding_window = true, expected false"},
      {"qwen2_moe", R"("shared_expert_intermediate_size": 0)",
       "shared_expert_intermediate_size = 0, expected"},
      {"olmoe", R"("num_experts": 7)", "num_experts_per_tok = 8, expected at most num_experts = 7"},
      {"olmoe", R"("head_dim": 32)",
       "head_dim = 32, expected hidden_size / num_attention_heads = 24"}};
  for (const auto& [type, keys, message] : wrong)
    expect_mentions(refusal(as(type, keys)), {"here/config.json", message, "cannot be imported"});
  EXPECT_EQ(model_as("qwen3_moe", R"("use_sliding_window": true, "sliding_window": 9)").window, 9);
  EXPECT_EQ(model_as("qwen3_moe", R"("sliding_window": 9, "max_window_layers": 48)").window, 0);
  EXPECT_EQ(model_as("mixtral", R"("sliding_window": 9)").window, 9);
}

/// A deck of odd_llama or odd_model with these lines added to [model].
deck::Deck changed_deck(const deck::ModelConfig& model, const std::string& lines) {
  return deck_of(model_toml(file_of(model)) + "\n" + lines);
}

TEST(ConfigFamilies, RejectPropertiesThatConfigsCannotExpress) {
  using Lines = std::pair<deck::ModelConfig, std::string>;
  const std::vector<std::pair<Lines, std::string>> wrong{
      {{odd_llama(true), "norm = \"layer\""},
       "[model] norm = \"layer\" (deck.toml:14), expected \"rms\""},
      {{odd_llama(true), "window = 9"}, "[model] window = 9 (deck.toml:14), expected 0"},
      {{odd_llama(true), "biases = \"query_key_value\""}, "expected \"none\""},
      {{odd_llama(true), "query_key_norm = \"head\""},
       "query_key_norm = \"head\" (deck.toml:14), expected \"none\""},
      {{odd_llama(true, Family::qwen2), "biases = \"none\""}, "expected \"query_key_value\""},
      {{odd_llama(true, Family::qwen3), "query_key_norm = \"none\""}, "expected \"head\""},
      {{odd_llama(true, Family::mistral), "positions = \"learned\""}, "expected \"rotary\""},
      {{odd_model(true), "key_value_heads = 2"}, "key_value_heads = 2 (deck.toml:13), expected 6"},
      {{odd_model(true), "head_size = 32"}, "head_size = 32 (deck.toml:13), expected 0"},
      {{odd_model(true), "activation = \"swiglu\""}, "expected \"gelu\""},
      {{odd_llama(false, Family::mixtral), "normalised = false"},
       "[experts] normalised = false (deck.toml:20), expected true"},
      {{odd_llama(false, Family::mixtral), "first_layer = 1"},
       "[experts] first_layer = 1 (deck.toml:20), expected 0"},
      {{odd_llama(false, Family::olmoe), "every = 2"},
       "[experts] every = 2 (deck.toml:20), expected 1"},
      {{odd_llama(false), "[experts]\nnumber = 4"},
       "[experts] number = 4 (deck.toml:15), expected 0"},
      {{odd_bert(true, SentenceLoss::none), "norm_placement = \"pre\""}, "expected \"post\""}};
  for (const auto& [deck, message] : wrong) {
    const deck::ModelConfig& model = deck.first;
    const auto changed = changed_deck(model, deck.second);
    expect_mentions(message_of([&] { expect_exportable(changed); }),
                    {"deck.toml: transformers' ", message, "cannot be exported"});
    expect_mentions(message_of([&] { expect_same_model(file_of(model), changed); }),
                    {"c.json describes another model", message});
  }
}

TEST(ConfigFamilies, ExportPropertiesThatConfigsExpress) {
  for (const auto& changed : std::vector<std::pair<deck::ModelConfig, std::string>>{
           {odd_llama(true), "gelu = \"exact\""},  // the model has no GELU
           {odd_llama(true), "head_size = 32"},
           {odd_llama(true), "shared_layers = 1"},
           {odd_llama(true, Family::qwen2), "head_size = 24"},
           {odd_model(true), "head_size = 24\nrope_theta = 5.0"},
           {odd_bert(true, SentenceLoss::next), "masked_share = 0.3"}})
    EXPECT_EQ(message_of([&] { expect_exportable(changed_deck(changed.first, changed.second)); }),
              "no error")
        << changed.second;
  const auto uneven = deck_of(
      "[model]\nfamily = \"llama\"\nlayers = 2\nhidden = 148\nheads = 6\nhead_size = 24\n"
      "sequence = 61\nvocabulary = 503");
  expect_mentions(message_of([&] { expect_exportable(uneven); }),
                  {"hidden_size = 148, expected a multiple of num_attention_heads = 6"});
}

TEST(ConfigFamilies, TheTrainingOfExpertsDoesNotMatterToExports) {
  auto deck = deck_of(model_toml(file_of(odd_llama(false, Family::mixtral))));
  deck::ExpertsConfig& e = deck.config.model.experts;
  e.balance = ExpertBalance::batch;
  e.capacity = 1.25;
  e.rows = 1.5;
  e.split = true;
  EXPECT_EQ(message_of([&] { expect_exportable(deck); }), "no error");
  e.scale = 3;
  expect_mentions(message_of([&] { expect_exportable(deck); }), {"[experts] scale = 3"});
}

TEST(ConfigFamilies, SharedExpertsThatTransformersDoesNotHaveAreRejected) {
  auto deck = deck_of(model_toml(file_of(odd_llama(false, Family::qwen2_moe))));
  EXPECT_EQ(message_of([&] { expect_exportable(deck); }), "no error");
  deck.config.model.experts.shared_gate = false;
  expect_mentions(message_of([&] { expect_exportable(deck); }), {"[experts] shared_gate"});
  deck.config.model.experts.shared_feed_forward = 0;
  expect_mentions(message_of([&] { expect_exportable(deck); }), {"[experts] shared_gate"});
  auto mixtral = deck_of(model_toml(file_of(odd_llama(false, Family::mixtral))));
  mixtral.config.model.experts.shared_feed_forward = 9;
  expect_mentions(message_of([&] { expect_exportable(mixtral); }),
                  {"[experts] shared_feed_forward"});
}

TEST(ConfigFamilies, ExpertsOfAnotherModelAreNamed) {
  for (const Family family : {Family::mixtral, Family::qwen3_moe, Family::olmoe}) {
    const auto model = odd_llama(false, family);
    auto deck = deck_of(model_toml(file_of(model)));
    EXPECT_EQ(deck.config.model, model);
    EXPECT_EQ(message_of([&] { expect_exportable(deck); }), "no error");
    EXPECT_EQ(message_of([&] { expect_same_model(file_of(model), deck); }), "no error");
    deck.config.model.experts.number = 7;
    deck.config.model.experts.active = 3;
    deck.config.model.experts.feed_forward = 41;
    const bool qwen3 = family == Family::qwen3_moe;
    expect_mentions(
        message_of([&] { expect_same_model(file_of(model), deck); }),
        {family == Family::olmoe ? "num_experts = 5, but the deck has [experts] number = 7"
                                 : "num_local_experts = 5, but the deck has [experts] number = 7",
         "num_experts_per_tok = 2, but the deck has [experts] active = 3",
         qwen3 ? "moe_intermediate_size = 40, but the deck has [experts] feed_forward = 41"
               : "intermediate_size = 333, but the deck has [experts] feed_forward = 41"});
    if (!qwen3) continue;
    deck.config.model.experts.first_layer = 0;
    expect_mentions(message_of([&] { expect_same_model(file_of(model), deck); }),
                    {"decoder_sparse_step = 2, but the deck has [experts] every = 2"});
  }
}

TEST(ConfigFamilies, RejectSharedLayersOnImport) {
  const auto model = odd_llama(true);
  const auto deck = changed_deck(model, "shared_layers = 2");
  expect_mentions(message_of([&] { expect_same_model(file_of(model), deck); }),
                  {"its own weights", "[model] shared_layers = 2 (deck.toml:14)"});
}

}  // namespace
}  // namespace trireme::hugging_face
