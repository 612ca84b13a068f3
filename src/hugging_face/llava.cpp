// Keys and tensors of models that see images, as LlavaForConditionalGeneration, or for the family
// gemma3 as Gemma3ForConditionalGeneration: the objects vision_config and text_config of
// config.json, of which the second has the keys of llama.cpp, and the tensors of an encoder of
// images, of the projector, and of the language model.
#include <trireme/hugging_face/format.hpp>

#include <trireme/architecture/operation.hpp>
#include <trireme/base/text.hpp>
#include <trireme/hugging_face/config_key.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace trireme::hugging_face {
namespace {

using M = deck::ModelConfig;
using V = deck::VisionConfig;

constexpr const char* llava_class = "LlavaForConditionalGeneration";
constexpr const char* gemma3_class = "Gemma3ForConditionalGeneration";
constexpr std::int64_t vision_size_limit = 1 << 20;
constexpr std::int64_t image_limit = 16384;
constexpr std::string_view tower = "vision_tower.";
constexpr std::string_view language = "language_model.";
constexpr std::string_view projector = "multi_modal_projector.";

bool is_clip(const M& m) {
  return m.vision.family == VisionFamily::clip;
}

/// Defaults of transformers' configurations of language models.
struct TextDefaults {
  Family family;
  std::int64_t feed_forward, vocabulary, positions;
  std::int64_t hidden = 4096, layers = 32, heads = 32;

