#include <trireme/hugging_face/kept_files.hpp>
#include <trireme/hugging_face/preprocessor.hpp>

#include "configs.hpp"
#include "folders.hpp"

#include <bit>
#include <filesystem>
#include <functional>
#include <tuple>

/// Models that see images as Hugging Face's LlavaForConditionalGeneration and
/// Gemma3ForConditionalGeneration.
namespace trireme::hugging_face {
namespace {

using namespace testing;

/// The llama with odd sizes, which reads up to 3 images of 6 × 6 pixels.
deck::ModelConfig odd_llava(VisionFamily family, bool tied = false,
                            Family language = Family::llama) {
  deck::ModelConfig m = odd_llama(tied, language);
  m.vision = {.family = family,
              .layers = 3,
              .hidden = 20,
              .heads = 5,
              .feed_forward = 33,
              .image = 6,
              .patch = 2,
              .images = 3};
  if (family != VisionFamily::gemma3) return m;
  m.vision.patch = 1;
  m.vision.pool = 3;
  m.full_attention_every = m.full_attention_every > 0 ? 2 : 0;
  return m;
}

/// A config.json whose objects have only the members without a default here, and these changes.
std::string llava_with(const json& changes = json::object()) {
  json file = json::parse(R"({
    "model_type": "llava", "image_token_index": 7,
    "text_config": {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 144,
      "num_attention_heads": 6, "num_key_value_heads": 3, "intermediate_size": 333, "vocab_size": 503},
    "vision_config": {"num_hidden_layers": 4, "hidden_size": 20, "num_attention_heads": 5,
      "intermediate_size": 33, "image_size": 6, "patch_size": 2}})");
  file.merge_patch(changes);
  return file.dump();
}

std::string llava_with(const char* changes) {
  return llava_with(json::parse(changes));
}

deck::ModelConfig llava_model(const std::string& changes) {
  return parse_config(llava_with(json::parse(changes)), "c").model;
}

TEST(ConfigLlava, MissingKeysTakeTheDefaultsOfTheirClasses) {
  const ModelFile file = parse_config(llava_with(), "c");
  const deck::ModelConfig& m = file.model;
  EXPECT_EQ(m.family, Family::llama);
  EXPECT_EQ(m.norm_epsilon, 1e-6);
  EXPECT_EQ(m.sequence, 2048);
  EXPECT_FALSE(m.tied_embeddings);
  EXPECT_EQ(m.vision.family, VisionFamily::clip);
  EXPECT_EQ(m.vision.layers, 3) << "vision_feature_layer = -2";
  EXPECT_EQ(m.vision.image, 6);
  EXPECT_EQ(m.vision.images, 1);
  EXPECT_EQ(file.image_token, 7);

  // The file of llava-hf/llava-1.5-7b-hf.
  const ModelFile known = parse_config(R"({
    "architectures": ["LlavaForConditionalGeneration"], "ignore_index": -100,
    "image_token_index": 32000, "model_type": "llava", "pad_token_id": 32001,
    "projector_hidden_act": "gelu", "text_config": {
      "_name_or_path": "lmsys/vicuna-7b-v1.5", "architectures": ["LlamaForCausalLM"],
      "max_position_embeddings": 4096, "model_type": "llama", "rms_norm_eps": 1e-05,
      "torch_dtype": "float16", "vocab_size": 32064},
    "tie_word_embeddings": false, "torch_dtype": "float16", "transformers_version": "4.36.0.dev0",
    "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
      "model_type": "clip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 24,
      "patch_size": 14, "projection_dim": 768, "vocab_size": 32000},
    "vision_feature_layer": -2, "vision_feature_select_strategy": "default",
    "vocab_size": 32064})",
                                       "c");
  EXPECT_EQ(known.model.layers, 32);
  EXPECT_EQ(known.model.hidden, 4096);
  EXPECT_EQ(known.model.feed_forward, 11008);
  EXPECT_EQ(known.model.key_value_heads, 32);
  EXPECT_EQ(known.model.vocabulary, 32064);
  EXPECT_EQ(known.model.sequence, 4096);
  EXPECT_EQ(known.model.vision.layers, 23);
  EXPECT_EQ(known.model.vision.tokens(), 576);
  EXPECT_EQ(known.image_token, 32000);
  EXPECT_TRUE(known.unknown.empty()) << known.unknown.front();
}

