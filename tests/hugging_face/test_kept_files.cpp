#include <trireme/hugging_face/kept_files.hpp>

#include "configs.hpp"

/// What an export keeps of an imported model's files.
namespace trireme::hugging_face {
namespace {

using namespace testing;
using Lines = std::vector<std::string>;

deck::ModelConfig read(const std::string& content) {
  return parse_config(content, "config.json").model;
}

UpdatedFile exported(const std::string& imported, const deck::ModelConfig& model,
                     const std::vector<std::int64_t>& ends = {}, DType dtype = DType::fp32) {
  return updated_config(imported, "config.json", model, dtype, ends);
}

/// A published file: members in no order of ours, and some that only other programs use.
const std::string published = R"({
  "_name_or_path": "some/model",
  "architectures": ["LlamaForCausalLM"],
  "bos_token_id": 128,
  "eos_token_id": [129, 130],
  "pad_token_id": 131,
  "hidden_size": 144,
  "initializer_range": 0.01,
  "intermediate_size": 333,
  "max_position_embeddings": 131072,
  "model_type": "llama",
  "num_attention_heads": 6,
  "num_hidden_layers": 2,
  "num_key_value_heads": 3,
  "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0,
  "tie_word_embeddings": false,
  "torch_dtype": "float32",
  "unsloth_fixed": true,
  "use_cache": false,
  "vocab_size": 503
})";

TEST(KeptFiles, TrainingAloneKeepsEveryMember) {
  deck::ModelConfig model = read(published);
  model.sequence = 32;  // rotary positions: samples may be shorter
  const UpdatedFile file = exported(published, model, {129, 130});
  EXPECT_EQ(file.changes, Lines{});
  EXPECT_EQ(nlohmann::ordered_json::parse(file.content).dump(),
            nlohmann::ordered_json::parse(published).dump());
}

TEST(KeptFiles, QuantizationIsRemovedBecauseExportsHoldNumbers) {
  json file = json::parse(config_text(odd_llama(false, Family::gpt_oss), DType::fp32, {}));
  const std::string plain = file.dump();
  EXPECT_EQ(exported(plain, read(plain)).changes, Lines{});
  file["quantization_config"] = {{"quant_method", "mxfp4"}};
  const UpdatedFile without = exported(file.dump(), read(file.dump()));
  EXPECT_EQ(without.changes, Lines{"quantization_config, removed"});
  EXPECT_EQ(json::parse(without.content), json::parse(plain));
}

TEST(KeptFiles, ChangedMembersAreSetAndListed) {
  deck::ModelConfig model = read(published);
  model.sequence = 262144;
  model.rope_factor = 32;
  model.dropout = 0.1;
  const UpdatedFile file = exported(published, model, {}, DType::bf16);
  EXPECT_EQ(read(file.content), model);
  ASSERT_EQ(file.changes.size(), 5u) << json(file.changes).dump(1);
  EXPECT_EQ(file.changes[0], "max_position_embeddings = 262144 instead of 131072");
  expect_mentions(file.changes[1], {"rope_parameters = {", ", added"});
  expect_mentions(file.changes[2], {"rope_scaling = {\"factor\":32.0", " instead of "});
  EXPECT_EQ(file.changes[3], "attention_dropout = 0.1, added");
  EXPECT_EQ(file.changes[4], "torch_dtype = \"bfloat16\" instead of \"float32\"");
}

TEST(KeptFiles, DroppedScalingIsRemoved) {
  deck::ModelConfig model = read(published);
  model.rope_scaling = RotaryScalingKind::none;
  const UpdatedFile file = exported(published, model);
  EXPECT_FALSE(json::parse(file.content).contains("rope_scaling"));
  EXPECT_EQ(read(file.content).rope_scaling, RotaryScalingKind::none);
  EXPECT_EQ(file.changes.back(), "rope_scaling, removed");
}

TEST(KeptFiles, EndTokensAreAdded) {
  const deck::ModelConfig model = read(llama + "}");
  const auto ends = [&](const std::string& member, const std::vector<std::int64_t>& ids) {
    const UpdatedFile file = exported(llama + member + "}", model, ids);
    return json::parse(file.content).value("eos_token_id", json());
  };
  EXPECT_EQ(ends(R"(, "eos_token_id": 7)", {7}), 7);
  EXPECT_EQ(ends(R"(, "eos_token_id": 7)", {8}), json({7, 8}));
  EXPECT_EQ(ends(R"(, "eos_token_id": [7, 9])", {9, 8}), json({7, 9, 8}));
  EXPECT_EQ(ends(R"(, "eos_token_id": null)", {8}), 8);
  EXPECT_EQ(ends("", {8, 9}), json({8, 9}));
  EXPECT_EQ(ends("", {}), json());
  const UpdatedFile file =
      exported(llama + R"(, "bos_token_id": 1, "eos_token_id": 7})", model, {8});
  EXPECT_EQ(json::parse(file.content)["bos_token_id"], 1);
  expect_mentions(json(file.changes).dump(), {"eos_token_id = [7,8] instead of 7"});
}

