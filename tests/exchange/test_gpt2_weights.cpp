#include <trireme/exchange/convert.hpp>
#include <trireme/exchange/gpt2.hpp>
#include <trireme/exchange/gpt2_weights.hpp>

#include "support.hpp"

#include <cmath>
#include <filesystem>
#include <set>

namespace trireme::exchange {
namespace {

using namespace testing;
namespace fs = std::filesystem;

std::vector<std::uint32_t> values(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo* tensor = file.find(name);
  if (tensor == nullptr) return {};
  std::vector<std::uint32_t> out(static_cast<std::size_t>(tensor->elements()));
  file.read(*tensor, 0, tensor->bytes, out.data());
  return out;
}

class Gpt2Weights : public ::testing::TestWithParam<bool> {
 protected:
  Gpt2Weights() : model_(odd_model(GetParam())), weights_(weights_of(model_)) {}

  std::string checkpoint(const std::string& directory) {
    return write_checkpoint(folder_.file(directory), model_, weights_);
  }
  /// The weights in a file, which is returned.
  std::string exported() {
    const auto path = folder_.file("model.safetensors");
    export_gpt2(checkpoint::Reader(checkpoint("from")), model_, DType::fp32, path);
    return path;
  }
  std::string refusal(const std::string& path) {
    return message_of([&] {
      import_gpt2(SafetensorsFile(path), model_, DType::fp32, folder_.file("to"), "deck");
    });
  }
  /// A file of the model's tensors, changed by `edit`, filled with zeros.
  std::string file_of(const std::function<void(std::vector<TensorPlan>&)>& edit) {
    std::vector<TensorPlan> plan;
    for (const auto& tensor : gpt2_tensors(model_))
      plan.push_back({tensor.name, DType::fp32, tensor.shape});
    edit(plan);
    const auto path = folder_.file("edited.safetensors");
    SafetensorsWriter writer(path, plan);
    for (const auto& tensor : plan) {
      const auto bytes = checkpoint::volume(tensor.shape) * size_of(tensor.dtype);
      writer.append(std::string(static_cast<std::size_t>(bytes), '\0').data(), bytes);
    }
    writer.commit();
    return path;
  }

