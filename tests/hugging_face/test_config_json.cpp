#include "configs.hpp"

namespace trireme::hugging_face {
namespace {

using namespace testing;

deck::ModelConfig read_golden(const std::string& folder) {
  const auto path = golden_file(folder + "/config.json");
  return parse_config(read_file(path), path).model;
}

TEST(ConfigJson, ReadsBackAsWritten) {
  for (auto model : {odd_model(true),
                     odd_model(false),
                     odd_llama(true),
                     odd_llama(false),
                     odd_llama(true, Family::qwen2),
                     odd_llama(false, Family::qwen3),
                     odd_llama(false, Family::mistral),
                     odd_llama(true, Family::olmo2),
                     odd_llama(false, Family::mixtral),
                     with_window(odd_llama(true, Family::mixtral)),
                     odd_llama(false, Family::qwen3_moe),
                     with_window(odd_llama(true, Family::qwen3_moe)),
                     odd_llama(false, Family::olmoe),
                     odd_llama(false, Family::qwen2_moe),
                     odd_llama(false, Family::deepseek_v3),
                     odd_llama(true, Family::deepseek_v3),
                     with_window(odd_llama(false, Family::qwen2)),
                     with_window(odd_llama(true, Family::qwen3)),
                     odd_bert(true, SentenceLoss::next),
                     odd_bert(false, SentenceLoss::none),
                     odd_t5(true),
                     odd_t5(false)}) {
    model.dropout = 0.15;
    const bool rotary = model.positions == Positions::rotary;
    if (!rotary && !model.encoder.present())
      model.gelu = model.tied_embeddings ? Gelu::exact : Gelu::tanh;
    model.norm_epsilon = 3e-7;
    if (rotary) model.rope_theta = 500000;
    const auto content = config_text(model, DType::bf16, {256});
    const auto config = parse_config(content, "config.json");
    EXPECT_EQ(config.model, model);
    expect_mentions(content, {"\"torch_dtype\": \"bfloat16\"",
                              model.causal() ? "\"eos_token_id\": 256" : "\"eos_token_id\": null"});
    for (const FreeValue& free : config.free)
      if (free.deck == "dropout") {
        EXPECT_EQ(free.value, 0.15) << free.name;
      }
  }
}

TEST(ConfigJson, ReadsConfigsOfTransformers) {
  auto model = read_golden("gpt2_hugging_face/tied");
  EXPECT_EQ(model.feed_forward, 48) << "n_inner null is 4 n_embd";
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_TRUE(model.tied_embeddings);
  model = read_golden("gpt2_hugging_face/untied");
  EXPECT_EQ(model.feed_forward, 31);
  EXPECT_EQ(model.norm_epsilon, 1e-6);
  EXPECT_FALSE(model.tied_embeddings);
  model = read_golden("llama_hugging_face/tied");
  EXPECT_EQ(model.family, Family::llama);
  EXPECT_EQ(model.key_value_heads, 3);
  EXPECT_EQ(model.rope_theta, 10000);
  EXPECT_EQ(model.norm_epsilon, 1e-6);
  EXPECT_TRUE(model.tied_embeddings);
  model = read_golden("llama_hugging_face/untied");
  EXPECT_EQ(model.rope_theta, 500) << "outside rope_parameters, as before 2025";
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_FALSE(model.tied_embeddings);
  model = read_golden("decoders_hugging_face/qwen2_tied");
  EXPECT_EQ(model.family, Family::qwen2);
  EXPECT_EQ(model.rope_theta, 1e6);
  EXPECT_EQ(model.window, 4);
  EXPECT_EQ(model.explicit_head_size, 0);
  EXPECT_TRUE(model.tied_embeddings);
  model = read_golden("decoders_hugging_face/qwen2_untied");
  EXPECT_EQ(model.window, 0);
  EXPECT_EQ(model.rope_theta, 500);
  model = read_golden("decoders_hugging_face/qwen3_tied");
  EXPECT_EQ(model.family, Family::qwen3);
  EXPECT_EQ(model.explicit_head_size, 6);
  EXPECT_EQ(model.window, 0);
  model = read_golden("decoders_hugging_face/mistral_tied");
  EXPECT_EQ(model.family, Family::mistral);
  EXPECT_EQ(model.window, 5);
  model = read_golden("decoders_hugging_face/mistral_untied");
  EXPECT_EQ(model.window, 0) << "sliding_window null";
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  model = read_golden("decoders_hugging_face/gemma");
  EXPECT_EQ(model.family, Family::gemma);
  EXPECT_EQ(model.gelu, Gelu::tanh);
  EXPECT_TRUE(model.tied_embeddings);
  model = read_golden("decoders_hugging_face/gemma2");
  EXPECT_EQ(model.family, Family::gemma2);
  EXPECT_EQ(model.window, 5);
  EXPECT_EQ(model.full_attention_every, 2);
  EXPECT_EQ(model.query_pre_attention_scalar, 9);
  EXPECT_EQ(model.attention_softcap, 2);
  EXPECT_EQ(model.logit_softcap, 3);
  model = read_golden("decoders_hugging_face/gemma3");
  EXPECT_EQ(model.family, Family::gemma3);
  EXPECT_EQ(model.full_attention_every, 2);
  EXPECT_EQ(model.rope_theta, 1e6);
  EXPECT_EQ(model.rope_scaling, RotaryScalingKind::linear);
  EXPECT_EQ(model.window_rope_theta, 1e4);
  model = read_golden("decoders_hugging_face/mixtral");
  EXPECT_EQ(model.family, Family::mixtral);
  EXPECT_EQ(model.window, 5);
  EXPECT_EQ(model.explicit_head_size, 0) << "head_dim null";
  EXPECT_EQ(model.experts, (deck::ExpertsConfig{5, 2, 10, true, 0, 1, ExpertBalance::sequence}));
  model = read_golden("decoders_hugging_face/qwen3_moe");
  EXPECT_EQ(model.family, Family::qwen3_moe);
  EXPECT_EQ(model.feed_forward, 10) << "of the layers without experts";
  EXPECT_EQ(model.rope_theta, 1e6);
  EXPECT_EQ(model.experts, (deck::ExpertsConfig{5, 2, 7, true, 1, 2, ExpertBalance::sequence}));
  model = read_golden("decoders_hugging_face/qwen2_moe");
  EXPECT_EQ(model.family, Family::qwen2_moe);
  EXPECT_EQ(model.experts.first_layer, 1);
  EXPECT_EQ(model.experts.shared_feed_forward, 9);
  EXPECT_TRUE(model.experts.shared_gate);
  model = read_golden("decoders_hugging_face/olmoe");
  EXPECT_EQ(model.family, Family::olmoe);
  EXPECT_EQ(model.experts, (deck::ExpertsConfig{5, 2, 10, false, 0, 1, ExpertBalance::sequence}));
  model = read_golden("decoders_hugging_face/deepseek_v3");
  EXPECT_EQ(model.family, Family::deepseek_v3);
  EXPECT_EQ(model.head_size(), 18);
  EXPECT_EQ(model.rotary_size, 12);
  EXPECT_EQ(model.value_size, 5);
  EXPECT_EQ(model.key_value_rank, 8);
  EXPECT_EQ(model.query_rank, 10);
  EXPECT_TRUE(model.rope_interleaved);
  EXPECT_EQ(model.rope_scaling, RotaryScalingKind::yarn);
  EXPECT_EQ(model.rope_mscale, 1);
  EXPECT_EQ(model.rope_mscale_all, 1);
  EXPECT_EQ(model.rope_attention_factor, 0);
  EXPECT_EQ(model.experts.number, 6);
  EXPECT_EQ(model.experts.first_layer, 1);
  EXPECT_EQ(model.experts.shared_feed_forward, 7);
  EXPECT_EQ(model.experts.groups, 3);
  EXPECT_EQ(model.experts.active_groups, 2);
  model = read_golden("bert_hugging_face/pairs");
  EXPECT_EQ(model.family, Family::bert);
  EXPECT_EQ(model.norm_epsilon, 1e-12);
  EXPECT_EQ(model.gelu, Gelu::exact);
  EXPECT_EQ(model.sentence_loss, SentenceLoss::next);
  model = read_golden("bert_hugging_face/masked");
  EXPECT_EQ(model.gelu, Gelu::tanh);
  EXPECT_EQ(model.sentence_loss, SentenceLoss::none);
}

TEST(ConfigJson, RejectsUnsupportedGptValuesInOneError) {
  const auto error = refusal(R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 10, "n_head": 3,
        "n_positions": 0, "n_ctx": 7, "activation_function": "relu", "layer_norm_epsilon": 0,
        "scale_attn_by_inverse_layer_idx": true, "attn_pdrop": 1.5})");
  expect_mentions(
      error,
      {"here/config.json", "n_positions = 0, expected a whole number", "vocab_size is missing",
       "n_embd = 10, expected a multiple of n_head = 3",
       "activation_function = \"relu\", expected \"gelu_new\", \"gelu_pytorch_tanh\", \"gelu\" or",
       "layer_norm_epsilon = 0, expected a number above 0",
       "scale_attn_by_inverse_layer_idx = true, expected false", "attn_pdrop = 1.5", "n_ctx = 7",
       "cannot be imported"});
}

TEST(ConfigJson, RejectsUnsupportedModels) {
  expect_mentions(
      refusal(R"({"model_type": "deepseek_v2"})"),
      {"here/config.json", "model_type = \"deepseek_v2\"",
       R"("gpt2", "llama", "bert", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3_text")",
       R"("olmo2", "mixtral", "qwen3_moe", "olmoe", "qwen2_moe", "gpt_oss", "deepseek_v3")"});
  expect_mentions(refusal("{}"), {"model_type is missing"});
  for (const char* content : {"", "[]", "{", "7", "\xff"})
    expect_mentions(refusal(content), {"here/config.json", "not "});
  expect_mentions(refusal(R"({"model_type": "gpt2", "n_layer": 1, "n_layer": 2})"),
                  {"'n_layer' appears twice"});
  std::string deep(5000, '[');
  expect_mentions(refusal(R"({"a": )" + deep), {"nested deeper"});
}