  json of(const std::string& key) const {
    if (key == "hidden_size") return hidden;
    if (key == "num_hidden_layers") return layers;
    if (key == "num_attention_heads") return heads;
    if (key == "intermediate_size") return feed_forward;
    if (key == "vocab_size") return vocabulary;
    return key == "max_position_embeddings" ? json(positions) : json();
  }
};
constexpr std::array text_defaults{TextDefaults{Family::llama, 11008, 32000, 2048},
                                   TextDefaults{Family::mistral, 14336, 32000, 131072},
                                   TextDefaults{Family::qwen2, 22016, 151936, 32768},
                                   TextDefaults{Family::qwen3, 22016, 151936, 32768},
                                   TextDefaults{Family::gemma3, 9216, 262208, 131072, 2304, 26, 8}};

/// The language model alone.
M text_of(const M& m) {
  M text = m;
  text.vision = {};
  return text;
}

ConfigKey in(const char* object, ConfigKey key) {
  key.object = object;
  return key;
}

/// A key without effect on the model.
ConfigKey ignored(std::string name) {
  ConfigKey key;
  key.name = std::move(name);
  key.otherwise = [](const M&) { return json(); };
  key.read = [](const json&, M&) { return true; };
  return key;
}

ConfigKey vision_family() {
  ConfigKey key;
  key.name = "model_type";
  key.deck = "family";
  key.section = "vision";
  key.write = [](const M& m) { return is_clip(m) ? "clip_vision_model" : "siglip_vision_model"; };
  key.read = [](const json& value, M& m) {
    m.vision.family = value == "siglip_vision_model" ? VisionFamily::siglip : VisionFamily::clip;
    return value == "siglip_vision_model" || value == "clip_vision_model";
  };
  key.expected = R"("clip_vision_model" or "siglip_vision_model")";
  key.in_deck = [](const M& m) { return text('"', name_of(m.vision.family), '"'); };
  return std::move(key).without("clip_vision_model");
}

/// SigLIP's encoder as Gemma 3 uses it.
ConfigKey gemma3_vision() {
  ConfigKey key = vision_family();
  key.read = [](const json& value, M& m) {
    m.vision.family = VisionFamily::gemma3;
    return value == "siglip_vision_model";
  };
  key.expected = R"("siglip_vision_model")";
  return std::move(key).without("siglip_vision_model");
}

/// The tokens of an image, from which the side of the squares of patches follows. Read after
/// vision_config.
ConfigKey pooled_tokens() {
  ConfigKey key;
  key.name = "mm_tokens_per_image";
  key.deck = "pool";
  key.section = "vision";
  key.write = [](const M& m) { return json(m.vision.tokens()); };
  key.read = [](const json& value, M& m) {
    const std::int64_t side = m.vision.patch > 0 ? m.vision.patches_per_side() : 0;
    for (std::int64_t pool = 1; pool <= side; ++pool)
      if (side % pool == 0 && value == side / pool * (side / pool)) {
        m.vision.pool = pool;
        return true;
      }
    return false;
  };
  key.expected = "the square of a divisor of image_size / patch_size";
  key.in_deck = [](const M& m) { return text(m.vision.pool); };
  return std::move(key).without(256);
}

/// The layer whose results the projector reads: 0 for the first layer's input, negative numbers
/// from the last layer's result, −1, on. Later layers are not part of the model. Read after
/// num_hidden_layers.
ConfigKey feature_layer() {
  ConfigKey key;
  key.name = "vision_feature_layer";
  key.write = [](const M&) { return -1; };
  key.read = [](const json& value, M& m) {
    const std::int64_t all = m.vision.layers;
    if (!value.is_number_integer() || value > all || value < -all) return false;
    const auto number = value.get<std::int64_t>();
    m.vision.layers = number < 0 ? all + 1 + number : number;
    return m.vision.layers > 0;
  };
  key.expected =
      "one number of a layer of the encoder, from -num_hidden_layers to -1, or from 1 on; lists "
      "are not supported";
  return std::move(key).without(-2).free();
}

/// The layers that the model uses, which are compared with the deck.
ConfigKey used_layers() {
  ConfigKey key;
  key.name = "vision_config.num_hidden_layers up to vision_feature_layer";
  key.deck = "layers";
  key.section = "vision";
  key.write = [](const M& m) { return json(m.vision.layers); };
  key.otherwise = key.write;
  key.read = [](const json&, M&) { return true; };
  return key;
}

/// Whether SigLIP's encoder has a pooling head, which the model does not use.
ConfigKey pooling_head() {
  ConfigKey key = ignored("vision_use_head");
  key.write = [](const M& m) { return is_clip(m) ? json(json::value_t::discarded) : json(false); };
  key.otherwise = [](const M& m) {
    return is_clip(m) ? json(json::value_t::discarded) : json(true);
  };
  return std::move(key).free();
}

ConfigKey select_strategy() {
  ConfigKey key = implied("vision_feature_select_strategy",
                          [](const M& m) { return json(is_clip(m) ? "default" : "full"); });
  key.expected =
      R"("default" for clip_vision_model, whose class token it drops, or "full" for siglip_vision_model, which has none)";
  return std::move(key).without("default");
}

/// Embeddings are tied if the file or its text_config says so. Read after text_config.
ConfigKey tied() {
  ConfigKey key = flag("tie_word_embeddings", "tied_embeddings", &M::tied_embeddings);
  key.read = [](const json& value, M& m) {
    if (value == true) m.tied_embeddings = true;
    return value.is_boolean();
  };
  return std::move(key).without([](const M& m) { return json(m.tied_embeddings); });
}

/// Embeddings of Gemma 3 are tied unless the file, not its text_config, says otherwise.
ConfigKey gemma3_tied() {
  return flag("tie_word_embeddings", "tied_embeddings", &M::tied_embeddings).without(true);
}

ConfigKey class_of_model(const char* class_name) {
  ConfigKey key = ignored("architectures");
  key.read = [class_name](const json& value, M&) {
    return value.is_null() || value == json::array({class_name});
  };
  key.expected = text("[\"", class_name, "\"]");
  return key;
}

std::vector<ConfigKey> vision_keys(bool gemma3) {
  // LLaVA may not use the last layers: used_layers() is the deck's key.
  ConfigKey layers =
      whole("num_hidden_layers", gemma3 ? "layers" : "", &V::layers, layers_limit).without(12);
  if (!gemma3) layers.binding = false;
  std::vector<ConfigKey> keys{
      gemma3 ? gemma3_vision() : vision_family(),
      std::move(layers),
      whole("hidden_size", "hidden", &V::hidden, vision_size_limit).without(768),
      whole("num_attention_heads", "heads", &V::heads, vision_size_limit).without(12),
      whole("intermediate_size", "feed_forward", &V::feed_forward, 4 * vision_size_limit)
          .without(3072),
      whole("image_size", "image", &V::image, image_limit).without(224),
      whole("patch_size", "patch", &V::patch, image_limit).without([](const M& m) {
        return json(is_clip(m) ? 32 : 16);
      }),
      implied("hidden_act",
              [](const M& m) { return json(is_clip(m) ? "quick_gelu" : "gelu_pytorch_tanh"); }),
      implied("layer_norm_eps", [](const M& m) { return json(is_clip(m) ? 1e-5 : 1e-6); }),
      fixed("num_channels", {3}),
      dropout("attention_dropout", std::nullopt).without(0.0),
      pooling_head()};
  for (const char* name : {"dropout", "projection_dim", "vocab_size"})
    keys.push_back(ignored(name));
  return keys;
}

std::vector<ConfigKey> text_keys(const Format& format) {
  std::vector<ConfigKey> keys = format.keys;
  const TextDefaults& defaults =
      *std::ranges::find(text_defaults, format.family, &TextDefaults::family);
  for (ConfigKey& key : keys)
    if (const json value = defaults.of(key.name); !value.is_null())
      key.otherwise = [value](const M&) { return value; };
  ConfigKey type = ignored("model_type");
  type.write = [type = format.model_type](const M&) { return json(type); };
  keys.insert(keys.begin(), std::move(type));
  return keys;
}

/// The keys of LLaVA's file besides its objects, and those of Gemma 3's.
std::vector<ConfigKey> llava_keys() {
  return {class_of_model(llava_class),
          feature_layer(),
          used_layers(),
          select_strategy(),
          fixed("projector_hidden_act", {"gelu"}),
          fixed("multimodal_projector_bias", {true}),
          written("image_seq_length", [](const M& m) { return json(m.vision.tokens()); }),
          tied()};
}
std::vector<ConfigKey> gemma3_keys() {
  std::vector<ConfigKey> keys{class_of_model(gemma3_class), pooled_tokens(), gemma3_tied()};
  for (const char* name : {"boi_token_index", "eoi_token_index"}) keys.push_back(ignored(name));
  return keys;
}

std::vector<ConfigKey> keys(const Format& format) {
  std::vector<ConfigKey> all;
  for (ConfigKey& key : text_keys(format)) all.push_back(in(text_object, std::move(key)));
  const bool gemma3 = format.family == Family::gemma3;
  for (ConfigKey& key : vision_keys(gemma3)) all.push_back(in(vision_object, std::move(key)));
  std::vector<ConfigKey> own = gemma3 ? gemma3_keys() : llava_keys();
  for (const char* name : {"image_token_index", "ignore_index", "vocab_size"})
    own.push_back(ignored(name));
  for (ConfigKey& key : with_general_keys(std::move(own))) all.push_back(std::move(key));
  return all;
}

void check_config(const json& file, const M& m, Complaints& complaints) {
  const json texts = member_of(file, text_object), images = member_of(file, vision_object);
  if (!file.empty() && !images.is_object())
    complaints.add(vision_object,
                   images.is_null() ? " is missing" : " = " + shortened(images.dump()),
                   ", expected an object with the keys of the encoder of images");
  if (!texts.is_null() && !texts.is_object())
    complaints.add(text_object, " = ", shortened(texts.dump()),
                   ", expected an object with the keys of the language model");
  Complaints of_text(text(text_object, "."));
  llama_format(m.family).check(texts, text_of(m), of_text);
  complaints.add(of_text);
  const V& v = m.vision;
  if (v.heads > 0 && v.hidden % v.heads != 0)
    complaints.add(vision_object, ".hidden_size = ", v.hidden,
                   ", expected a multiple of num_attention_heads = ", v.heads);
  if (v.patch > 0 && v.image % v.patch != 0)
    complaints.add(vision_object, ".image_size = ", v.image,
                   ", expected a multiple of patch_size = ", v.patch);
}

class List {
 public:
  void add(std::string name, Extents shape, std::string array, Extents place = {}) {
    out_.push_back({std::move(name), std::move(shape), {{std::move(array), std::move(place)}}});
  }
  /// A matrix [rows, columns] and its bias.
  void product(const std::string& name, std::int64_t rows, std::int64_t columns,
               const std::string& array, const Extents& place = {}) {
    add(name + ".weight", {rows, columns}, array, place);
    add(name + ".bias", {rows}, array + "_bias", place);
  }
  void norm(const std::string& name, std::int64_t columns, const std::string& array) {
    add(name + ".weight", {columns}, array + ".gain");
    add(name + ".bias", {columns}, array + ".bias");
  }
  void layer(const M& m, std::int64_t number) {
    const std::int64_t D = m.vision.hidden, F = m.vision.feed_forward;
    const std::string theirs = text(tower, "encoder.layers.", number, ".");
    const std::string ours = architecture::prefix_of_layer(m, number);
    norm(theirs + "layer_norm1", D, ours + "attention_norm");
    product(theirs + "self_attn.q_proj", D, D, ours + "attention.query");
    product(theirs + "self_attn.k_proj", D, D, ours + "attention.key_value", {0});
    product(theirs + "self_attn.v_proj", D, D, ours + "attention.key_value", {1});
    product(theirs + "self_attn.out_proj", D, D, ours + "attention.output");
    norm(theirs + "layer_norm2", D, ours + "feed_forward_norm");
    product(theirs + "mlp.fc1", F, D, ours + "feed_forward.up");
    product(theirs + "mlp.fc2", D, F, ours + "feed_forward.down");
  }
  std::vector<Tensor> take() { return std::move(out_); }