  TemporaryFolder folder_;
  deck::ModelConfig model_;
  Weights weights_;
};

INSTANTIATE_TEST_SUITE_P(Embeddings, Gpt2Weights, ::testing::Bool(),
                         [](const auto& tied) { return tied.param ? "Tied" : "Untied"; });

TEST_P(Gpt2Weights, EveryArrayIsInExactlyOneTensor) {
  std::multiset<std::string> named;
  for (const auto& tensor : gpt2_tensors(model_))
    named.insert(tensor.arrays.begin(), tensor.arrays.end());
  std::multiset<std::string> expected;
  for (const auto& spec : architecture::describe(model_).arrays) expected.insert(spec.name);
  EXPECT_EQ(named, expected);
}

TEST_P(Gpt2Weights, TensorsAreTheArraysAsGpt2NamesAndTurnsThem) {
  const SafetensorsFile file(exported());
  const auto D = static_cast<std::size_t>(model_.hidden);
  const auto F = static_cast<std::size_t>(model_.feed_forward);
  EXPECT_EQ(file.tensors().size(), 2u + 12 * 2 + 2 + (GetParam() ? 0 : 1));
  EXPECT_EQ(values(file, "transformer.wte.weight"), weights_["embedding.token"]);
  EXPECT_EQ(values(file, "transformer.wpe.weight"), weights_["embedding.position"]);
  EXPECT_EQ(values(file, "transformer.ln_f.weight"), weights_["final_norm.gain"]);
  EXPECT_EQ(values(file, "transformer.h.1.ln_2.bias"), weights_["layers.1.feed_forward_norm.bias"]);
  EXPECT_EQ(values(file, "lm_head.weight"), weights_["output.weight"]);

  const auto qkv = values(file, "transformer.h.1.attn.c_attn.weight");
  const auto qkv_bias = values(file, "transformer.h.1.attn.c_attn.bias");
  const auto& q = weights_["layers.1.attention.query"];
  const auto& kv = weights_["layers.1.attention.key_value"];
  ASSERT_EQ(qkv.size(), 3 * D * D);
  for (std::size_t d = 0; d < D; ++d)  // input
    for (std::size_t j = 0; j < D; ++j) {
      ASSERT_EQ(qkv[d * 3 * D + j], q[j * D + d]);
      ASSERT_EQ(qkv[d * 3 * D + D + j], kv[j * D + d]);
      ASSERT_EQ(qkv[d * 3 * D + 2 * D + j], kv[D * D + j * D + d]);
    }
  ASSERT_EQ(qkv_bias.size(), 3 * D);
  for (std::size_t j = 0; j < D; ++j) {
    ASSERT_EQ(qkv_bias[j], weights_["layers.1.attention.query_bias"][j]);
    ASSERT_EQ(qkv_bias[2 * D + j], weights_["layers.1.attention.key_value_bias"][D + j]);
  }
  const auto up = values(file, "transformer.h.0.mlp.c_fc.weight");
  const auto down = values(file, "transformer.h.0.mlp.c_proj.weight");
  ASSERT_EQ(up.size(), D * F);
  for (std::size_t d = 0; d < D; ++d)
    for (std::size_t f = 0; f < F; ++f) {
      ASSERT_EQ(up[d * F + f], weights_["layers.0.feed_forward.up"][f * D + d]);
      ASSERT_EQ(down[f * D + d], weights_["layers.0.feed_forward.down"][d * F + f]);
    }
}

TEST_P(Gpt2Weights, OutAndInAgainIsTheSameBits) {
  const SafetensorsFile file(exported());
  import_gpt2(file, model_, DType::fp32, folder_.file("to"), "the deck");
  const checkpoint::Reader reader(folder_.file("to") + "/step_00000000");
  EXPECT_EQ(reader.state().step, 0);
  EXPECT_EQ(reader.state().samples, 0);
  EXPECT_EQ(reader.state().deck_toml, "the deck");
  EXPECT_EQ(reader.arrays().size(), weights_.size()) << "nothing of the optimizer";
  for (const auto& array : reader.arrays()) {
    std::vector<std::uint32_t> read(static_cast<std::size_t>(array.elements()));
    reader.read(array.name, DType::fp32, array.shape, read.data());
    EXPECT_EQ(read, weights_.at(array.name)) << array.name;
  }
}

TEST_P(Gpt2Weights, RoundingTouchesEveryNumberOnceAndOverflowIsRefused) {
  for (auto& [name, bits] : weights_)
    for (auto& word : bits) word = (word & 0x80ffffffu) | 0x3e000000u;  // 1/8 to 1/2
  const checkpoint::Reader reader(checkpoint("small"));
  const auto path = folder_.file("half.safetensors");
  export_gpt2(reader, model_, DType::fp16, path);
  import_gpt2(SafetensorsFile(path), model_, DType::fp64, folder_.file("to"), "deck");
  const checkpoint::Reader back(folder_.file("to") + "/step_00000000");
  for (const auto& array : back.arrays()) {
    std::vector<double> read(static_cast<std::size_t>(array.elements()));
    back.read(array.name, DType::fp64, array.shape, read.data());
    for (std::size_t i = 0; i < read.size(); ++i) {
      const double exact = number_at(DType::fp32, &weights_.at(array.name)[i], 0);
      ASSERT_LE(std::abs(read[i] - exact), 0x1p-11 * std::abs(exact)) << array.name;
    }
  }
  weights_["layers.1.feed_forward.up"][1234] = 0x49742400;  // 1e6
  const checkpoint::Reader large(checkpoint("large"));
  const auto other = folder_.file("other.safetensors");
  expect_mentions(message_of([&] { export_gpt2(large, model_, DType::fp16, other); }),
                  {"layers.1.feed_forward.up", "1e+06", "fp16"});
  EXPECT_FALSE(fs::exists(other));
}

TEST_P(Gpt2Weights, OtherTensorsAreNamedInOneErrorAndNoCheckpointIsLeft) {
  const auto error = refusal(file_of([](std::vector<TensorPlan>& plan) {
    plan[0].shape = {504, 144};
    plan[3].name = "transformer.h.0.ln_1.beta";
    plan.push_back({"score.weight", DType::fp32, {2}});
  }));
  expect_mentions(error, {"edited.safetensors", "transformer.wte.weight is F32 [504, 144]",
                          "[503, 144]", "transformer.h.0.ln_1.bias is missing",
                          "transformer.h.0.ln_1.beta, F32 [144], is left over",
                          "score.weight, F32 [2], is left over"});
  expect_mentions(refusal(file_of([](std::vector<TensorPlan>& plan) {
                    plan.erase(plan.begin() + 2, plan.end());
                  })),
                  {"ln_1.weight is missing", "more"});
  EXPECT_FALSE(fs::exists(folder_.file("to")));
}

TEST_P(Gpt2Weights, NamesWithoutPrefixAndMasksAreTaken) {
  const auto path = file_of([](std::vector<TensorPlan>& plan) {
    for (auto& tensor : plan)
      if (tensor.name.starts_with("transformer.")) tensor.name = tensor.name.substr(12);
    plan.push_back({"h.0.attn.bias", DType::fp32, {1, 1, 61, 61}});
    plan.push_back({"h.1.attn.masked_bias", DType::fp32, {}});
  });
  EXPECT_EQ(refusal(path), "no error");
  EXPECT_TRUE(fs::exists(folder_.file("to") + "/step_00000000/manifest.json"));
}

TEST(Gpt2Tied, AnOutputOfItsOwnMustBeTheTable) {
  const TemporaryFolder folder;
  const auto model = odd_model(true);
  for (const bool equal : {true, false}) {
    std::vector<TensorPlan> plan;
    for (const auto& tensor : gpt2_tensors(model))
      plan.push_back({tensor.name, DType::fp32, tensor.shape});
    plan.push_back({"lm_head.weight", DType::fp32, {503, 144}});
    const auto path = folder.file("model.safetensors");
    SafetensorsWriter writer(path, plan);
    for (const auto& tensor : plan) {
      std::string zeros(static_cast<std::size_t>(checkpoint::volume(tensor.shape) * 4), '\0');
      if (tensor.name == "lm_head.weight" && !equal) zeros.back() = 1;
      writer.append(zeros.data(), std::ssize(zeros));
    }
    writer.commit();
    const auto message = message_of([&] { match_gpt2(SafetensorsFile(path), model); });
    if (equal)
      EXPECT_EQ(message, "no error");
    else
      expect_mentions(message, {"lm_head.weight is not equal to transformer.wte.weight",
                                "\"tie_word_embeddings\": false"});
  }
}

TEST(Gpt2Export, ACheckpointOfAnotherModelIsRefused) {
  const TemporaryFolder folder;
  const auto model = odd_model(true);
  const checkpoint::Reader reader(write_checkpoint(folder.file("c"), model, weights_of(model)));
  EXPECT_EQ(weights_type(reader, model), DType::fp32);
  auto other = model;
  other.layers = 1;
  expect_mentions(message_of([&] { weights_type(reader, other); }), {"layers.1.", "has not"});
  other.layers = 3;
  expect_mentions(message_of([&] { weights_type(reader, other); }), {"holds no array 'layers.2."});
  other = model;
  other.vocabulary = 504;
  expect_mentions(message_of([&] { weights_type(reader, other); }), {"[503, 144]", "[504, 144]"});
}

TEST(Gpt2Export, DamagedNumbersAreNotExported) {
  const TemporaryFolder folder;
  const auto model = odd_model(true);
  const auto from = write_checkpoint(folder.file("c"), model, weights_of(model));
  std::string shard = read_file(from + "/shard_000000.h5");
  shard[shard.size() / 2] = static_cast<char>(shard[shard.size() / 2] ^ 1);
  fs::remove(from + "/shard_000000.h5");
  folder.write("c/step_00000007/shard_000000.h5", shard);
  const checkpoint::Reader reader(from);
  const auto path = folder.file("model.safetensors");
  expect_mentions(message_of([&] { export_gpt2(reader, model, DType::fp32, path); }),
                  {"shard_000000.h5"});
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace trireme::exchange
