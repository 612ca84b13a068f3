#include <trireme/exchange/convert.hpp>
#include <trireme/exchange/folder_writer.hpp>
#include <trireme/exchange/match.hpp>
#include <trireme/exchange/weights.hpp>

#include "support.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace trireme::exchange {
namespace {

using namespace testing;
namespace fs = std::filesystem;

using Words = std::vector<std::uint32_t>;

Words values(const TensorFolder& folder, const std::string& name) {
  for (const StoredTensor& tensor : folder.tensors()) {
    if (tensor.info->name != name) continue;
    Words out(static_cast<std::size_t>(tensor.info->elements()));
    tensor.read(0, tensor.info->bytes, out.data());
    return out;
  }
  return {};
}

Words part(const Words& all, std::size_t place, std::size_t of) {
  const auto size = static_cast<std::ptrdiff_t>(all.size() / of);
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(place) * size;
  return {first, first + size};
}

/// Zeros, but for one byte at the end of `odd`.
void write_zeros(const std::string& folder, const std::vector<TensorPlan>& plan,
                 std::int64_t shard_bytes = 0, const std::string& odd = "") {
  FolderWriter writer(folder, plan, shard_bytes);
  for (const auto& tensor : plan) {
    const auto bytes = checkpoint::volume(tensor.shape) * size_of(tensor.dtype);
    std::string zeros(static_cast<std::size_t>(bytes), '\0');
    if (tensor.name == odd) zeros.back() = 1;
    writer.append(zeros.data(), bytes);
  }
  writer.commit();
}

std::vector<TensorPlan> plan_of(const deck::ModelConfig& model) {
  std::vector<TensorPlan> plan;
  for (const auto& tensor : format_of(model.family).tensors(model))
    plan.push_back({tensor.name, DType::fp32, tensor.shape});
  return plan;
}

struct Case {
  const char* name;
  deck::ModelConfig model;
};

class ExchangedWeights : public ::testing::TestWithParam<Case> {
 protected:
  ExchangedWeights() : model_(GetParam().model), weights_(weights_of(model_)) {}

  std::string checkpoint(const std::string& directory) {
    return write_checkpoint(folder_.file(directory), model_, weights_);
  }
  /// The weights in a folder, which is returned.
  std::string exported(std::int64_t shard_bytes = 0) {
    const auto path = made("exported");
    export_weights(checkpoint::Reader(checkpoint("from")), model_, DType::fp32, path, shard_bytes);
    return path;
  }
  std::string made(const std::string& name) {
    fs::create_directory(folder_.file(name));
    return folder_.file(name);
  }
  std::string refusal(const std::string& folder) {
    return message_of([&] {
      import_weights(TensorFolder(folder), model_, DType::fp32, folder_.file("to"), "deck");
    });
  }
  /// A folder of the model's tensors, changed by `edit`, filled with zeros.
  std::string folder_of(const std::function<void(std::vector<TensorPlan>&)>& edit) {
    std::vector<TensorPlan> plan = plan_of(model_);
    edit(plan);
    write_zeros(made("edited"), plan);
    return folder_.file("edited");
  }