TEST(ConfigLlava, FeatureLayersCountFromTheEndOrFromTheInput) {
  const auto layers = [](const char* value) {
    return llava_model(R"({"vision_feature_layer": )" + std::string(value) + "}").vision.layers;
  };
  EXPECT_EQ(layers("-1"), 4);
  EXPECT_EQ(layers("-2"), 3);
  EXPECT_EQ(layers("-4"), 1);
  EXPECT_EQ(layers("2"), 2);
  EXPECT_EQ(layers("4"), 4);
  for (const char* wrong : {"0", "5", "-5", "[-2, -1]", "\"-2\"", "-2.0"})
    expect_mentions(refusal(llava_with(json{{"vision_feature_layer", json::parse(wrong)}})),
                    {"here/config.json", text("vision_feature_layer = ", json::parse(wrong).dump()),
                     "expected one number of a layer of the encoder", "lists are not supported"});
}

class LlavaModels : public ::testing::TestWithParam<std::tuple<VisionFamily, bool, Family>> {
 protected:
  const deck::ModelConfig model_ =
      odd_llava(std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam()));
};
INSTANTIATE_TEST_SUITE_P(All, LlavaModels,
                         ::testing::Values(std::tuple{VisionFamily::clip, false, Family::llama},
                                           std::tuple{VisionFamily::clip, true, Family::qwen2},
                                           std::tuple{VisionFamily::siglip, false, Family::mistral},
                                           std::tuple{VisionFamily::siglip, true, Family::qwen3}),
                         [](const auto& model) {
                           return text(name_of(std::get<0>(model.param)), '_',
                                       name_of(std::get<2>(model.param)));
                         });

class ImageModels : public LlavaModels {};
INSTANTIATE_TEST_SUITE_P(All, ImageModels,
                         ::testing::Values(std::tuple{VisionFamily::clip, false, Family::llama},
                                           std::tuple{VisionFamily::clip, true, Family::qwen2},
                                           std::tuple{VisionFamily::siglip, false, Family::mistral},
                                           std::tuple{VisionFamily::siglip, true, Family::qwen3},
                                           std::tuple{VisionFamily::gemma3, true, Family::gemma3},
                                           std::tuple{VisionFamily::gemma3, false, Family::gemma3}),
                         [](const auto& model) {
                           return text(name_of(std::get<0>(model.param)), '_',
                                       name_of(std::get<2>(model.param)),
                                       std::get<1>(model.param) ? "_tied" : "");
                         });

TEST_P(LlavaModels, KeysAreWrittenAndReadBack) {
  const json file = json::parse(config_text(model_, DType::bf16, {9, 11}, -1, 8));
  const bool clip = model_.vision.has_class_token();
  EXPECT_EQ(file["architectures"], json::array({"LlavaForConditionalGeneration"}));
  EXPECT_EQ(file["model_type"], "llava");
  EXPECT_EQ(file["image_token_index"], 8);
  EXPECT_EQ(file["image_seq_length"], 9);
  EXPECT_EQ(file["vision_feature_layer"], -1);
  EXPECT_EQ(file["vision_feature_select_strategy"], clip ? "default" : "full");
  EXPECT_EQ(file["tie_word_embeddings"], model_.tied_embeddings);
  EXPECT_EQ(file["text_config"]["model_type"], name_of(model_.family));
  EXPECT_EQ(file["text_config"]["eos_token_id"], json::array({9, 11}));
  EXPECT_EQ(file["text_config"]["bos_token_id"], 9);
  EXPECT_FALSE(file.contains("eos_token_id"));
  EXPECT_FALSE(file.contains("hidden_size"));
  const json& vision = file["vision_config"];
  EXPECT_EQ(vision["model_type"], clip ? "clip_vision_model" : "siglip_vision_model");
  EXPECT_EQ(vision["num_hidden_layers"], 3);
  EXPECT_EQ(vision["hidden_act"], clip ? "quick_gelu" : "gelu_pytorch_tanh");
  EXPECT_EQ(vision["layer_norm_eps"], clip ? 1e-5 : 1e-6);
  EXPECT_EQ(vision.value("vision_use_head", true), clip);

  const ModelFile back = parse_config(file.dump(), "c");
  deck::ModelConfig expected = model_;
  expected.vision.images = 1;
  EXPECT_EQ(back.model, expected);
  EXPECT_EQ(back.image_token, 8);
  EXPECT_TRUE(back.unknown.empty()) << back.unknown.front();
  const deck::Deck deck = deck_of(model_toml(back));
  EXPECT_EQ(deck.config.model, expected);
  EXPECT_EQ(message_of([&] { expect_exportable(deck); }), "no error");
  EXPECT_EQ(message_of([&] { expect_same_model(back, deck); }), "no error");
  EXPECT_TRUE(differences(back, deck).empty());
}

