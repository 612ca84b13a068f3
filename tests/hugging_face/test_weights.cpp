#include <trireme/base/narrow.hpp>
#include <trireme/hugging_face/config_json.hpp>
#include <trireme/hugging_face/convert.hpp>
#include <trireme/hugging_face/weights.hpp>

#include "folders.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace trireme::hugging_face {
namespace {

using namespace testing;
namespace fs = std::filesystem;

deck::ModelConfig deepseek_with_modules() {
  deck::ModelConfig m = odd_llama(false, Family::deepseek_v3);
  m.predicts = 3;
  return m;
}

struct Case {
  const char* name;
  deck::ModelConfig model;

  /// Name in the list of tests.
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

class HuggingFaceWeights : public ::testing::TestWithParam<Case> {
 protected:
  HuggingFaceWeights() : model_(GetParam().model), weights_(weights_of(model_)) {}

  std::string checkpoint(const std::string& directory) {
    return write_checkpoint(folder_.file(directory), model_, weights_);
  }
  /// Exports the weights and returns the folder.
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
      import_weights(TensorFolder(folder), model_, DType::fp32, folder_.file("to"), {0, 0, "deck"});
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

INSTANTIATE_TEST_SUITE_P(
    Models, HuggingFaceWeights,
    ::testing::Values(Case{"Gpt2Tied", odd_model(true)}, Case{"Gpt2Untied", odd_model(false)},
                      Case{"LlamaTied", odd_llama(true)}, Case{"LlamaUntied", odd_llama(false)},
                      Case{"Qwen2Tied", odd_llama(true, Family::qwen2)},
                      Case{"Qwen2Untied", odd_llama(false, Family::qwen2)},
                      Case{"Qwen3Tied", odd_llama(true, Family::qwen3)},
                      Case{"Qwen3Untied", odd_llama(false, Family::qwen3)},
                      Case{"MistralUntied", odd_llama(false, Family::mistral)},
                      Case{"Olmo2Untied", odd_llama(false, Family::olmo2)},
                      Case{"MixtralUntied", odd_llama(false, Family::mixtral)},
                      Case{"Qwen3MoeTied", odd_llama(true, Family::qwen3_moe)},
                      Case{"OlmoeUntied", odd_llama(false, Family::olmoe)},
                      Case{"Qwen2Moe", odd_llama(false, Family::qwen2_moe)},
                      Case{"GptOss", odd_llama(false, Family::gpt_oss)},
                      Case{"DeepseekV3", odd_llama(false, Family::deepseek_v3)},
                      Case{"DeepseekV3Modules", deepseek_with_modules()},
                      Case{"T5Tied", odd_t5(true)}, Case{"T5Untied", odd_t5(false)},
                      Case{"BertTied", odd_bert(true, SentenceLoss::next)},
                      Case{"BertUntied", odd_bert(false, SentenceLoss::order)},
                      Case{"BertMasked", odd_bert(true, SentenceLoss::none)}),
    [](const auto& model) { return std::string(model.param.name); });

/// All indices of the first `axes` axes, in order.
std::vector<Extents> places_of(const Extents& shape, std::size_t axes) {
  std::vector<Extents> places{{}};
  for (std::size_t axis = 0; axis < axes; ++axis) {
    std::vector<Extents> longer;
    for (const Extents& place : places)
      for (std::int64_t i = 0; i < shape[axis]; ++i) {
        longer.push_back(place);
        longer.back().push_back(i);
      }
    places = std::move(longer);
  }
  return places;
}

TEST_P(HuggingFaceWeights, EachElementBelongsToOneTensor) {
  std::multimap<std::string, Extents> places;
  std::int64_t elements = 0;
  for (const auto& tensor : format_of(model_.family).tensors(model_)) {
    elements += checkpoint::volume(tensor.shape);
    for (const Piece& piece : tensor.pieces) places.emplace(piece.array, piece.place);
  }
  const auto architecture = architecture::describe(model_);
  EXPECT_EQ(elements, architecture.parameters());
  for (const auto& spec : architecture.arrays) {
    std::vector<Extents> found;
    for (auto [at, end] = places.equal_range(spec.name); at != end; ++at)
      found.push_back(at->second);
    ASSERT_FALSE(found.empty()) << spec.name;
    EXPECT_EQ(found, places_of(spec.shape, found.front().size())) << spec.name;
    places.erase(spec.name);
  }
  EXPECT_TRUE(places.empty()) << places.begin()->first;
}

TEST_P(HuggingFaceWeights, RoundTripBitForBitInOneFileOrShards) {
  for (const std::int64_t shard_bytes : {0, 200'000}) {
    const auto from = exported(shard_bytes);
    EXPECT_EQ(weight_files(from).size() > 2, shard_bytes > 0);
    const auto to = folder_.file(text("to", shard_bytes));
    import_weights(TensorFolder(from), model_, DType::fp32, to, {0, 0, "the deck"}, true);
    const checkpoint::Reader reader(to + "/step_00000000");
    EXPECT_EQ(reader.state().step, 0);
    EXPECT_EQ(reader.state().samples, 0);
    EXPECT_EQ(reader.state().deck_toml, "the deck");
    EXPECT_EQ(reader.arrays().size(), weights_.size()) << "no optimizer arrays";
    for (const auto& array : reader.arrays()) {
      Words read(static_cast<std::size_t>(array.elements()));
      reader.read(array.name, DType::fp32, array.shape, read.data());
      EXPECT_EQ(read, weights_.at(array.name)) << array.name;
    }
    fs::remove_all(from);
    fs::remove_all(folder_.file("from"));
  }
}

TEST_P(HuggingFaceWeights, ExportRoundsOnceAndRejectsOverflow) {
  for (auto& [name, bits] : weights_)
    for (auto& word : bits) word = (word & 0x80ffffffu) | 0x3e000000u;  // 1/8 to 1/2
  const checkpoint::Reader reader(checkpoint("small"));
  export_weights(reader, model_, DType::fp16, made("half"));
  import_weights(TensorFolder(folder_.file("half")), model_, DType::fp64, folder_.file("to"),
                 {0, 0, "deck"});
  const checkpoint::Reader back(folder_.file("to") + "/step_00000000");
  for (const auto& array : back.arrays()) {
    std::vector<double> read(static_cast<std::size_t>(array.elements()));
    back.read(array.name, DType::fp64, array.shape, read.data());
    for (std::size_t i = 0; i < read.size(); ++i) {
      const double exact = number_at(DType::fp32, &weights_.at(array.name)[i], 0);
      ASSERT_LE(std::abs(read[i] - exact), 0x1p-11 * std::abs(exact)) << array.name;
    }
  }
  const std::string down =
      model_.experts.present() ? "layers.1.experts.down" : "layers.1.feed_forward.down";
  weights_[down][1234] = 0x49742400;  // 1e6
  const checkpoint::Reader large(checkpoint("large"));
  for (const std::int64_t shard_bytes : {0, 200'000}) {
    expect_mentions(
        message_of([&] { export_weights(large, model_, DType::fp16, made("other"), shard_bytes); }),
        {down, "1e+06", "fp16"});
    EXPECT_TRUE(fs::is_empty(folder_.file("other")));
  }
}

TEST_P(HuggingFaceWeights, ImportListsUnexpectedTensorsAndLeavesNoCheckpoint) {
  const std::string table = plan_of(model_).front().name;
  const std::string last = plan_of(model_)[3].name;
  const auto error = refusal(folder_of([](std::vector<TensorPlan>& plan) {
    plan[0].shape = {504, 144};
    plan[3].name += ".extra";
    plan.push_back({"score.weight", DType::fp32, {2}});
  }));
  expect_mentions(error,
                  {"edited/model.safetensors", table + " is F32 [504, 144]", "[503, 144]",
                   last + " is missing", last + ".extra, F32 ", "is not a tensor of the model",
                   "score.weight, F32 [2], is not a tensor of the model",
                   "expected the tensors of a " + format_of(model_.family).model_class(model_)});
  expect_mentions(refusal(folder_of([](std::vector<TensorPlan>& plan) {
                    plan.erase(plan.begin() + 1, plan.end());
                  })),
                  {".weight is missing"});
  EXPECT_FALSE(fs::exists(folder_.file("to")));
}

TEST_P(HuggingFaceWeights, ImportNamesMissingExperts) {
  // gpt_oss has one tensor for all experts.
  if (!model_.experts.present() || model_.family == Family::gpt_oss) return;
  std::vector<std::string> missing;
  for (const TensorPlan& tensor : plan_of(model_))
    if (tensor.name.find("layers.1.") != std::string::npos &&
        (tensor.name.find(".experts.3.") != std::string::npos ||
         tensor.name.find(".gate.") != std::string::npos))
      missing.push_back(tensor.name);
  ASSERT_EQ(missing.size(), model_.experts.choice_bias ? 5u : 4u);
  for (const std::string& name : missing) {
    const auto error = refusal(folder_of([&](std::vector<TensorPlan>& plan) {
      std::erase_if(plan, [&](const TensorPlan& tensor) { return tensor.name == name; });
    }));
    expect_mentions(error, {"edited/model.safetensors", name + " is missing"});
  }
  std::string more = missing.back();
  more.replace(more.find(".experts.3."), 11, text(".experts.", model_.experts.number, "."));
  expect_mentions(refusal(folder_of([&](std::vector<TensorPlan>& plan) {
                    plan.push_back({more, DType::fp32, {144, model_.experts.feed_forward}});
                  })),
                  {more + ", F32 [144, ", "is not a tensor of the model"});
  EXPECT_FALSE(fs::exists(folder_.file("to")));
}

/// The name of a tensor in old files.
std::string old_name(std::string name) {
  for (const char* prefix : {"transformer.", "model.", "bert."})
    if (name.starts_with(prefix)) name = name.substr(name.find('.') + 1);
  for (const auto& [now, old] : {std::pair(".LayerNorm.weight", ".LayerNorm.gamma"),
                                 std::pair(".LayerNorm.bias", ".LayerNorm.beta")})
    if (name.ends_with(now)) name.replace(name.rfind(now), std::string::npos, old);
  return name;
}

TEST_P(HuggingFaceWeights, ImportAcceptsOldNamesAndSkipsBuffers) {
  const auto path = folder_of([this](std::vector<TensorPlan>& plan) {
    for (auto& tensor : plan) tensor.name = old_name(tensor.name);
    const std::map<Family, std::vector<TensorPlan>> more{
        {Family::gpt,
         {{"h.0.attn.bias", DType::fp32, {1, 1, 61, 61}},
          {"transformer.h.1.attn.masked_bias", DType::fp32, {}}}},
        {Family::llama, {{"layers.1.self_attn.rotary_emb.inv_freq", DType::fp32, {12}}}},
        {Family::bert, {{"embeddings.position_ids", DType::fp32, {1, 61}}}},
        {Family::t5,
         {{"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
           DType::fp32,
           {32, 6}},
          {"encoder.embed_tokens.weight", DType::fp32, {503, 144}},
          {"decoder.embed_tokens.weight", DType::fp32, {503, 144}}}}};
    const Family like = model_.positions == Positions::rotary ? Family::llama : model_.family;
    plan.insert(plan.end(), more.at(like).begin(), more.at(like).end());
    if (model_.family != Family::bert || model_.has_sentence_head()) return;
    plan.push_back({"bert.pooler.dense.bias", DType::fp32, {144}});
    plan.push_back({"cls.seq_relationship.bias", DType::fp32, {2}});
  });
  EXPECT_EQ(refusal(path), "no error");
  EXPECT_TRUE(fs::exists(folder_.file("to") + "/step_00000000/manifest.json"));
  if (model_.family == Family::t5) return;  // no tensor of a T5 had another name
  const auto twice = folder_of([](std::vector<TensorPlan>& plan) {
    plan.push_back(plan[1]);
    plan.back().name = old_name(plan[1].name);
  });
  expect_mentions(refusal(twice), {"are the same tensor", plan_of(model_)[1].name});
}

TEST_P(HuggingFaceWeights, TiedOutputMustEqualTheTable) {
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
  ModelFile file{&format_of(model_.family), "", model_, {}, {}};
  find_own_output(file, TensorFolder(folder_.file("equal")));
  EXPECT_TRUE(file.model.tied_embeddings);
  find_own_output(file, TensorFolder(folder_.file("other")));
  EXPECT_EQ(file.model.tied_embeddings, model_.family != Family::t5);
  expect_mentions(refusal(folder_.file("other")),
                  {output + " is not equal to " + table, "\"tie_word_embeddings\": false"});
  plan.back().shape = {502, 144};
  write_zeros(made("smaller"), plan);
  expect_mentions(refusal(folder_.file("smaller")), {output + " is F32 [502, 144]", table});
}

TEST(Import, ReadsTensorsOfTransformers) {
  std::vector<std::string> folders{"t5_hugging_face/v1_0", "t5_hugging_face/v1_1"};
  for (const char* name : {"qwen2_tied", "qwen2_untied", "qwen3_tied", "qwen3_untied",
                           "mistral_tied", "mistral_untied", "gemma", "gemma2", "gemma3", "olmo2",
                           "mixtral", "qwen3_moe", "olmoe", "qwen2_moe", "gpt_oss", "deepseek_v3"})
    folders.push_back(text("decoders_hugging_face/", name));
  for (const std::string& name : folders) {
    const std::string path = golden_file(name);
    const auto file = parse_config(read_file(path + "/config.json"), path + "/config.json");
    const TensorFolder weights(path);
    EXPECT_EQ(message_of([&] { match(weights, *file.format, file.model); }), "no error") << name;
    const TemporaryFolder to;
    import_weights(weights, file.model, DType::fp64, to.path().string(), {0, 0, "deck"});
    EXPECT_TRUE(fs::exists(to.file("step_00000000/manifest.json"))) << name;
  }
}

/// All tensors of a folder as type, shape and bytes.
std::map<std::string, std::string> contents(const TensorFolder& folder) {
  std::map<std::string, std::string> out;
  for (const StoredTensor& tensor : folder.tensors()) {
    std::string bytes(static_cast<std::size_t>(tensor.info->bytes), '\0');
    tensor.read(0, tensor.info->bytes, bytes.data());
    out[tensor.info->name] =
        text(tensor.info->type, " ", checkpoint::shape_text(tensor.info->shape), " ", bytes);
  }
  return out;
}

TEST(Import, KeepsTheBitsOfT5) {
  for (const auto& [name, dtype] :
       {std::pair("v1_0", DType::fp32), std::pair("v1_1", DType::bf16)}) {
    const std::string path = golden_file(text("t5_hugging_face/", name));
    const auto file = parse_config(read_file(path + "/config.json"), path + "/config.json");
    const TensorFolder theirs(path);
    const TemporaryFolder to;
    import_weights(theirs, file.model, DType::fp32, to.file("c"), {0, 0, "deck"});
    fs::create_directory(to.file("exported"));
    export_weights(checkpoint::Reader(to.file("c/step_00000000")), file.model, dtype,
                   to.file("exported"));
    EXPECT_EQ(contents(TensorFolder(to.file("exported"))), contents(theirs)) << name;
  }
}

TEST(Import, KeepsTheBitsOfDeepseeksFilesWithTwoTypes) {
  const std::string path = golden_file("decoders_hugging_face/deepseek_v3");
  const auto file = parse_config(read_file(path + "/config.json"), path + "/config.json");
  const TensorFolder theirs(path);
  const auto expected = contents(theirs);
  const std::string bias = "model.layers.1.mlp.gate.e_score_correction_bias";
  EXPECT_TRUE(expected.at(bias).starts_with("F32 [6]"));
  EXPECT_TRUE(expected.at("model.layers.1.mlp.gate.weight").starts_with("BF16"));
  for (const DType compute : {DType::fp32, DType::bf16}) {
    const TemporaryFolder to;
    import_weights(theirs, file.model, master_type(compute), to.file("c"), {0, 0, "deck"});
    const checkpoint::Reader reader(to.file("c/step_00000000"));
    fs::create_directory(to.file("bf16"));
    export_weights(reader, file.model, DType::bf16, to.file("bf16"));
    EXPECT_EQ(contents(TensorFolder(to.file("bf16"))), expected);
    fs::create_directory(to.file("fp16"));
    export_weights(reader, file.model, DType::fp16, to.file("fp16"));
    EXPECT_EQ(contents(TensorFolder(to.file("fp16"))).at(bias), expected.at(bias));
    fs::create_directory(to.file("fp64"));
    export_weights(reader, file.model, DType::fp64, to.file("fp64"));
    EXPECT_TRUE(contents(TensorFolder(to.file("fp64"))).at(bias).starts_with("F64 [6]"));
  }
}

TEST(Import, LeavesOutLayersThatPredictFurtherTokens) {
  const auto model = odd_llama(false, Family::deepseek_v3);
  const auto error = [&](const deck::ModelConfig& m, const std::vector<std::string>& names) {
    const TemporaryFolder folder;
    std::vector<TensorPlan> plan = plan_of(m);
    for (const std::string& name : names) plan.push_back({name, DType::fp32, {144}});
    write_zeros(folder.path().string(), plan);
    return message_of([&] { match(TensorFolder(folder.path().string()), format_of(m.family), m); });
  };
  const std::vector<std::string> further{"model.layers.2.eh_proj.weight",
                                         "model.layers.2.enorm.weight",
                                         "model.layers.2.embed_tokens.weight",
                                         "model.layers.2.shared_head.head.weight",
                                         "model.layers.2.mlp.gate.weight",
                                         "model.layers.2.self_attn.o_proj.weight",
                                         "layers.3.eh_proj.weight",
                                         "layers.3.mlp.experts.0.up_proj.weight"};
  EXPECT_EQ(error(model, further), "no error");
  expect_mentions(error(model, {further[0], "model.layers.20.mlp.gate.weight"}),
                  {"model.layers.20.mlp.gate.weight, F32 [144], is not a tensor of the model"});
  expect_mentions(error(model, {further[4], further[5]}),
                  {further[4] + ", F32 [144], is not a tensor", further[5]});
  expect_mentions(error(model, {"model.layers.1.eh_proj.weight"}),
                  {"model.layers.1.self_attn.q_a_proj.weight is missing"});
  expect_mentions(error(odd_llama(false, Family::mixtral), {further[0]}),
                  {further[0] + ", F32 [144], is not a tensor of the model"});
}

/// The published names: eh_proj multiplies [norm(embedding) ; norm(hidden)].
TEST(Import, TakesTheModulesOfTheModel) {
  const deck::ModelConfig m = deepseek_with_modules();
  const std::int64_t D = m.hidden;
  const TemporaryFolder folder;
  const Weights weights = weights_of(m);
  const checkpoint::Reader reader(write_checkpoint(folder.file("from"), m, weights));
  fs::create_directory(folder.file("exported"));
  export_weights(reader, m, DType::fp32, folder.file("exported"));
  const TensorFolder files(folder.file("exported"));
  for (const std::int64_t module : {0, 1}) {
    const std::string theirs = text("model.layers.", m.layers + module, ".");
    const std::string ours = text("predict.", module + 2, ".");
    const auto found = std::ranges::find(files.tensors(), theirs + "eh_proj.weight",
                                         [](const auto& tensor) { return tensor.info->name; });
    ASSERT_NE(found, files.tensors().end());
    ASSERT_EQ(found->info->shape, (Extents{D, 2 * D}));
    Words values(static_cast<std::size_t>(2 * D * D));
    found->read(0, found->info->bytes, reinterpret_cast<char*>(values.data()));
    for (const std::int64_t out : {std::int64_t{0}, D - 1})
      for (const std::int64_t in : {std::int64_t{0}, std::int64_t{5}, D - 1}) {
        const auto at = [&](std::int64_t column) {
          return values[static_cast<std::size_t>(out * 2 * D + column)];
        };
        const auto of = [&](const char* array) {
          return weights.at(ours + array)[static_cast<std::size_t>(out * D + in)];
        };
        EXPECT_EQ(at(in), of("merge.embedding"));
        EXPECT_EQ(at(D + in), of("merge.hidden"));
      }
    for (const char* name : {"enorm.weight", "hnorm.weight", "shared_head.norm.weight",
                             "mlp.gate.weight", "self_attn.q_a_proj.weight"})
      EXPECT_EQ(std::ranges::count(files.tensors(), theirs + name,
                                   [](const auto& tensor) { return tensor.info->name; }),
                1)
          << name;
  }
  // A model with fewer modules leaves the others out; a model with more lacks tensors.
  deck::ModelConfig one = m, four = m;
  one.predicts = 2;
  four.predicts = 4;
  EXPECT_EQ(message_of([&] { match(files, format_of(m.family), one); }), "no error");
  expect_mentions(message_of([&] { match(files, format_of(m.family), four); }),
                  {"model.layers.4.enorm.weight is missing"});
}

/// Published files have copies of the tables in each module.
TEST(Import, ComparesTheTablesOfModules) {
  const deck::ModelConfig m = deepseek_with_modules();
  for (const bool equal : {true, false}) {
    const TemporaryFolder folder;
    std::vector<TensorPlan> plan = plan_of(m);
    for (const char* name : {"embed_tokens.weight", "shared_head.head.weight"})
      plan.push_back({text("model.layers.3.", name),
                      DType::fp32,
                      {m.vocabulary, equal ? m.hidden : m.hidden - 1}});
    write_zeros(folder.path().string(), plan);
    const std::string message =
        message_of([&] { match(TensorFolder(folder.path().string()), format_of(m.family), m); });
    if (!equal)
      expect_mentions(message, {"model.layers.3.embed_tokens.weight is", "tied"});
    else
      EXPECT_EQ(message, "no error");
  }
}

/// Layers 0 and 2 share the weights of layer 0; layer 1 has its own.
TEST(Export, WritesSharedWeightsForEachLayer) {
  for (auto model : {odd_model(true), odd_llama(false, Family::qwen2), odd_llama(true)}) {
    const TemporaryFolder folder;
    model.layers = 3;
    model.shared_layers = 2;
    const auto weights = weights_of(model);
    export_weights(checkpoint::Reader(write_checkpoint(folder.file("c"), model, weights)), model,
                   DType::fp32, folder.path().string());
    const TensorFolder file(folder.path().string());
    const auto tensors = format_of(model.family).tensors(model);
    ASSERT_EQ(file.tensors().size(), tensors.size());
    const bool gpt = model.family == Family::gpt;
    const auto down = [&](int layer) {
      return values(file, gpt ? text("transformer.h.", layer, ".mlp.c_proj.bias")
                              : text("model.layers.", layer, ".mlp.down_proj.weight"));
    };
    const std::string ours = gpt ? ".feed_forward.down_bias" : ".feed_forward.down";
    for (const int layer : {0, 1, 2})
      EXPECT_EQ(down(layer), weights.at(text("layers.", layer % 2, ours))) << layer;
  }
}

TEST(Export, RejectsACheckpointOfAnotherModel) {
  const TemporaryFolder folder;
  const auto model = odd_model(true);
  const checkpoint::Reader reader(write_checkpoint(folder.file("c"), model, weights_of(model)));
  EXPECT_EQ(weights_type(reader, model), DType::fp32);
  auto other = model;
  other.layers = 1;
  expect_mentions(message_of([&] { weights_type(reader, other); }), {"layers.1.", "does not have"});
  other.layers = 3;
  expect_mentions(message_of([&] { weights_type(reader, other); }), {"lacks the array 'layers.2."});
  other = model;
  other.vocabulary = 504;
  expect_mentions(message_of([&] { weights_type(reader, other); }), {"[503, 144]", "[504, 144]"});
}

TEST(Export, RejectsDamagedWeights) {
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
}  // namespace trireme::hugging_face
