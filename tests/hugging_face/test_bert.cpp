#include <trireme/hugging_face/weights.hpp>

#include "folders.hpp"

#include <algorithm>
#include <filesystem>

namespace trireme::hugging_face {
namespace {

using namespace testing;
namespace fs = std::filesystem;

TEST(BertTensors, UseTheTensorNamesOfBert) {
  const TemporaryFolder folder;
  const auto model = odd_bert(true, SentenceLoss::next);
  auto weights = weights_of(model);
  export_weights(checkpoint::Reader(write_checkpoint(folder.file("c"), model, weights)), model,
                 DType::fp32, folder.path().string());
  const TensorFolder file(folder.path().string());
  EXPECT_EQ(file.tensors().size(), 5u + 16 * 2 + 2 + 4 + 1 + 2);
  const std::string theirs = "bert.encoder.layer.1.";
  const std::string ours = "layers.1.";
  const std::map<std::string, Words> expected{
      {"bert.embeddings.word_embeddings.weight", weights["embedding.token"]},
      {"bert.embeddings.position_embeddings.weight", weights["embedding.position"]},
      {"bert.embeddings.token_type_embeddings.weight", weights["embedding.segment"]},
      {"bert.embeddings.LayerNorm.weight", weights["layers.0.attention_norm.gain"]},
      {"bert.encoder.layer.0.output.LayerNorm.bias", weights["layers.1.attention_norm.bias"]},
      {theirs + "attention.self.query.weight", weights[ours + "attention.query"]},
      {theirs + "attention.self.key.weight", part(weights[ours + "attention.key_value"], 0, 2)},
      {theirs + "attention.self.value.bias",
       part(weights[ours + "attention.key_value_bias"], 1, 2)},
      {theirs + "attention.output.dense.weight", weights[ours + "attention.output"]},
      {theirs + "attention.output.LayerNorm.weight", weights[ours + "feed_forward_norm.gain"]},
      {theirs + "intermediate.dense.bias", weights[ours + "feed_forward.up_bias"]},
      {theirs + "output.dense.weight", weights[ours + "feed_forward.down"]},
      {theirs + "output.LayerNorm.weight", weights["final_norm.gain"]},
      {"bert.pooler.dense.weight", weights["sentence_head.dense"]},
      {"cls.predictions.transform.dense.bias", weights["masked_head.dense_bias"]},
      {"cls.predictions.transform.LayerNorm.weight", weights["masked_head.norm.gain"]},
      {"cls.predictions.bias", weights["output.bias"]},
      {"cls.seq_relationship.weight", weights["sentence_head.output"]}};
  for (const auto& [name, words] : expected) EXPECT_EQ(values(file, name), words) << name;
}

TEST(BertTensors, UntiedModelsReadTheDecodersBias) {
  const TemporaryFolder folder;
  const auto model = odd_bert(false, SentenceLoss::none);
  auto weights = weights_of(model);
  export_weights(checkpoint::Reader(write_checkpoint(folder.file("c"), model, weights)), model,
                 DType::fp32, folder.path().string());
  const TensorFolder file(folder.path().string());
  EXPECT_EQ(values(file, "cls.predictions.decoder.bias"), weights["output.bias"]);
  EXPECT_EQ(values(file, "cls.predictions.bias"), weights["output.bias"])
      << "transformers would miss it";
  std::vector<TensorPlan> plan = plan_of(model);
  const auto bias = std::ranges::find(plan, "cls.predictions.decoder.bias", &TensorPlan::name);
  ASSERT_NE(bias, plan.end());
  bias->name = "cls.predictions.bias";
  fs::create_directory(folder.file("old"));
  write_zeros(folder.file("old"), plan);
  const TensorFolder old(folder.file("old"));
  EXPECT_EQ(message_of([&] { match(old, format_of(Family::bert), model); }), "no error");
}

}  // namespace
}  // namespace trireme::hugging_face