 private:
  std::vector<Tensor> out_;
};

std::vector<Tensor> tensors(const M& m) {
  const V& v = m.vision;
  const std::int64_t D = v.hidden;
  List list;
  const std::string embeddings = text(tower, "embeddings.");
  list.add(embeddings + "patch_embedding.weight", {D, 3, v.patch, v.patch}, "vision.patch");
  if (!is_clip(m)) list.add(embeddings + "patch_embedding.bias", {D}, "vision.patch_bias");
  list.add(embeddings + "position_embedding.weight", {v.rows(), D}, "vision.position");
  if (v.has_class_token()) list.add(embeddings + "class_embedding", {D}, "vision.class_token");
  if (is_clip(m))  // transformers' spelling
    list.norm(text(tower, "pre_layrnorm"), D, architecture::prefix_of_layer(m, 0) + "first_norm");
  for (std::int64_t layer = 0; layer < v.layers; ++layer) list.layer(m, layer);
  if (v.has_final_norm())
    list.norm(text(tower, "post_layernorm"), D,
              architecture::prefix_of_layer(m, v.layers - 1) + "final_norm");
  if (v.pools())
    list.add(text(projector, "mm_soft_emb_norm.weight"), {D}, "projector.norm.gain");
  else
    list.product(text(projector, "linear_1"), m.hidden, D, "projector.up");
  if (!v.pools()) list.product(text(projector, "linear_2"), m.hidden, m.hidden, "projector.down");
  std::vector<Tensor> out = list.take();
  if (v.pools())
    out.push_back({text(projector, "mm_input_projection_weight"),
                   {D, m.hidden},
                   {{"projector.output"}},
                   {m.hidden, D},
                   {1, 0}});
  for (Tensor& tensor : llama_format(m.family).tensors(text_of(m))) {
    tensor.name = text(language, tensor.name);
    out.push_back(std::move(tensor));
  }
  return out;
}

/// The norm after the encoder's last layer, which the model does not use.
std::vector<Tensor> unused(const M& m) {
  const std::string norm = text(tower, "post_layernorm.");
  return {{.name = norm + "weight", .shape = {m.vision.hidden}, .pieces = {}, .constant = 1},
          {.name = norm + "bias", .shape = {m.vision.hidden}, .pieces = {}, .constant = 0}};
}

std::vector<Copy> copies(const M& m) {
  std::vector<Copy> all = llama_format(m.family).copies(text_of(m));
  for (Copy& copy : all) {
    copy.name = text(language, copy.name);
    copy.of = text(language, copy.of);
  }
  return all;
}

/// Removes a prefix, if there is one.
bool strip(std::string_view& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  return true;
}

/// Whether the model does not use a tensor of the encoder.
bool is_unused(std::string_view name, const M& m) {
  for (const char* start : {"head.", "embeddings.position_ids"})
    if (name.starts_with(start)) return true;
  if (m.vision.has_final_norm()) return false;
  if (name.starts_with("post_layernorm.")) return true;
  if (!strip(name, "encoder.layers.")) return false;
  std::int64_t layer = -1;
  std::from_chars(name.data(), name.data() + name.size(), layer);
  return layer >= m.vision.layers;
}

/// Names of transformers before version 4.52, of the modules of later versions
/// (model.language_model.layers, lm_head), and of the files that version 5 writes, with and without
/// `vision_model` in names of the encoder.
std::string today(std::string_view name, const M& m) {
  if (std::string_view rest = name;
      strip(rest, "model.") &&
      (rest.starts_with(tower) || rest.starts_with(language) || rest.starts_with(projector)))
    name = rest;
  if (std::string_view rest = name; strip(rest, tower)) {
    strip(rest, "vision_model.");
    return is_unused(rest, m) ? std::string() : text(tower, rest);
  }
  std::string_view rest = name;
  if (!strip(rest, language)) {
    if (!name.starts_with("lm_head.")) return std::string(name);
    rest = name;
  }
  const std::string known = llama_format(m.family).today(rest, m);
  return known.empty() ? known : text(language, known);
}

Format format(Family family) {
  const bool gemma3 = family == Family::gemma3;
  return {.family = family,
          .model_type = gemma3 ? gemma3_type : llava_type,
          .keys = keys(llama_format(family)),
          .model_class =
              [](const M& m) {
                return std::string(m.family == Family::gemma3 ? gemma3_class : llava_class);
              },
          .check = check_config,
          .tensors = tensors,
          .copies = copies,
          .today = today,
          .unused = gemma3 ? nullptr : unused};
}

}  // namespace

const Format* image_format(Family family) {
  static const std::vector<Format> formats = [] {
    std::vector<Format> all;
    for (const TextDefaults& each : text_defaults) all.push_back(format(each.family));
    return all;
  }();
  const auto found = std::ranges::find(formats, family, &Format::family);
  return found == formats.end() ? nullptr : &*found;
}

}  // namespace trireme::hugging_face