TEST(ConfigJson, RejectsUnsupportedLlamaValues) {
  EXPECT_EQ(refusal(llama + "}"), "no error");
  const std::map<std::string, std::string> wrong{
      {R"("attention_bias": true)", "attention_bias = true, expected false"},
      {R"("mlp_bias": true)", "mlp_bias = true, expected false"},
      {R"("hidden_act": "gelu")", "hidden_act = \"gelu\", expected \"silu\""},
      {R"("head_dim": 33)", "head_dim = 33, expected an even number"},
      {R"("head_dim": 0)", "head_dim = 0, expected a whole number from 1"},
      {R"("rms_norm_eps": "small")", "rms_norm_eps = \"small\", expected a number above 0"},
      {R"("rope_theta": -1)", "rope_theta = -1, expected a number above 0"},
      {R"("rope_theta": 7, "rope_parameters": {"rope_theta": 8.0})", "rope_theta = 7, but 8.0 in"},
      {R"("pretraining_tp": 2)", "pretraining_tp = 2, expected 1"}};
  for (const auto& [key, reason] : wrong)
    expect_mentions(refusal(llama + ", " + key + "}"), {"here/config.json", reason});
  std::string odd = llama;
  odd.replace(odd.find("_heads\": 3"), 10, "_heads\": 4");
  expect_mentions(refusal(odd + "}"), {"num_key_value_heads = 4, expected a divisor"});
  odd.replace(odd.find("_size\": 144"), 11, "_size\": 150");
  expect_mentions(refusal(odd + "}"), {"head_dim = 25, expected an even number"});
  odd.replace(odd.find("_size\": 150"), 11, "_size\": 148");
  expect_mentions(refusal(odd + "}"),
                  {"hidden_size = 148, expected a multiple of num_attention_heads = 6"});
}