TEST(KeptFiles, UnchangedModelKeepsTheConfigOfEveryFamily) {
  for (const std::string folder : {"gpt2_hugging_face/tied",
                                   "gpt2_hugging_face/untied",
                                   "llama_hugging_face/tied",
                                   "llama_hugging_face/untied",
                                   "decoders_hugging_face/qwen2_tied",
                                   "decoders_hugging_face/qwen3_tied",
                                   "decoders_hugging_face/mistral_untied",
                                   "decoders_hugging_face/gemma",
                                   "decoders_hugging_face/gemma2",
                                   "decoders_hugging_face/gemma3",
                                   "decoders_hugging_face/olmo2",
                                   "decoders_hugging_face/mixtral",
                                   "decoders_hugging_face/qwen3_moe",
                                   "decoders_hugging_face/olmoe",
                                   "decoders_hugging_face/qwen2_moe",
                                   "decoders_hugging_face/gpt_oss",
                                   "decoders_hugging_face/deepseek_v3",
                                   "decoders_hugging_face/llama_yarn",
                                   "decoders_hugging_face/llama_dynamic",
                                   "bert_hugging_face/pairs",
                                   "bert_hugging_face/masked"}) {
    const std::string content = read_file(golden_file(folder + "/config.json"));
    const json before = json::parse(content);
    const auto type = before.value("dtype", before.value("torch_dtype", "float32"));
    const UpdatedFile file = exported(content, read(content), {},
                                      type == "float64"    ? DType::fp64
                                      : type == "bfloat16" ? DType::bf16
                                                           : DType::fp32);
    EXPECT_EQ(file.changes, Lines{}) << folder;
    EXPECT_EQ(json::parse(file.content), before) << folder;
  }
}

TEST(KeptFiles, DropoutComesFromTheDeck) {
  const std::string content = read_file(golden_file("gpt2_hugging_face/tied/config.json"));
  json before = json::parse(content);
  before["attn_pdrop"] = 0.3;
  const UpdatedFile file = exported(before.dump(), read(content));
  EXPECT_EQ(file.changes, Lines{"attn_pdrop = 0.0 instead of 0.3"});
}

TEST(KeptFiles, HeadlessClassBecomesTheExportedClass) {
  const UpdatedFile file = exported(llama + R"(, "architectures": ["LlamaModel"],
      "torch_dtype": "float32"})",
                                    read(llama + "}"));
  EXPECT_EQ(file.changes,
            Lines{R"(architectures = ["LlamaForCausalLM"] instead of ["LlamaModel"])"});
}

TEST(KeptFiles, GenerationConfigGetsTheEndTokens) {
  const std::string imported = R"({"do_sample": true, "eos_token_id": [7], "top_p": 0.8})";
  const UpdatedFile file = updated_generation_config(imported, "g.json", {7, 9});
  EXPECT_EQ(json::parse(file.content),
            json::parse(R"({"do_sample": true, "eos_token_id": [7, 9], "top_p": 0.8})"));
  EXPECT_EQ(file.changes, Lines{"eos_token_id = [7,9] instead of [7]"});
  EXPECT_EQ(updated_generation_config(R"({"top_k": 3})", "g.json", {9}).changes, Lines{});
  expect_mentions(message_of([] { updated_generation_config("[]", "g.json", {}); }), {"g.json"});
}

TEST(KeptFiles, TokenizerFilesAreKeptOnlyWithTheTokenizer) {
  const TemporaryFolder folder;
  const auto names = [&](bool tokenizer) {
    Lines found;
    for (const auto& [name, content] : files_to_keep(folder.path().string(), tokenizer))
      found.push_back(name + " " + content);
    return found;
  };
  EXPECT_EQ(names(true), Lines{});
  folder.write("config.json", "{}");
  folder.write("chat_template.jinja", "{{ x }}");
  folder.write("README.md", "no");
  EXPECT_EQ(names(true),
            (Lines{"hugging_face_chat_template.jinja {{ x }}", "hugging_face_config.json {}"}));
  EXPECT_EQ(names(false), Lines{"hugging_face_config.json {}"});
  folder.write("generation_config.json", "{\"a\": ");
  expect_mentions(message_of([&] { names(false); }), {"generation_config.json"});
}

}  // namespace
}  // namespace trireme::hugging_face