/// Exports have the names of transformers 5; files of other versions have other names.
TEST_P(ImageModels, ImportsHaveTheBitsOfExportsWithEachSpelling) {
  const TemporaryFolder folder;
  const Weights weights = weights_of(model_);
  const auto from = write_checkpoint(folder.file("from"), model_, weights);
  std::filesystem::create_directory(folder.file("exported"));
  export_weights(checkpoint::Reader(from), model_, DType::fp32, folder.file("exported"));
  const TensorFolder exported(folder.file("exported"));
  const bool whole = model_.vision.has_final_norm();  // the model has all layers and their norm
  for (const char* bias :
       {"vision_tower.post_layernorm.weight", "vision_tower.post_layernorm.bias"}) {
    if (whole) continue;
    const float one = std::string_view(bias).ends_with("weight") ? 1.0f : 0.0f;
    const Words all = values(exported, bias);
    ASSERT_EQ(all.size(), 20u);
    for (const std::uint32_t bits : all) EXPECT_EQ(std::bit_cast<float>(bits), one);
  }
  using Rename = std::function<std::string(std::string)>;
  const auto replaced = [](std::string name, const std::string& start, const std::string& by) {
    return name.starts_with(start) ? by + name.substr(start.size()) : name;
  };
  const Rename as_written = [](std::string name) { return name; };
  const Rename old = [&](std::string name) {
    return replaced(name, "vision_tower.", "vision_tower.vision_model.");
  };
  const Rename modules = [&](std::string name) {
    name = replaced(name, "language_model.lm_head.", "lm_head.");
    name = replaced(name, "language_model.model.", "model.language_model.");
    name = replaced(name, "vision_tower.", "model.vision_tower.vision_model.");
    return replaced(name, "multi_modal_projector.", "model.multi_modal_projector.");
  };
  const Rename shorter = [&](std::string name) {
    name = replaced(name, "language_model.model.", "language_model.");
    return replaced(name, "language_model.lm_head.", "lm_head.");
  };
  int number = 0;
  for (const Rename& rename : {as_written, old, modules, shorter}) {
    const std::string in = folder.file(text("in", ++number)), to = folder.file(text("to", number));
    std::filesystem::create_directory(in);
    std::vector<TensorPlan> plan;
    for (const StoredTensor& tensor : exported.tensors())
      plan.push_back({rename(tensor.info->name), DType::fp32, tensor.info->shape});
    // Tensors that no model uses, or that this one does not.
    const std::size_t own = plan.size();
    for (const char* later : {"3", "17"})
      if (!whole)
        plan.push_back({rename(text("vision_tower.encoder.layers.", later, ".mlp.fc1.bias")),
                        DType::fp32,
                        {33}});
    plan.push_back({rename("vision_tower.head.probe"), DType::fp32, {1, 1, 20}});
    FolderWriter writer(in, plan, 0);
    for (std::size_t i = 0; i < plan.size(); ++i) {
      std::string bytes(static_cast<std::size_t>(checkpoint::volume(plan[i].shape) * 4), '\1');
      if (i < own) exported.tensors()[i].read(0, std::ssize(bytes), bytes.data());
      writer.append(bytes.data(), std::ssize(bytes));
    }
    writer.commit();
    import_weights(TensorFolder(in), model_, DType::fp32, to, {0, 0, "the deck"}, true);
    const checkpoint::Reader reader(to + "/step_00000000");
    for (const auto& [name, bits] : weights) {
      const auto spec = architecture::arrays_by_name(model_).at(name);
      Words found(bits.size());
      reader.read_slice(name, DType::fp32, spec.shape, Extents(spec.shape.size(), 0), spec.shape,
                        found.data());
      EXPECT_EQ(found, bits) << name << ", spelling " << number;
    }
  }
}