TEST(ConfigJson, RejectsUnsupportedBertValues) {
  const std::string bert = R"({"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 144,
      "num_attention_heads": 6, "intermediate_size": 333, "max_position_embeddings": 61,
      "vocab_size": 503)";
  EXPECT_EQ(refusal(bert + "}"), "no error");
  const auto defaults = parse_config(bert + "}", "c").model;
  auto expected = odd_bert(true, SentenceLoss::next);
  expected.dropout = 0.1;
  EXPECT_EQ(defaults, expected);
  const auto other = parse_config(
      bert + R"(, "architectures": ["BertForMaskedLM"], "hidden_act": "gelu_new"})", "c");
  EXPECT_EQ(other.model.sentence_loss, SentenceLoss::none);
  EXPECT_EQ(other.model.gelu, Gelu::tanh);
  const std::map<std::string, std::string> wrong{
      {R"("hidden_act": "relu")", "hidden_act = \"relu\", expected"},
      {R"("type_vocab_size": 16)", "type_vocab_size = 16, expected 2"},
      {R"("position_embedding_type": "relative_key")",
       "position_embedding_type = \"relative_key\""},
      {R"("is_decoder": true)", "is_decoder = true, expected false"},
      {R"("architectures": ["BertForSequenceClassification"])",
       "architectures = [\"BertForSequenceClassification\"], expected [\"BertForPreTraining\"]"},
      {R"("layer_norm_eps": null, "hidden_dropout_prob": 1)", "hidden_dropout_prob = 1, expected"}};
  for (const auto& [key, reason] : wrong)
    expect_mentions(refusal(bert + ", " + key + "}"), {"here/config.json", reason});
}

