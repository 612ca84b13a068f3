#include <trireme/hugging_face/peft.hpp>

#include "configs.hpp"

/// adapter_config.json: which members are compared, ignored and refused.
namespace trireme::hugging_face {
namespace {

using namespace testing;

/// A llama of one layer with adapters of queries, keys and values.
deck::Deck adapted(const std::string& more = "") {
  return deck_of(
      "[model]\nfamily = \"llama\"\nlayers = 1\nhidden = 16\nheads = 2\nfeed_forward = 32\n"
      "sequence = 32\nvocabulary = 257\n[adapter]\nkind = \"lora\"\nrank = 4\nalpha = 8\n" +
      more);
}

/// An adapter_config.json of that model with more or other members.
std::string config_with(const std::string& members) {
  json file{{"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}, {"bias", "none"}};
  file["target_modules"] = {"q_proj", "k_proj", "v_proj"};
  file.update(json::parse("{" + members + "}"));
  return file.dump();
}

std::string refusal_of(const std::string& members) {
  return message_of([&] { expect_same_adapter(config_with(members), "a.json", adapted()); });
}

TEST(PeftConfig, AcceptsMembersWithoutEffect) {
  for (const char* members :
       {R"("init_lora_weights": true)", R"("init_lora_weights": false)",
        R"("init_lora_weights": "gaussian")", R"("init_lora_weights": "eva")",
        R"("init_lora_weights": "orthogonal")", R"("init_lora_weights": "MiCA")",
        R"("init_lora_weights": null)", R"("bias": null)",
        R"("auto_mapping": {"base_model_class": "LlamaForCausalLM"}, "peft_version": "0.21.2")",
        R"("task_type": "CAUSAL_LM", "inference_mode": true, "revision": "main")",
        R"("fan_in_fan_out": true, "megatron_core": "megatron.core", "qalora_group_size": 16)",
        R"("corda_config": {"corda_method": "kpm"}, "loftq_config": {"loftq_bits": 4})",
        R"("eva_config": {"rho": 2.0}, "lora_ga_config": {"direction": "ArB2r"})",
        R"("velora_config": {"num_groups": 4}, "monteclora_config": {"num_samples": 8})",
        R"("ensure_weight_tying": true, "runtime_config": {"ephemeral_gpu_offload": false})",
        R"("layers_to_transform": [], "rank_pattern": {}, "alpha_pattern": null)",
        R"("target_modules": ".*[qkv]_proj$")",
        R"("new_member": null, "newer": false, "newest": [], "last": {}, "word": "")"})
    EXPECT_EQ(refusal_of(members), "no error") << members;
}

TEST(PeftConfig, RejectsInitialValuesThatChangeTheBase) {
  const std::string convert = "path_initial_model_for_weight_conversion";
  for (const auto& [initial, reason] :
       {std::pair("pissa", "subtracts the first B A"),
        {"pissa_niter_16", convert.c_str()},
        {"olora", convert.c_str()},
        {"OLoRA", "subtracts the first B A"},
        {"corda", convert.c_str()},
        {"lora_ga", convert.c_str()},
        {"loftq", "quantizes the base weights; import the model that its merge_and_unload()"},
        {"next_idea", "does not know whether these initial values change the base"}})
    expect_mentions(refusal_of(text(R"("init_lora_weights": ")", initial, '"')),
                    {"a.json: describes an adapter that Trireme does not support",
                     text("init_lora_weights = \"", initial, "\": "), reason});
  expect_mentions(refusal_of(R"("init_lora_weights": 3)"), {"init_lora_weights = 3"});
}

TEST(PeftConfig, RejectsMembersOfOtherAdapters) {
  for (const char* member : {R"("alora_invocation_tokens": [7, 8])",
                             R"("alpha_pattern": {"q_proj": 16})",
                             R"("arrow_config": {"top_k": 3})",
                             R"("bias": "lora_only")",
                             R"("bias": "all")",
                             R"("exclude_modules": ["o_proj"])",
                             R"("exclude_modules": ".*0.*")",
                             R"("kasa_config": {"beta": 0.1})",
                             R"("layer_replication": [[0, 1], [0, 1]])",
                             R"("layers_pattern": "layers")",
                             R"("layers_to_transform": [0])",
                             R"("layers_to_transform": 0)",
                             R"("lora_bias": true)",
                             R"("megatron_config": {"tensor_model_parallel_size": 2})",
                             R"("modules_to_save": ["embed_tokens"])",
                             R"("rank_pattern": {"k_proj": 2})",
                             R"("target_parameters": ["mlp.experts.gate_up_proj"])",
                             R"("trainable_token_indices": [1, 2])",
                             R"("use_bdlora": {"nblocks": 2})",
                             R"("use_qalora": true)"}) {
    const std::string message = refusal_of(member);
    const std::string name = std::string(member).substr(1, std::string(member).find('"', 1) - 1);
    expect_mentions(message, {"a.json: describes an adapter that Trireme does not support",
                              "\n  " + name + " = ", "such an adapter cannot be imported"});
    EXPECT_EQ(message.find("does not know"), std::string::npos) << message;
  }
}

TEST(PeftConfig, RejectsUnknownMembersUnlessEmpty) {
  for (const char* member : {R"("alora_invocation_string": "<|go|>")", R"("lora_dtype": "bf16")",
                             R"("gate": true)", R"("offset": 0)"})
    expect_mentions(refusal_of(member), {": Trireme does not know this member"});
}

TEST(PeftConfig, ReportsAnotherAdapterTypeInOneLine) {
  const std::string message = refusal_of(R"("peft_type": "LOKR", "decompose_both": true)");
  expect_mentions(message, {"a.json: has peft_type = \"LOKR\"", "merge_and_unload()"});
  EXPECT_EQ(message.find("decompose_both"), std::string::npos) << message;
}

TEST(PeftConfig, ComparesValuesWithTheDeck) {
  expect_mentions(
      refusal_of(R"("r": 8, "lora_alpha": 16, "use_rslora": true, "use_dora": true)"),
      {"a.json is another adapter than deck.toml describes", "r = 8, but [adapter] rank = 4",
       "lora_alpha = 16, but [adapter] alpha = 8", "use_rslora = true, but [adapter] scaling",
       "use_dora = true, but [adapter] kind"});
  expect_mentions(refusal_of(R"("target_modules": ["q_proj"])"), {"target_modules = [\"q_proj\"]"});
  expect_mentions(refusal_of(R"("r": null)"), {"r = 8, but [adapter] rank = 4"});
}

TEST(PeftConfig, ReportsAnotherDropout) {
  const auto lines =
      expect_same_adapter(config_with(R"("lora_dropout": 0.05)"), "a.json", adapted());
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines.front(),
            "a.json has lora_dropout = 0.05; training uses [adapter] dropout = 0.0 (default)");
  EXPECT_TRUE(expect_same_adapter(config_with(R"("lora_dropout": 0.05)"), "a.json",
                                  adapted("dropout = 0.05\n"))
                  .empty());
}

TEST(PeftConfig, ReadsBackAsWritten) {
  const deck::Deck deck = adapted("dropout = 0.1\nscaling = \"rslora\"\n");
  EXPECT_TRUE(
      expect_same_adapter(adapter_config_text(deck.config.model, "base"), "a.json", deck).empty());
}

}  // namespace
}  // namespace trireme::hugging_face