TEST_P(ImageModels, EachElementBelongsToOneTensor) {
  std::int64_t elements = 0;
  for (const Tensor& tensor : format_of(model_).tensors(model_))
    elements += checkpoint::volume(tensor.shape);
  EXPECT_EQ(elements, architecture::describe(model_).parameters());
}

TEST(LlavaWeights, OtherTensorsAreNamed) {
  const deck::ModelConfig model = odd_llava(VisionFamily::clip);
  const TemporaryFolder folder;
  std::vector<TensorPlan> plan;
  for (const Tensor& tensor : format_of(model).tensors(model))
    plan.push_back({tensor.name, DType::fp32, tensor.shape});
  plan.front() = {"vision_tower.encoder.layers.0.extra", DType::fp32, {3}};
  plan.push_back({"image_newline", DType::fp32, {144}});
  plan.push_back({"vision_tower.vision_model.embeddings.class_embedding", DType::fp32, {20}});
  write_zeros(folder.path().string(), plan);
  expect_mentions(
      message_of([&] { match(TensorFolder(folder.path().string()), format_of(model), model); }),
      {"vision_tower.embeddings.patch_embedding.weight is missing",
       "vision_tower.encoder.layers.0.extra, F32 [3], is not a tensor of the model",
       "image_newline, F32 [144], is not a tensor of the model", "are the same tensor",
       "expected the tensors of a LlavaForConditionalGeneration"});
}

TEST(ConfigLlava, WrongValuesAreRejected) {
  const auto rejected = [](const char* changes, std::initializer_list<std::string> words) {
    const std::string message = refusal(llava_with(changes));
    expect_mentions(message, {"here/config.json"});
    for (const std::string& word : words) expect_mentions(message, {word});
  };
  rejected(
      R"({"vision_feature_select_strategy": "full"})",
      {R"(vision_feature_select_strategy = "full", expected "default" for clip_vision_model)"});
  rejected(R"({"vision_config": {"model_type": "siglip_vision_model"}})",
           {R"(vision_feature_select_strategy = "default", expected "default" for clip)"});
  rejected(R"({"projector_hidden_act": "relu", "multimodal_projector_bias": false})",
           {R"(projector_hidden_act = "relu", expected "gelu")",
            "multimodal_projector_bias = false, expected true"});
  rejected(
      R"({"vision_config": {"hidden_act": "gelu", "layer_norm_eps": 1e-6, "num_channels": 1}})",
      {R"(vision_config.hidden_act = "gelu", expected "quick_gelu")",
       "vision_config.layer_norm_eps = 1e-06, expected 1e-05",
       "vision_config.num_channels = 1, expected 3"});
  rejected(R"({"vision_config": {"hidden_size": 21, "image_size": 7}})",
           {"vision_config.hidden_size = 21, expected a multiple of num_attention_heads = 5",
            "vision_config.image_size = 7, expected a multiple of patch_size = 2"});
  rejected(R"({"vision_config": {"image_size": [6, 6], "num_hidden_layers": 0}})",
           {"vision_config.image_size = [6,6], expected a whole number from 1 to 16384",
            "vision_config.num_hidden_layers = 0, expected a whole number"});
  rejected(R"({"vision_config": {"model_type": "pixtral"}})",
           {R"(vision_config.model_type = "pixtral", expected "clip_vision_model" or)"});
  rejected(R"({"vision_config": null})", {"vision_config is missing, expected an object"});
  rejected(R"({"text_config": 3})", {"text_config = 3, expected an object"});
  rejected(
      R"({"text_config": {"model_type": "gemma"}})",
      {R"(text_config.model_type = "gemma", expected "llama", "mistral", "qwen2" or "qwen3")"});
  rejected(R"({"text_config": {"attention_bias": true, "hidden_act": "gelu"}})",
           {"text_config.attention_bias = true, expected false",
            R"(text_config.hidden_act = "gelu", expected "silu")"});
  rejected(R"({"text_config": {"num_key_value_heads": 4}})",
           {"text_config.num_key_value_heads = 4, expected a divisor"});
  rejected(R"({"text_config": {"rope_scaling": {"rope_type": "longrope"}}})",
           {R"(text_config.rope_scaling.rope_type = "longrope")"});
  rejected(R"({"image_token_index": 503})",
           {"image_token_index = 503, expected an id below text_config.vocab_size = 503"});
  rejected(R"({"image_token_index": null})", {"image_token_id = 32000, expected an id below"});
  rejected(R"({"image_token_id": 8})",
           {"image_token_index = 7, but 8 in image_token_id, expected equal values"});
  rejected(R"({"architectures": ["LlavaNextForConditionalGeneration"]})",
           {R"(architectures = ["LlavaNextForConditionalGeneration"], expected ["Llava)"});
  rejected(R"({"quantization_config": {"quant_method": "awq"}})", {"quantization_config"});
  expect_mentions(refusal(R"({"model_type": "llava_next"})"),
                  {R"(model_type = "llava_next", expected one of)", R"("llava")"});
  const ModelFile unknown = parse_config(
      llava_with(R"({"odd": 1, "vision_config": {"odd": 2}, "text_config": {"odd": 3}})"), "c");
  EXPECT_EQ(unknown.unknown,
            (std::vector<std::string>{"odd", "text_config.odd", "vision_config.odd"}));
}

TEST(ConfigLlava, EmbeddingsAreTiedIfTheFileOrItsTextConfigIsTied) {
  EXPECT_TRUE(llava_model(R"({"tie_word_embeddings": true})").tied_embeddings);
  EXPECT_TRUE(llava_model(R"({"text_config": {"tie_word_embeddings": true}})").tied_embeddings);
  EXPECT_TRUE(llava_model(R"({"tie_word_embeddings": false,
                              "text_config": {"tie_word_embeddings": true}})")
                  .tied_embeddings);
}