TEST(ConfigJson, ReadsRotaryPositionsOfOldAndNewFiles) {
  const auto theta = [](const std::string& keys) {
    return parse_config(llama + ", " + keys + "}", "c").model.rope_theta;
  };
  EXPECT_EQ(theta(R"("rope_theta": 500000.0, "rope_scaling": null)"), 500000);
  EXPECT_EQ(theta(R"("rope_parameters": {"rope_theta": 500000, "rope_type": "default"})"), 500000);
  EXPECT_EQ(theta(R"("rope_scaling": {"type": "default"})"), 10000);
}

TEST(ConfigJson, DeckSectionDescribesTheSameModel) {
  for (const auto& model :
       {odd_model(false), odd_llama(true), odd_llama(true, Family::qwen2),
        odd_llama(false, Family::qwen3), odd_llama(false, Family::mistral),
        odd_llama(false, Family::deepseek_v3), with_window(odd_llama(false, Family::qwen2)),
        odd_bert(true, SentenceLoss::none), odd_bert(false, SentenceLoss::next)})
    EXPECT_EQ(deck_of(model_toml(file_of(model))).config.model, model);
  auto file = file_of(odd_model(true));
  file.free.front().value = 0.3;
  EXPECT_EQ(deck_of(model_toml(file)).config.model, file.model);
  expect_mentions(model_toml(file), {"dropout = 0.0  # resid_pdrop = 0.3 has no key of its own"});
}

