#include "configs.hpp"
#include "folders.hpp"

namespace trireme::hugging_face {
namespace {

using namespace testing;

/// `pieces` equal pieces of an array, interleaved: element j of piece i is element i + j · pieces.
Words interleaved(const Words& array, std::size_t pieces) {
  Words out;
  for (std::size_t i = 0; i < array.size(); ++i)
    out.push_back(array[i % pieces * (array.size() / pieces) + i / pieces]);
  return out;
}

/// For each of `blocks` equal blocks of an array, the result of `change`, one after another.
Words in_blocks(const Words& array, std::size_t blocks,
                const std::function<Words(const Words&)>& change) {
  Words out;
  for (std::size_t i = 0; i < blocks; ++i) {
    const Words block = change(part(array, i, blocks));
    out.insert(out.end(), block.begin(), block.end());
  }
  return out;
}

class LlamaTensors : public ::testing::TestWithParam<Family> {};
INSTANTIATE_TEST_SUITE_P(Families, LlamaTensors,
                         ::testing::Values(Family::llama, Family::qwen2, Family::qwen3,
                                           Family::mistral, Family::gemma, Family::gemma2,
                                           Family::gemma3, Family::olmo2, Family::mixtral,
                                           Family::qwen3_moe, Family::olmoe, Family::qwen2_moe,
                                           Family::gpt_oss),
                         [](const auto& family) { return std::string(name_of(family.param)); });

TEST_P(LlamaTensors, UseTheTensorNamesOfTransformers) {
  const TemporaryFolder folder;
  const auto model = odd_llama(false, GetParam());
  auto weights = weights_of(model);
  export_weights(checkpoint::Reader(write_checkpoint(folder.file("c"), model, weights)), model,
                 DType::fp32, folder.path().string());
  const TensorFolder file(folder.path().string());
  const std::string theirs = "model.layers.1.";
  const std::string ours = "layers.1.";
  const auto& kv = weights[ours + "attention.key_value"];
  const bool experts = model.experts.present();
  const auto& gate_up = weights[ours + (experts ? "experts.gate_up" : "feed_forward.gate_up")];
  std::map<std::string, Words> expected{
      {"model.embed_tokens.weight", weights["embedding.token"]},
      {theirs + "input_layernorm.weight", weights[ours + "attention_norm.gain"]},
      {theirs + "self_attn.q_proj.weight", weights[ours + "attention.query"]},
      {theirs + "self_attn.k_proj.weight", part(kv, 0, 2)},
      {theirs + "self_attn.v_proj.weight", part(kv, 1, 2)},
      {theirs + "self_attn.o_proj.weight", weights[ours + "attention.output"]},
      {theirs + "post_attention_layernorm.weight", weights[ours + "feed_forward_norm.gain"]},
      {"model.norm.weight", weights["final_norm.gain"]},
      {"lm_head.weight", weights["output.weight"]}};
  if (!experts) {
    expected[theirs + "mlp.gate_proj.weight"] = part(gate_up, 0, 2);
    expected[theirs + "mlp.up_proj.weight"] = part(gate_up, 1, 2);
    expected[theirs + "mlp.down_proj.weight"] = weights[ours + "feed_forward.down"];
  } else if (GetParam() == Family::gpt_oss) {
    const std::string block = theirs + "mlp.";
    const auto of = [&](const char* name) { return weights[ours + "experts." + name]; };
    expected[block + "router.weight"] = of("router");
    expected[block + "router.bias"] = of("router_bias");
    // Interleaving the 82 rows of gate and up transposes them; the values of each column are then
    // those of all gate rows before those of all up rows.
    expected[block + "experts.gate_up_proj"] = in_blocks(gate_up, 5, [](const Words& expert) {
      return in_blocks(interleaved(expert, 82), 144,
                       [](const Words& column) { return interleaved(column, 2); });
    });
    expected[block + "experts.gate_up_proj_bias"] =
        in_blocks(of("gate_up_bias"), 5, [](const Words& bias) { return interleaved(bias, 2); });
    expected[block + "experts.down_proj"] =
        in_blocks(of("down"), 5, [](const Words& expert) { return interleaved(expert, 144); });
    expected[block + "experts.down_proj_bias"] = of("down_bias");
  } else {
    const bool mixtral = GetParam() == Family::mixtral;
    const std::string block = theirs + (mixtral ? "block_sparse_moe." : "mlp.");
    expected[block + "gate.weight"] = weights[ours + "experts.router"];
    for (const std::size_t e : {0u, 1u, 2u, 3u, 4u}) {
      const std::string expert = text(block, "experts.", e, ".");
      expected[expert + (mixtral ? "w1.weight" : "gate_proj.weight")] = part(gate_up, 2 * e, 10);
      expected[expert + (mixtral ? "w3.weight" : "up_proj.weight")] = part(gate_up, 2 * e + 1, 10);
      expected[expert + (mixtral ? "w2.weight" : "down_proj.weight")] =
          part(weights[ours + "experts.down"], e, 5);
    }
    if (model.experts.shares()) {
      const auto& shared = weights[ours + "experts.shared_gate_up"];
      expected[block + "shared_expert.gate_proj.weight"] = part(shared, 0, 2);
      expected[block + "shared_expert.up_proj.weight"] = part(shared, 1, 2);
      expected[block + "shared_expert.down_proj.weight"] = weights[ours + "experts.shared_down"];
      expected[block + "shared_expert_gate.weight"] = weights[ours + "experts.shared_gate"];
    }
  }
  if (model.attention_sinks)
    expected[theirs + "self_attn.sinks"] = weights[ours + "attention.sinks"];
  if (model.biases == Biases::all)
    expected[theirs + "self_attn.o_proj.bias"] = weights[ours + "attention.output_bias"];
  if (model.biases != Biases::none) {
    const auto& bias = weights[ours + "attention.key_value_bias"];
    expected[theirs + "self_attn.q_proj.bias"] = weights[ours + "attention.query_bias"];
    expected[theirs + "self_attn.k_proj.bias"] = part(bias, 0, 2);
    expected[theirs + "self_attn.v_proj.bias"] = part(bias, 1, 2);
  }
  if (model.norm_placement == NormPlacement::sandwich) {
    expected[theirs + "post_attention_layernorm.weight"] =
        weights[ours + "attention_output_norm.gain"];
    expected[theirs + "pre_feedforward_layernorm.weight"] =
        weights[ours + "feed_forward_norm.gain"];
    expected[theirs + "post_feedforward_layernorm.weight"] =
        weights[ours + "feed_forward_output_norm.gain"];
  }
  if (model.norm_placement == NormPlacement::output) {
    expected.erase(theirs + "input_layernorm.weight");
    expected[theirs + "post_attention_layernorm.weight"] =
        weights[ours + "attention_output_norm.gain"];
    expected[theirs + "post_feedforward_layernorm.weight"] =
        weights[ours + "feed_forward_output_norm.gain"];
  }
  if (model.query_key_norm != QueryKeyNorm::none) {
    expected[theirs + "self_attn.q_norm.weight"] = weights[ours + "attention.query_norm.gain"];
    expected[theirs + "self_attn.k_norm.weight"] = weights[ours + "attention.key_norm.gain"];
  }
  // The first layer of Qwen3's model has a dense feed-forward part instead of 5 experts.
  const std::size_t fewer = GetParam() == Family::qwen3_moe ? 1 + 3 * 5 - 3 : 0;
  EXPECT_EQ(file.tensors().size(), 3 + 2 * (expected.size() - 3) - fewer) << "two layers";
  for (const auto& [name, words] : expected) EXPECT_EQ(values(file, name), words) << name;
  const std::int64_t K = model.head_size();
  const std::map<std::string, Extents> shapes{
      {"self_attn.k_proj.weight", {3 * K, 144}},
      {"self_attn.o_proj.weight", {144, 6 * K}},
      {"self_attn.q_proj.bias", {6 * K}},
      {"self_attn.q_norm.weight", {model.query_key_norm == QueryKeyNorm::width ? 6 * K : K}},
      {"self_attn.sinks", {6}},
      {"mlp.experts.gate_up_proj", {5, 144, 82}},
      {"mlp.experts.gate_up_proj_bias", {5, 82}},
      {"mlp.experts.down_proj", {5, 41, 144}},
      {"mlp.experts.down_proj_bias", {5, 144}}};
  for (const StoredTensor& tensor : file.tensors())
    for (const auto& [name, shape] : shapes)
      if (tensor.info->name == theirs + name) {
        EXPECT_EQ(tensor.info->shape, shape) << name;
      }
}

/// A layer with a dense feed-forward part, and a layer with experts.
TEST(DeepseekV3Tensors, UseTheTensorNamesOfTransformers) {
  for (const std::int64_t rank : {25, 0}) {
    const TemporaryFolder folder;
    auto model = odd_llama(false, Family::deepseek_v3);
    model.query_rank = rank;
    auto weights = weights_of(model);
    export_weights(checkpoint::Reader(write_checkpoint(folder.file("c"), model, weights)), model,
                   DType::fp32, folder.path().string());
    const TensorFolder file(folder.path().string());
    std::map<std::string, std::pair<Extents, Words>> expected{
        {"model.embed_tokens.weight", {{503, 144}, weights["embedding.token"]}},
        {"model.norm.weight", {{144}, weights["final_norm.gain"]}},
        {"lm_head.weight", {{503, 144}, weights["output.weight"]}}};
    for (const std::string layer : {"layers.0.", "layers.1."}) {
      const auto add = [&](const std::string& name, const Extents& shape, const Words& words) {
        expected["model." + layer + name + ".weight"] = {shape, words};
      };
      const auto of = [&](const char* name) { return weights.at(layer + name); };
      add("input_layernorm", {144}, of("attention_norm.gain"));
      if (rank > 0) {
        add("self_attn.q_a_proj", {25, 144}, of("attention.query_down"));
        add("self_attn.q_a_layernorm", {25}, of("attention.query_down_norm.gain"));
        add("self_attn.q_b_proj", {6 * 28, 25}, of("attention.query_up"));
      } else {
        add("self_attn.q_proj", {6 * 28, 144}, of("attention.query"));
      }
      Words down = of("attention.key_value_down");
      const Words rotary = of("attention.key_rotary");
      down.insert(down.end(), rotary.begin(), rotary.end());
      add("self_attn.kv_a_proj_with_mqa", {19 + 10, 144}, down);
      add("self_attn.kv_a_layernorm", {19}, of("attention.key_value_norm.gain"));
      add("self_attn.kv_b_proj", {6 * (18 + 15), 19}, of("attention.key_value_up"));
      add("self_attn.o_proj", {144, 6 * 15}, of("attention.output"));
      add("post_attention_layernorm", {144}, of("feed_forward_norm.gain"));
      if (layer == "layers.0.") {
        add("mlp.gate_proj", {333, 144}, part(of("feed_forward.gate_up"), 0, 2));
        add("mlp.up_proj", {333, 144}, part(of("feed_forward.gate_up"), 1, 2));
        add("mlp.down_proj", {144, 333}, of("feed_forward.down"));
        continue;
      }
      add("mlp.gate", {6, 144}, of("experts.router"));
      expected["model.layers.1.mlp.gate.e_score_correction_bias"] = {{6}, of("experts.bias")};
      for (std::size_t e = 0; e < 6; ++e) {
        const std::string expert = text("mlp.experts.", e, ".");
        add(expert + "gate_proj", {40, 144}, part(of("experts.gate_up"), 2 * e, 12));
        add(expert + "up_proj", {40, 144}, part(of("experts.gate_up"), 2 * e + 1, 12));
        add(expert + "down_proj", {144, 40}, part(of("experts.down"), e, 6));
      }
      add("mlp.shared_experts.gate_proj", {80, 144}, part(of("experts.shared_gate_up"), 0, 2));
      add("mlp.shared_experts.up_proj", {80, 144}, part(of("experts.shared_gate_up"), 1, 2));
      add("mlp.shared_experts.down_proj", {144, 80}, of("experts.shared_down"));
    }
    EXPECT_EQ(file.tensors().size(), expected.size());
    for (const StoredTensor& tensor : file.tensors()) {
      const auto found = expected.find(tensor.info->name);
      ASSERT_NE(found, expected.end()) << tensor.info->name;
      EXPECT_EQ(tensor.info->shape, found->second.first) << found->first;
      EXPECT_EQ(values(file, found->first), found->second.second) << found->first;
    }
  }
}

/// Sizes as in the published config.json; counts are those of the published weights.
TEST(LlamaParameters, MatchPublishedModels) {
  const auto parameters = [](deck::ModelConfig m, Family family) {
    deck::set_family(m, family);
    std::int64_t n = 0;
    for (const Tensor& tensor : format_of(family).tensors(m)) n += checkpoint::volume(tensor.shape);
    return n;
  };
  deck::ModelConfig qwen2;
  qwen2.layers = 24;
  qwen2.hidden = 896;
  qwen2.heads = 14;
  qwen2.key_value_heads = 2;
  qwen2.feed_forward = 4864;
  qwen2.vocabulary = 151936;
  EXPECT_EQ(parameters(qwen2, Family::qwen2), 494'032'768) << "Qwen2 0.5B";
  deck::ModelConfig qwen3;
  qwen3.layers = 28;
  qwen3.hidden = 1024;
  qwen3.heads = 16;
  qwen3.key_value_heads = 8;
  qwen3.explicit_head_size = 128;
  qwen3.feed_forward = 3072;
  qwen3.vocabulary = 151936;
  EXPECT_EQ(parameters(qwen3, Family::qwen3), 596'049'920) << "Qwen3 0.6B";
  deck::ModelConfig mistral;
  mistral.layers = 32;
  mistral.hidden = 4096;
  mistral.heads = 32;
  mistral.key_value_heads = 8;
  mistral.feed_forward = 14336;
  mistral.vocabulary = 32000;
  mistral.tied_embeddings = false;
  EXPECT_EQ(parameters(mistral, Family::mistral), 7'241'732'096) << "Mistral 7B";
  deck::ModelConfig gemma;
  gemma.layers = 18;
  gemma.hidden = 2048;
  gemma.heads = 8;
  gemma.key_value_heads = 1;
  gemma.explicit_head_size = 256;
  gemma.feed_forward = 16384;
  gemma.vocabulary = 256000;
  EXPECT_EQ(parameters(gemma, Family::gemma), 2'506'172'416) << "Gemma 2B";
  gemma.layers = 26;
  gemma.hidden = 2304;
  gemma.key_value_heads = 4;
  gemma.feed_forward = 9216;
  EXPECT_EQ(parameters(gemma, Family::gemma2), 2'614'341'888) << "Gemma 2 2B";
  gemma.hidden = 1152;
  gemma.heads = 4;
  gemma.key_value_heads = 1;
  gemma.feed_forward = 6912;
  gemma.vocabulary = 262144;
  EXPECT_EQ(parameters(gemma, Family::gemma3), 999'885'952) << "Gemma 3 1B";
}

/// The same for mixtures of experts, from config.json as published.
TEST(LlamaParameters, MatchPublishedMixturesOfExperts) {
  const auto parameters = [](const std::string& content) {
    const deck::ModelConfig m = parse_config(content, "config.json").model;
    std::int64_t n = 0;
    for (const Tensor& tensor : format_of(m.family).tensors(m))
      n += checkpoint::volume(tensor.shape);
    EXPECT_EQ(n, architecture::describe(m).parameters());
    return n;
  };
  EXPECT_EQ(parameters(R"({"architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0,
      "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
      "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32,
      "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
      "num_local_experts": 8, "output_router_logits": false, "rms_norm_eps": 1e-05,
      "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": null,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 32000})"),
            46'702'792'704)
      << "Mixtral 8x7B";
  EXPECT_EQ(parameters(R"({"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "decoder_sparse_step": 1, "head_dim": 128, "hidden_act": "silu",
      "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960,
      "max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe",
      "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32,
      "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
      "num_key_value_heads": 4, "output_router_logits": false, "rms_norm_eps": 1e-06,
      "rope_scaling": null, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
      "sliding_window": null, "tie_word_embeddings": false, "use_sliding_window": false,
      "vocab_size": 151936})"),
            30'532'122'624)
      << "Qwen3 30B A3B";
  EXPECT_EQ(parameters(R"({"architectures": ["Qwen2MoeForCausalLM"], "attention_dropout": 0.0,
      "decoder_sparse_step": 1, "hidden_act": "silu", "hidden_size": 2048,
      "intermediate_size": 5632, "max_position_embeddings": 8192, "max_window_layers": 21,
      "model_type": "qwen2_moe", "moe_intermediate_size": 1408, "norm_topk_prob": false,
      "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4,
      "num_hidden_layers": 24, "num_key_value_heads": 16, "output_router_logits": false,
      "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
      "shared_expert_intermediate_size": 5632, "sliding_window": 32768,
      "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936})"),
            14'315'784'192)
      << "Qwen1.5 MoE A2.7B";
  EXPECT_EQ(parameters(R"({"architectures": ["OlmoeForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "clip_qkv": null, "hidden_act": "silu", "hidden_size": 2048,
      "intermediate_size": 1024, "max_position_embeddings": 4096, "model_type": "olmoe",
      "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 64,
      "num_experts_per_tok": 8, "num_hidden_layers": 16, "num_key_value_heads": 16,
      "output_router_logits": false, "rms_norm_eps": 1e-05, "rope_scaling": null,
      "rope_theta": 10000.0, "router_aux_loss_coef": 0.01, "tie_word_embeddings": false,
      "vocab_size": 50304})"),
            6'919'161'856)
      << "OLMoE 1B 7B";
  const auto gpt_oss = [&](int layers, int number) {
    json types = json::array();
    for (int i = 0; i < layers; ++i)
      types.push_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
    json file = json::parse(R"({"architectures": ["GptOssForCausalLM"], "attention_bias": true,
        "attention_dropout": 0.0, "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64,
        "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096,
        "intermediate_size": 2880, "max_position_embeddings": 131072, "model_type": "gpt_oss",
        "num_attention_heads": 64, "num_experts_per_tok": 4, "num_key_value_heads": 8,
        "output_router_logits": false, "pad_token_id": 199999,
        "quantization_config": {"modules_to_not_convert": ["lm_head"], "quant_method": "mxfp4"},
        "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0,
        "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn",
        "truncate": false}, "rope_theta": 150000, "router_aux_loss_coef": 0.9,
        "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": false,
        "vocab_size": 201088})");
    file["num_hidden_layers"] = layers;
    file["num_local_experts"] = number;
    file["layer_types"] = types;
    return parameters(file.dump());
  };
  EXPECT_EQ(gpt_oss(24, 32), 20'914'757'184) << "gpt-oss 20B";
  EXPECT_EQ(gpt_oss(36, 128), 116'829'156'672) << "gpt-oss 120B";
  EXPECT_EQ(parameters(R"({"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config",
      "AutoModel": "modeling_deepseek.DeepseekV3Model",
      "AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM"}, "ep_size": 1,
      "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168,
      "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
      "model_type": "deepseek_v3", "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8,
      "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
      "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
      "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_scaling":
      {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
      "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "tie_word_embeddings": false,
      "topk_group": 4, "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 129280})"),
            671'026'419'200)
      << "DeepSeek-V3 671B";
}

}  // namespace
}  // namespace trireme::hugging_face