TEST(ConfigLlava, OtherModelsThanTheDecksAreRejected) {
  const ModelFile file = parse_config(llava_with(), "c");
  deck::Deck other = deck_of(model_toml(file));
  other.config.model.vision.layers = 4;
  other.config.model.vision.image = 8;
  other.config.model.vision.family = VisionFamily::siglip;
  other.config.model.feed_forward = 10;
  other.config.model.vision.images = 9;
  expect_mentions(
      message_of([&] { expect_same_model(file, other); }),
      {"num_hidden_layers up to vision_feature_layer = 3, but the deck has [vision] layers",
       "vision_config.image_size = 6, but the deck has [vision] image",
       "vision_config.model_type = \"clip_vision_model\", but the deck has [vision] family",
       "text_config.intermediate_size = 333, but the deck has [model] feed_forward"});
  deck::Deck of_texts = deck_of(model_toml(file));
  of_texts.config.model.vision = {};
  expect_mentions(message_of([&] { expect_same_model(file, of_texts); }),
                  {"= 3, but the deck has [vision] layers"});
  const ModelFile plain = file_of(odd_llama(false));
  deck::Deck with_images = deck_of(model_toml(plain));
  with_images.config.model.vision = file.model.vision;
  expect_mentions(message_of([&] { expect_same_model(plain, with_images); }),
                  {"does not see images, but the deck has [vision] layers"});
  with_images.config.model.family = Family::gemma;
  expect_mentions(message_of([&] { expect_exportable(with_images); }),
                  {"[model] family", "for the families \"llama\", \"mistral\""});
}