TEST(ConfigJson, ShowsBothValuesOfADifferenceFromTheDeck) {
  auto deck = deck_of(model_toml(file_of(odd_model(true))));
  auto model = odd_model(true);
  EXPECT_EQ(message_of([&] { expect_same_model(file_of(model), deck); }), "no error");
  model.layers = 5;
  model.vocabulary = 50257;
  model.tied_embeddings = false;
  model.norm_epsilon = 1e-6;
  model.dropout = 0.5;
  const auto error = message_of([&] { expect_same_model(file_of(model), deck); });
  expect_mentions(
      error, {"c.json", "n_layer = 5", "[model] layers = 2 (deck.toml:3)", "vocab_size = 50257",
              "vocabulary = 503", "tie_word_embeddings = false", "tied_embeddings = true",
              "layer_norm_epsilon = 1e-06, but the deck has [model] norm_epsilon = 1e-5"});
  EXPECT_EQ(error.find("dropout"), std::string::npos) << "the deck decides";
  expect_mentions(message_of([&] { expect_same_model(file_of(odd_llama(true)), deck); }),
                  {"model_type = llama, but the deck has [model] family = \"gpt\"",
                   "num_key_value_heads = 3, but the deck has [model] key_value_heads = 6"});
}

TEST(ConfigJson, LlamaAcceptsAnySequenceLength) {
  auto deck = deck_of(model_toml(file_of(odd_llama(true))));
  auto model = odd_llama(true);
  EXPECT_TRUE(differences(file_of(model), deck).empty());
  model.sequence = 131072;
  model.dropout = 0.25;
  EXPECT_EQ(message_of([&] { expect_same_model(file_of(model), deck); }), "no error");
  const auto lines = differences(file_of(model), deck);
  ASSERT_EQ(lines.size(), 2u);
  expect_mentions(lines[0], {"max_position_embeddings = 131072", "[model] sequence = 61"});
  expect_mentions(lines[1], {"attention_dropout = 0.25", "[model] dropout = 0"});
}

TEST(ConfigJson, RejectsMembersThatChangeTheFunction) {
  for (const auto& [member, expected] :
       {std::pair(R"("logit_scale": 0.0625)", "logit_scale = 0.0625, expected 1"),
        {R"("partial_rotary_factor": 0.5)", "partial_rotary_factor = 0.5, expected 1"},
        {R"("quantization_config": {"quant_method": "fp8"})", "expected null"},
        {R"("final_logit_softcapping": 30.0)", "final_logit_softcapping = 30.0, expected null"},
        {R"("is_causal": false)", "is_causal = false, expected true"},
        {R"("use_bidirectional_attention": true)", "expected false"},
        {R"("layer_types": ["full_attention", "chunked_attention"])", "expected layers that"},
        {R"("architectures": ["LlamaForSequenceClassification"])", "expected the class"},
        {R"("auto_map": {"AutoModelForCausalLM": "modeling.Other"})", "expected no program"}})
    expect_mentions(refusal(llama + ", " + member + "}"), {expected});
  for (const char* member :
       {R"("logit_scale": 1.0)", R"("quantization_config": null)", R"("is_causal": true)",
        R"("layer_types": ["full_attention", "full_attention"])", R"("partial_rotary_factor": 1)",
        R"("architectures": ["LLaMAForCausalLM"])", R"("architectures": ["LlamaModel"])",
        R"("auto_map": {"AutoTokenizer": ["tokens.Other", null]})", R"("architectures": null)"})
    EXPECT_EQ(refusal(llama + ", " + member + "}"), "no error") << member;
}

TEST(ConfigJson, ReportsUnusedMembers) {
  const auto lines_with = [](const std::string& members) {
    const ModelFile file = parse_config(llama + members + "}", "c.json");
    return differences(file, deck_of(model_toml(file)));
  };
  EXPECT_TRUE(lines_with(R"(, "use_cache": true, "_name_or_path": "x", "pad_token_id": 0,
      "unsloth_fixed": true, "initializer_range": 0.02, "extra": null, "torch_dtype": "float16")")
                  .empty());
  const auto lines = lines_with(R"(, "embedding_multiplier": 12.0, "z_loss": 0.1)");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines.front(),
            "c.json has members that neither Trireme nor transformers' LlamaForCausalLM uses: "
            "embedding_multiplier, z_loss");
}

}  // namespace
}  // namespace trireme::hugging_face