  TemporaryFolder folder_;
  deck::ModelConfig model_;
  Weights weights_;
};

INSTANTIATE_TEST_SUITE_P(Models, ExchangedWeights,
                         ::testing::Values(Case{"Gpt2Tied", odd_model(true)},
                                           Case{"Gpt2Untied", odd_model(false)},
                                           Case{"LlamaTied", odd_llama(true)},
                                           Case{"LlamaUntied", odd_llama(false)},
                                           Case{"BertTied", odd_bert(true, SentenceLoss::next)},
                                           Case{"BertUntied", odd_bert(false, SentenceLoss::order)},
                                           Case{"BertMasked", odd_bert(true, SentenceLoss::none)}),
                         [](const auto& model) { return std::string(model.param.name); });

TEST_P(ExchangedWeights, EveryPlaceOfEveryArrayIsInExactlyOneTensor) {
  std::multimap<std::string, std::int64_t> places;
  std::int64_t elements = 0;
  for (const auto& tensor : format_of(model_.family).tensors(model_)) {
    elements += checkpoint::volume(tensor.shape);
    for (const Piece& piece : tensor.pieces) places.emplace(piece.array, piece.place);
  }
  const auto architecture = architecture::describe(model_);
  EXPECT_EQ(elements, architecture.parameters());
  for (const auto& spec : architecture.arrays) {
    std::vector<std::int64_t> found;
    for (auto [at, end] = places.equal_range(spec.name); at != end; ++at)
      found.push_back(at->second);
    std::vector<std::int64_t> expected{Piece::whole_array};
    if (found != expected) {
      expected.resize(static_cast<std::size_t>(spec.shape.front()));
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<std::int64_t>(i);
    }
    EXPECT_EQ(found, expected) << spec.name;
    places.erase(spec.name);
  }
  EXPECT_TRUE(places.empty()) << places.begin()->first;
}

TEST_P(ExchangedWeights, OutAndInAgainIsTheSameBitsInOneFileOrInShards) {
  for (const std::int64_t shard_bytes : {0, 200'000}) {
    const auto from = exported(shard_bytes);
    EXPECT_EQ(weight_files(from).size() > 2, shard_bytes > 0);
    const auto to = folder_.file(text("to", shard_bytes));
    import_weights(TensorFolder(from), model_, DType::fp32, to, "the deck");
    const checkpoint::Reader reader(to + "/step_00000000");
    EXPECT_EQ(reader.state().step, 0);
    EXPECT_EQ(reader.state().samples, 0);
    EXPECT_EQ(reader.state().deck_toml, "the deck");
    EXPECT_EQ(reader.arrays().size(), weights_.size()) << "nothing of the optimizer";
    for (const auto& array : reader.arrays()) {
      Words read(static_cast<std::size_t>(array.elements()));
      reader.read(array.name, DType::fp32, array.shape, read.data());
      EXPECT_EQ(read, weights_.at(array.name)) << array.name;
    }
    fs::remove_all(from);
    fs::remove_all(folder_.file("from"));
  }
}

TEST_P(ExchangedWeights, RoundingTouchesEveryNumberOnceAndOverflowIsRefused) {
  for (auto& [name, bits] : weights_)
    for (auto& word : bits) word = (word & 0x80ffffffu) | 0x3e000000u;  // 1/8 to 1/2
  const checkpoint::Reader reader(checkpoint("small"));
  export_weights(reader, model_, DType::fp16, made("half"));
  import_weights(TensorFolder(folder_.file("half")), model_, DType::fp64, folder_.file("to"),
                 "deck");
  const checkpoint::Reader back(folder_.file("to") + "/step_00000000");
  for (const auto& array : back.arrays()) {
    std::vector<double> read(static_cast<std::size_t>(array.elements()));
    back.read(array.name, DType::fp64, array.shape, read.data());
    for (std::size_t i = 0; i < read.size(); ++i) {
      const double exact = number_at(DType::fp32, &weights_.at(array.name)[i], 0);
      ASSERT_LE(std::abs(read[i] - exact), 0x1p-11 * std::abs(exact)) << array.name;
    }
  }
  weights_["layers.1.feed_forward.down"][1234] = 0x49742400;  // 1e6
  const checkpoint::Reader large(checkpoint("large"));
  for (const std::int64_t shard_bytes : {0, 200'000}) {
    expect_mentions(
        message_of([&] { export_weights(large, model_, DType::fp16, made("other"), shard_bytes); }),
        {"layers.1.feed_forward.down", "1e+06", "fp16"});
    EXPECT_TRUE(fs::is_empty(folder_.file("other")));
  }
}

TEST_P(ExchangedWeights, OtherTensorsAreNamedInOneErrorAndNoCheckpointIsLeft) {
  const std::string table = plan_of(model_).front().name;
  const std::string last = plan_of(model_)[3].name;
  const auto error = refusal(folder_of([](std::vector<TensorPlan>& plan) {
    plan[0].shape = {504, 144};
    plan[3].name += ".extra";
    plan.push_back({"score.weight", DType::fp32, {2}});
  }));
  expect_mentions(
      error,
      {"edited/model.safetensors", table + " is F32 [504, 144]", "[503, 144]", last + " is missing",
       last + ".extra, F32 ", "is left over", "score.weight, F32 [2], is left over",
       "expected the tensors of a " + format_of(model_.family).model_class(model_)});
  expect_mentions(refusal(folder_of([](std::vector<TensorPlan>& plan) {
                    plan.erase(plan.begin() + 1, plan.end());
                  })),
                  {".weight is missing"});
  EXPECT_FALSE(fs::exists(folder_.file("to")));
}

/// The name that a tensor may have had in old files.
std::string old_name(std::string name) {
  for (const char* prefix : {"transformer.", "model.", "bert."})
    if (name.starts_with(prefix)) name = name.substr(name.find('.') + 1);
  for (const auto& [now, old] : {std::pair(".LayerNorm.weight", ".LayerNorm.gamma"),
                                 std::pair(".LayerNorm.bias", ".LayerNorm.beta")})
    if (name.ends_with(now)) name.replace(name.rfind(now), std::string::npos, old);
  return name;
}

TEST_P(ExchangedWeights, OldNamesAreTakenAndWhatIsNoWeightIsPassedOver) {
  const auto path = folder_of([this](std::vector<TensorPlan>& plan) {
    for (auto& tensor : plan) tensor.name = old_name(tensor.name);
    const std::map<Family, std::vector<TensorPlan>> more{
        {Family::gpt,
         {{"h.0.attn.bias", DType::fp32, {1, 1, 61, 61}},
          {"transformer.h.1.attn.masked_bias", DType::fp32, {}}}},
        {Family::llama, {{"layers.1.self_attn.rotary_emb.inv_freq", DType::fp32, {12}}}},
        {Family::bert, {{"embeddings.position_ids", DType::fp32, {1, 61}}}}};
    plan.insert(plan.end(), more.at(model_.family).begin(), more.at(model_.family).end());
    if (model_.family != Family::bert || model_.has_sentence_head()) return;
    plan.push_back({"bert.pooler.dense.bias", DType::fp32, {144}});
    plan.push_back({"cls.seq_relationship.bias", DType::fp32, {2}});
  });
  EXPECT_EQ(refusal(path), "no error");
  EXPECT_TRUE(fs::exists(folder_.file("to") + "/step_00000000/manifest.json"));
  const auto twice = folder_of([](std::vector<TensorPlan>& plan) {
    plan.push_back(plan[1]);
    plan.back().name = old_name(plan[1].name);
  });
  expect_mentions(refusal(twice), {"are the same tensor", plan_of(model_)[1].name});
}

TEST_P(ExchangedWeights, AnOutputBesideTiedEmbeddingsMustBeTheTable) {
  std::vector<TensorPlan> plan = plan_of(model_);
  const std::string table = plan.front().name;
  const std::string output =
      model_.family == Family::bert ? "cls.predictions.decoder.weight" : "lm_head.weight";
  if (!model_.tied_embeddings) {
    EXPECT_NE(std::ranges::find(plan, output, &TensorPlan::name), plan.end());
    return;
  }
  plan.push_back({output, DType::fp32, {503, 144}});
  write_zeros(made("equal"), plan, 100'000);
  EXPECT_EQ(refusal(folder_.file("equal")), "no error");
  fs::remove_all(folder_.file("to"));
  write_zeros(made("other"), plan, 100'000, output);
  expect_mentions(refusal(folder_.file("other")),
                  {output + " is not equal to " + table, "\"tie_word_embeddings\": false"});
  plan.back().shape = {502, 144};
  write_zeros(made("smaller"), plan);
  expect_mentions(refusal(folder_.file("smaller")), {output + " is F32 [502, 144]", table});
}

TEST(Gpt2Tensors, AreTheArraysAsGpt2NamesAndTurnsThem) {
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

TEST(BertTensors, AreTheArraysAsBertNamesThemAndNormsBelongToWhatWritesThem) {
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

TEST(BertTensors, UntiedTheBiasThatIsReadIsTheDecoders) {
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

TEST(Export, ACheckpointOfAnotherModelIsRefused) {
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

TEST(Export, DamagedNumbersAreNotExported) {
  const TemporaryFolder folder;
  const auto model = odd_model(true);
  const auto from = write_checkpoint(folder.file("c"), model, weights_of(model));
  std::string shard = read_file(from + "/shard_000000.h5");
  shard[shard.size() / 2] = static_cast<char>(shard[shard.size() / 2] ^ 1);
  fs::remove(from + "/shard_000000.h5");
  folder.write("c/step_00000007/shard_000000.h5", shard);
  const checkpoint::Reader reader(from);
  const auto to = folder.path().string();
  expect_mentions(message_of([&] { export_weights(reader, model, DType::fp32, to); }),
                  {"shard_000000.h5"});
  expect_mentions(message_of([&] { export_weights(reader, model, DType::fp32, to, 100'000); }),
                  {"shard_000000.h5"});
  EXPECT_TRUE(weight_files(to).empty());
}

}  // namespace
}  // namespace trireme::exchange