TEST(ConfigLlava, ExportsDescribeTheLayersThatTheModelHas) {
  const std::string imported =
      llava_with(R"({"vision_config": {"model_type": "siglip_vision_model"},
      "vision_feature_select_strategy": "full", "torch_dtype": "float16", "odd": 5,
      "text_config": {"torch_dtype": "float16", "eos_token_id": 2}})");
  const deck::ModelConfig model = parse_config(imported, "c").model;
  const UpdatedFile file = updated_config(imported, "c", model, DType::fp32, {9}, -1, 8);
  const json now = json::parse(file.content);
  EXPECT_EQ(now["vision_feature_layer"], -1);
  EXPECT_EQ(now["vision_config"]["num_hidden_layers"], 3);
  EXPECT_EQ(now["vision_config"]["vision_use_head"], false);
  EXPECT_EQ(now["image_token_index"], 8);
  EXPECT_EQ(now["odd"], 5);
  EXPECT_EQ(now["torch_dtype"], "float32");
  EXPECT_EQ(now["text_config"]["torch_dtype"], "float32");
  EXPECT_EQ(now["text_config"]["eos_token_id"], json::array({2, 9}));
  EXPECT_EQ(now["text_config"]["hidden_size"], 144);
  EXPECT_EQ(parse_config(file.content, "c").model, model);
  std::string changes;
  for (const std::string& change : file.changes) changes += change + "\n";
  expect_mentions(
      changes,
      {"vision_config.num_hidden_layers = 3 instead of 4", "vision_feature_layer = -1, added",
       "vision_config.vision_use_head = false, added", "image_token_index = 8 instead of 7",
       "text_config.eos_token_id = [2,9] instead of 2"});
}

/// A config.json of Gemma 3 with images, whose objects have only the members without a default
/// here, and these changes.
std::string gemma3_with(const json& changes = json::object()) {
  json file = json::parse(R"({
    "model_type": "gemma3", "image_token_index": 7, "mm_tokens_per_image": 4,
    "text_config": {"num_hidden_layers": 2, "hidden_size": 144, "num_attention_heads": 6,
      "num_key_value_heads": 3, "intermediate_size": 333, "vocab_size": 503},
    "vision_config": {"num_hidden_layers": 4, "hidden_size": 20, "num_attention_heads": 5,
      "intermediate_size": 33, "image_size": 12, "patch_size": 2}})");
  file.merge_patch(changes);
  return file.dump();
}

TEST(ConfigGemma3Images, PublishedFileIsRead) {
  // The file of google/gemma-3-4b-it.
  const ModelFile known = parse_config(R"({
    "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
    "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144,
    "initializer_range": 0.02, "mm_tokens_per_image": 256, "model_type": "gemma3",
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
      "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
      "sliding_window": 1024},
    "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
    "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
      "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 27,
      "patch_size": 14, "vision_use_head": false}})",
                                       "c");
  const deck::ModelConfig& m = known.model;
  EXPECT_EQ(m.family, Family::gemma3);
  EXPECT_EQ(m.layers, 34);
  EXPECT_EQ(m.heads, 8);
  EXPECT_EQ(m.key_value_heads, 4);
  EXPECT_EQ(m.head_size(), 256);
  EXPECT_EQ(m.vocabulary, 262208);
  EXPECT_EQ(m.sequence, 131072);
  EXPECT_EQ(m.window, 1024);
  EXPECT_EQ(m.full_attention_every, 6);
  EXPECT_EQ(m.rope_factor, 8);
  EXPECT_TRUE(m.tied_embeddings);
  EXPECT_EQ(m.vision.family, VisionFamily::gemma3);
  EXPECT_EQ(m.vision.layers, 27);
  EXPECT_EQ(m.vision.pool, 4);
  EXPECT_EQ(m.vision.tokens(), 256);
  EXPECT_EQ(known.image_token, 262144);
  EXPECT_TRUE(known.unknown.empty()) << known.unknown.front();
}

