#include "folders.hpp"

namespace trireme::hugging_face {
namespace {

using namespace testing;

TEST(Gpt2Tensors, UseTheNamesAndOrientationOfGpt2) {
  const TemporaryFolder folder;
  const auto model = odd_model(true);
  auto weights = weights_of(model);
  export_weights(checkpoint::Reader(write_checkpoint(folder.file("c"), model, weights)), model,
                 DType::fp32, folder.path().string());
  const TensorFolder file(folder.path().string());
  const auto D = static_cast<std::size_t>(model.hidden);
  const auto F = static_cast<std::size_t>(model.feed_forward);
  EXPECT_EQ(file.tensors().size(), 2u + 12 * 2 + 2);
  EXPECT_EQ(values(file, "transformer.wte.weight"), weights["embedding.token"]);
  EXPECT_EQ(values(file, "transformer.wpe.weight"), weights["embedding.position"]);
  EXPECT_EQ(values(file, "transformer.ln_f.weight"), weights["final_norm.gain"]);
  EXPECT_EQ(values(file, "transformer.h.1.ln_2.bias"), weights["layers.1.feed_forward_norm.bias"]);

  const auto qkv = values(file, "transformer.h.1.attn.c_attn.weight");
  const auto qkv_bias = values(file, "transformer.h.1.attn.c_attn.bias");
  const auto& q = weights["layers.1.attention.query"];
  const auto& kv = weights["layers.1.attention.key_value"];
  ASSERT_EQ(qkv.size(), 3 * D * D);
  for (std::size_t d = 0; d < D; ++d)  // input
    for (std::size_t j = 0; j < D; ++j) {
      ASSERT_EQ(qkv[d * 3 * D + j], q[j * D + d]);
      ASSERT_EQ(qkv[d * 3 * D + D + j], kv[j * D + d]);
      ASSERT_EQ(qkv[d * 3 * D + 2 * D + j], kv[D * D + j * D + d]);
    }
  ASSERT_EQ(qkv_bias.size(), 3 * D);
  for (std::size_t j = 0; j < D; ++j) {
    ASSERT_EQ(qkv_bias[j], weights["layers.1.attention.query_bias"][j]);
    ASSERT_EQ(qkv_bias[2 * D + j], weights["layers.1.attention.key_value_bias"][D + j]);
  }
  const auto up = values(file, "transformer.h.0.mlp.c_fc.weight");
  const auto down = values(file, "transformer.h.0.mlp.c_proj.weight");
  ASSERT_EQ(up.size(), D * F);
  for (std::size_t d = 0; d < D; ++d)
    for (std::size_t f = 0; f < F; ++f) {
      ASSERT_EQ(up[d * F + f], weights["layers.0.feed_forward.up"][f * D + d]);
      ASSERT_EQ(down[f * D + d], weights["layers.0.feed_forward.down"][d * F + f]);
    }
}

}  // namespace
}  // namespace trireme::hugging_face
