#include "folders.hpp"

namespace trireme::hugging_face {
namespace {

using namespace testing;

TEST(LlamaTensors, AreTheArraysAndHalvesOfArraysAsLlamaNamesThem) {
  const TemporaryFolder folder;
  const auto model = odd_llama(false);
  auto weights = weights_of(model);
  export_weights(checkpoint::Reader(write_checkpoint(folder.file("c"), model, weights)), model,
                 DType::fp32, folder.path().string());
  const TensorFolder file(folder.path().string());
  EXPECT_EQ(file.tensors().size(), 1u + 9 * 2 + 2);
  const std::string theirs = "model.layers.1.";
  const std::string ours = "layers.1.";
  const auto& kv = weights[ours + "attention.key_value"];
  const auto& gate_up = weights[ours + "feed_forward.gate_up"];
  const std::map<std::string, Words> expected{
      {"model.embed_tokens.weight", weights["embedding.token"]},
      {theirs + "input_layernorm.weight", weights[ours + "attention_norm.gain"]},
      {theirs + "self_attn.q_proj.weight", weights[ours + "attention.query"]},
      {theirs + "self_attn.k_proj.weight", part(kv, 0, 2)},
      {theirs + "self_attn.v_proj.weight", part(kv, 1, 2)},
      {theirs + "self_attn.o_proj.weight", weights[ours + "attention.output"]},
      {theirs + "post_attention_layernorm.weight", weights[ours + "feed_forward_norm.gain"]},
      {theirs + "mlp.gate_proj.weight", part(gate_up, 0, 2)},
      {theirs + "mlp.up_proj.weight", part(gate_up, 1, 2)},
      {theirs + "mlp.down_proj.weight", weights[ours + "feed_forward.down"]},
      {"model.norm.weight", weights["final_norm.gain"]},
      {"lm_head.weight", weights["output.weight"]}};
  for (const auto& [name, words] : expected) EXPECT_EQ(values(file, name), words) << name;
  for (const StoredTensor& tensor : file.tensors())
    if (tensor.info->name == theirs + "self_attn.k_proj.weight") {
      EXPECT_EQ(tensor.info->shape, (Extents{72, 144}));
    }
}

}  // namespace
}  // namespace trireme::hugging_face