TEST(ConfigGemma3Images, KeysAreWrittenAndReadBack) {
  for (const bool tied : {false, true}) {
    const deck::ModelConfig model = odd_llava(VisionFamily::gemma3, tied, Family::gemma3);
    const json file = json::parse(config_text(model, DType::bf16, {9, 11}, -1, 8));
    EXPECT_EQ(file["architectures"], json::array({"Gemma3ForConditionalGeneration"}));
    EXPECT_EQ(file["model_type"], "gemma3");
    EXPECT_EQ(file["image_token_index"], 8);
    EXPECT_EQ(file["mm_tokens_per_image"], 4);
    EXPECT_EQ(file["tie_word_embeddings"], tied);
    EXPECT_EQ(file["text_config"]["model_type"], "gemma3_text");
    EXPECT_EQ(file["text_config"]["layer_types"][0], "sliding_attention");
    EXPECT_EQ(file["text_config"]["layer_types"][1], "full_attention");
    EXPECT_EQ(file["vision_config"]["model_type"], "siglip_vision_model");
    EXPECT_EQ(file["vision_config"]["vision_use_head"], false);
    EXPECT_FALSE(file.contains("vision_feature_layer"));
    const ModelFile back = parse_config(file.dump(), "c");
    deck::ModelConfig expected = model;
    expected.vision.images = 1;
    EXPECT_EQ(back.model, expected);
    EXPECT_TRUE(back.unknown.empty()) << back.unknown.front();
    const deck::Deck deck = deck_of(model_toml(back));
    EXPECT_EQ(deck.config.model, expected);
    EXPECT_EQ(message_of([&] { expect_exportable(deck); }), "no error");
    EXPECT_EQ(message_of([&] { expect_same_model(back, deck); }), "no error");
    EXPECT_TRUE(differences(back, deck).empty());
  }
}

TEST(ConfigGemma3Images, OnlyTheFileSaysWhetherEmbeddingsAreTied) {
  const auto tied = [](const char* changes) {
    return parse_config(gemma3_with(json::parse(changes)), "c").model.tied_embeddings;
  };
  EXPECT_TRUE(tied("{}"));
  EXPECT_TRUE(tied(R"({"text_config": {"tie_word_embeddings": false}})"));
  EXPECT_FALSE(tied(R"({"tie_word_embeddings": false})"));
}

TEST(ConfigGemma3Images, WrongValuesAreRejected) {
  const auto rejected = [](const char* changes, const std::string& words) {
    expect_mentions(refusal(gemma3_with(json::parse(changes))), {"here/config.json", words});
  };
  rejected(R"({"mm_tokens_per_image": 5})",
           "mm_tokens_per_image = 5, expected the square of a divisor of image_size / patch_size");
  rejected(R"({"mm_tokens_per_image": 16})", "mm_tokens_per_image = 16, expected the square");
  rejected(R"({"vision_config": {"patch_size": 0}})", "vision_config.patch_size = 0, expected");
  rejected(R"({"vision_config": {"model_type": "clip_vision_model"}})",
           R"(vision_config.model_type = "clip_vision_model", expected "siglip_vision_model")");
  rejected(R"({"text_config": {"model_type": "gemma2"}})",
           R"(text_config.model_type = "gemma2", expected "gemma3_text")");
  rejected(R"({"text_config": {"use_bidirectional_attention": true}})",
           "text_config.use_bidirectional_attention = true");
  rejected(R"({"architectures": ["Gemma3ForSequenceClassification"]})",
           R"(expected ["Gemma3ForConditionalGeneration"])");
  rejected(R"({"image_token_index": 503})", "image_token_index = 503, expected an id below");
  // Neither class has this encoder before this language model.
  for (const auto& [vision, language] :
       {std::pair{VisionFamily::gemma3, Family::llama}, {VisionFamily::siglip, Family::gemma3}}) {
    const deck::ModelConfig model = odd_llava(vision, true, language);
    expect_mentions(
        message_of([&] { format_of(model); }),
        {text("family = \"", name_of(language), "\" with [vision] layers = 3 and family"),
         "LlavaForConditionalGeneration", "Gemma3ForConditionalGeneration"});
  }
}

TEST(ImagePreparation, IsBilinearForGemma3UnlessTheFileSaysOtherwise) {
  const TemporaryFolder folder;
  const std::string at = folder.path().string();
  const deck::VisionConfig vision = odd_llava(VisionFamily::gemma3).vision;
  const auto of = [&](const std::string& members) {
    folder.write(image_processor_name,
                 R"({"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 6,
                     "width": 6})" +
                     members + "}");
    return image_preparation(at, vision);
  };
  EXPECT_EQ(of(R"(, "resample": 3, "do_pan_and_scan": null)").warning, "");
  EXPECT_EQ(of(R"(, "resample": 3)").fit, "stretch");
  expect_mentions(of("").warning, {"\"resample\":2"});
  expect_mentions(of(R"(, "resample": 3, "do_pan_and_scan": true)").warning,
                  {"\"do_pan_and_scan\":true"});
}

TEST(ImagePreparation, FollowsFromTheFoldersProcessor) {
  const TemporaryFolder folder;
  const std::string at = folder.path().string();
  const deck::VisionConfig clip = odd_llava(VisionFamily::clip).vision;
  const deck::VisionConfig siglip = odd_llava(VisionFamily::siglip).vision;
  EXPECT_EQ(image_preparation(at, clip).fit, "crop");
  EXPECT_EQ(image_preparation(at, siglip).fit, "stretch");
  const std::string means = R"("image_mean": [0.48145466, 0.4578275, 0.40821073],
      "image_std": [0.26862954, 0.26130258, 0.27577711], "resample": 3)";
  const auto of = [&](const std::string& members, const deck::VisionConfig& vision) {
    folder.write(image_processor_name, "{" + members + "}");
    return image_preparation(at, vision);
  };
  for (const char* crop :
       {R"("size": {"shortest_edge": 6}, "crop_size": {"height": 6, "width": 6})",
        R"("size": 6, "crop_size": 6, "do_center_crop": true)"}) {
    EXPECT_EQ(of(means + "," + crop, clip).fit, "crop");
    EXPECT_EQ(of(means + "," + crop, clip).warning, "");
  }
  const std::string square = R"(, "do_center_crop": false, "size": {"height": 6, "width": 6})";
  EXPECT_EQ(of(means + square, clip).fit, "stretch");
  EXPECT_EQ(of(means + square, clip).warning, "");
  for (const char* other :
       {R"("size": {"shortest_edge": 8}, "crop_size": {"height": 6, "width": 6})",
        R"("size": {"shortest_edge": 6}, "crop_size": {"height": 5, "width": 6})",
        R"("size": 6, "crop_size": 6, "do_pad": true)",
        R"("size": 6, "crop_size": 6, "do_resize": false)",
        R"("size": {"shortest_edge": 6}, "do_center_crop": false)"})
    expect_mentions(of(means + "," + other, clip).warning,
                    {image_processor_name, "prepares images with {", "tokenize --images 6"});
  expect_mentions(of(R"("image_processor_type": "SiglipImageProcessor", "resample": 2,
                        "size": {"height": 6, "width": 6})",
                     siglip)
                      .warning,
                  {"\"resample\":2"});
  const auto refused = [&](const std::string& members, const deck::VisionConfig& vision) {
    return message_of([&] { of(members, vision); });
  };
  expect_mentions(refused(means, siglip),
                  {image_processor_name, "image_mean = [0.48145466,", "expected [0.5,0.5,0.5]",
                   "image_std", "family = \"siglip\"", "cannot be imported"});
  expect_mentions(refused(R"("image_processor_type": "SiglipImageProcessor")", clip),
                  {"image_mean = [0.5,0.5,0.5], expected [0.48145466,"});
  expect_mentions(refused(means + R"(, "do_normalize": false, "rescale_factor": 1)", clip),
                  {"do_normalize = false, expected true", "rescale_factor = 1, expected 1/255"});
  // An export writes what it reports.
  for (const deck::VisionConfig& vision : {clip, siglip})
    for (const std::string fit : {"crop", "stretch"}) {
      folder.write(image_processor_name, image_processor_text(vision, fit));
      EXPECT_EQ(image_preparation(at, vision).fit, fit);
      EXPECT_TRUE(image_preparation(at, vision).is_stated);
    }
  EXPECT_EQ(image_processor_text(clip, "pad"), "");
  std::filesystem::remove(folder.file(image_processor_name));
  EXPECT_FALSE(image_preparation(at, clip).is_stated);
  folder.write(processor_name,
               R"({"image_processor": {"image_mean": [0, 0, 0]}, "patch_size": 14})");
  expect_mentions(message_of([&] { image_preparation(at, clip); }),
                  {processor_name, "image_mean = [0,0,0]"});
}

}  // namespace
}  // namespace trireme::hugging_face
