// Reads, writes and compares config.json by the key list of each family's Format.
#include <trireme/hugging_face/config_json.hpp>

#include <trireme/architecture/architecture.hpp>
#include <trireme/base/check.hpp>
#include <trireme/deck/families.hpp>
#include <trireme/deck/table.hpp>
#include <trireme/deck/value.hpp>
#include <trireme/hugging_face/config_key.hpp>
#include <trireme/hugging_face/strict_json.hpp>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace trireme::hugging_face {
namespace {

using deck::ModelConfig;

/// A model with sizes of 1, in place of missing or wrong values.
ModelConfig smallest(Family family) {
  ModelConfig m = deck::preset(family);
  m.layers = m.hidden = m.heads = m.key_value_heads = 1;
  m.feed_forward = m.sequence = m.vocabulary = 1;
  if (m.has_latent_attention()) m.explicit_head_size = m.rotary_size + m.value_size;
  return m;
}

/// The id of a member of a file: its value, or the first of its values; `otherwise` without an id.
std::int64_t id_of(const json& value, std::int64_t otherwise) {
  const json first = value.is_array() && !value.empty() ? value.front() : value;
  return first.is_number_unsigned() && first <= vocabulary_limit ? first.get<std::int64_t>()
                                                                 : otherwise;
}

/// Value of a key in a file; null if the file does not have the key.
json given(const json& file, const std::string& name) {
  const auto found = file.find(name);
  return found == file.end() ? json() : *found;
}

void read_key(const ConfigKey& key, const json& file, ModelFile& out, Complaints& complaints) {
  const json object = object_of(file, key);
  json value = given(object, key.name);
  if (value.is_null()) {
    const auto& meant = key.null && object.contains(key.name) ? key.null : key.otherwise;
    if (!meant) return complaints.add(key.path(), " is missing, expected ", key.expected);
    value = meant(out.model);
  }
  const ModelConfig before = out.model;
  if (!key.read(value, out.model)) {
    out.model = before;
    const std::string expected =
        key.expected.empty() ? shortened(key.write(before).dump()) : key.expected;
    return complaints.add(key.path(), " = ", shortened(value.dump()), ", expected ", expected);
  }
  if (!key.binding) out.free.push_back({key.path(), key.deck, value});
}

/// The token of images in the file of a model that sees them. Reports an id that the vocabulary
/// does not have.
std::int64_t image_token_of(const json& file, const ModelConfig& m, Complaints& complaints) {
  const json first = given(file, image_token_key), second = given(file, other_image_token_key);
  const char* const name = first.is_null() ? other_image_token_key : image_token_key;
  if (!first.is_null() && !second.is_null() && first != second)
    complaints.add(image_token_key, " = ", shortened(first.dump()), ", but ",
                   shortened(second.dump()), " in ", other_image_token_key,
                   ", expected equal values");
  const json value = !first.is_null()             ? first
                     : !second.is_null()          ? second
                     : m.family == Family::gemma3 ? json(262144)
                                                  : json(32000);
  if (value.is_number_integer() && value >= 0 && value < m.vocabulary)
    return value.get<std::int64_t>();
  complaints.add(name, " = ", shortened(value.dump()), ", expected an id below ", text_object,
                 ".vocab_size = ", m.vocabulary);
  return -1;
}

/// Whether config.json has a key for this key of the deck.
bool has_key(const Format& format, const deck::Key& key) {
  return std::ranges::any_of(format.keys, [&](const ConfigKey& other) {
    return other.section == key.section && other.deck == key.name;
  });
}

/// Reports properties of the deck's model that have no key in config.json and differ from its
/// family's published models.
void expect_published(const Format& format, const deck::Deck& deck, Complaints& complaints) {
  const ModelConfig& m = deck.config.model;
  deck::Config expected = deck.config;
  deck::set_family(expected.model, m.family);
  expected.model.key_value_heads = m.heads;
  if (m.head_size() * m.heads != m.hidden) expected.model.explicit_head_size = 0;
  const bool uses_limit = m.activation == Activation::clamped_swiglu;
  if (m.activation == Activation::swiglu || uses_limit) expected.model.gelu = m.gelu;
  if (!uses_limit) expected.model.activation_limit = m.activation_limit;
  if (m.encoder.present()) expected.model.objective = m.objective;  // spans or pairs
  for (const deck::Key& key : deck::keys()) {
    if (key.section != "model" && key.section != "experts") continue;
    // Balance, rounds and division of experts concern training; published models drop no token.
    if (key.section == "experts" &&
        (key.name == "capacity" ||
         (key.effect != deck::Effect::model && key.effect != deck::Effect::function)))
      continue;
    if (m.positions != Positions::rotary && key.name.starts_with("rope_")) continue;
    if (key.name.starts_with("predict")) continue;  // files may lack modules
    if (key.load(deck.config) != key.load(expected) && !has_key(format, key))
      complaints.add(deck.cite(key.section, key.name), ", expected ",
                     deck::literal(key, key.load(expected)));
  }
}

}  // namespace

const char* torch_name(DType type) {
  constexpr std::array<std::pair<DType, const char*>, 4> torch_names{{{DType::fp64, "float64"},
                                                                      {DType::fp32, "float32"},
                                                                      {DType::bf16, "bfloat16"},
                                                                      {DType::fp16, "float16"}}};
  for (const auto& [own, name] : torch_names)
    if (own == type) return name;
  throw Error(text("weights of type ", name_of(type), "; expected fp64, fp32, bf16 or fp16"));
}

void expect_exportable(const deck::Deck& deck) {
  const ModelConfig& m = deck.config.model;
  const std::string mistake = m.vision.present() ? image_format_mistake(m) : "";
  check_usage(mistake.empty(), deck.cite("model", "family"), " with ",
              deck.cite("vision", "family"), ": ", mistake, "; such a model cannot be exported");
  const Format& format = format_of(m);
  Complaints complaints;
  expect_published(format, deck, complaints);
  format.check(json::object(), m, complaints);
  complaints.raise(text(deck.file_name, ": transformers' ", format.model_class(m),
                        " does not have the properties of the deck's model"),
                   "such a model cannot be exported; train with the expected values, or with the "
                   "family that has the deck's values");
}

std::string config_text(const ModelConfig& model, DType dtype,
                        const std::vector<std::int64_t>& end_tokens, std::int64_t start_token,
                        std::int64_t image_token) {
  const Format& format = format_of(model);
  nlohmann::ordered_json out;
  out["architectures"] = {format.model_class(model)};
  out["model_type"] = format.model_type;
  for (const ConfigKey& key : format.keys) {
    if (!key.write || key.is_part()) continue;
    const json value = key.write(model);
    if (value.is_discarded()) continue;
    (key.object.empty() ? out : out[key.object])[key.name] = value;
  }
  out["initializer_range"] = architecture::weight_deviation;
  out["torch_dtype"] = torch_name(dtype);
  // Without these keys, transformers would use default ids of the family.
  const bool has_end = !end_tokens.empty() && model.causal();
  auto& language = model.vision.present() ? out[text_object] : out;
  language["bos_token_id"] = has_end ? nlohmann::ordered_json(end_tokens.front()) : nullptr;
  language["eos_token_id"] = end_tokens.size() > 1 && has_end ? nlohmann::ordered_json(end_tokens)
                                                              : language["bos_token_id"];
  if (model.vision.present()) out[image_token_key] = image_token;
  if (model.encoder.present()) {
    out["bos_token_id"] = nullptr;
    out["pad_token_id"] = out[start_key] = start_token;
  }
  return out.dump(2) + "\n";
}

ModelFile parse_config(const std::string& content, const std::string& path) {
  const json file = parse_strict(content, path, {32, "the file", "; is it the config.json?"});
  ModelFile out;
  out.format = &format_of(file, path);
  out.path = path;
  out.model = smallest(out.format->family);
  Complaints complaints;
  for (const ConfigKey& key : out.format->keys) read_key(key, file, out, complaints);
  if (!out.model.experts.present()) out.model.experts.feed_forward = out.model.feed_forward;
  // Families without the key key_value_heads have as many key/value heads as query heads.
  if (std::ranges::find(out.format->keys, "key_value_heads", &ConfigKey::deck) ==
      out.format->keys.end())
    out.model.key_value_heads = out.model.heads;
  out.format->check(file, out.model, complaints);
  if (out.model.vision.present()) out.image_token = image_token_of(file, out.model, complaints);
  out.unknown = unknown_members(file, out.format->keys);
  if (out.model.encoder.present()) {
    out.start_token = id_of(given(file, start_key), id_of(given(file, "pad_token_id"), 0));
    out.end_token = id_of(given(file, "eos_token_id"), 1);
  }
  complaints.raise(text(path, ": describes a model that Trireme does not support"),
                   "such a model cannot be imported; change a value in the file only if the "
                   "weights were trained with the expected one");
  return out;
}

bool files_have_modules(Family family) {
  return !format_of(family).further_token.empty();
}

void take_modules(ModelFile& file, const deck::Deck& deck) {
  const ModelConfig& m = deck.config.model;
  check_usage(m.modules() == 0 || files_have_modules(file.model.family), file.path,
              ": files of the family ", name_of(file.model.family),
              " have no modules that predict further tokens, but the deck has ",
              deck.cite("model", "predicts"), "; choose predicts = 1");
  file.model.predicts = m.predicts;
}

void expect_same_model(const ModelFile& file, const deck::Deck& deck) {
  const ModelConfig& ours = deck.config.model;
  Complaints complaints;
  if (ours.family != file.model.family)
    complaints.add("model_type = ", file.format->model_type, ", but the deck has ",
                   deck.cite("model", "family"));
  else
    expect_published(*file.format, deck, complaints);
  if (ours.vision.present() && !file.model.vision.present())
    complaints.add("the file's model does not see images, but the deck has ",
                   deck.cite("vision", "layers"));
  if (ours.shared_layers > 0)
    complaints.add("each layer has its own weights, but the deck has ",
                   deck.cite("model", "shared_layers"));
  for (const ConfigKey& key : file.format->keys) {
    if (key.deck.empty() || !key.binding) continue;
    const json theirs = key.write(file.model);
    if (theirs != key.write(ours))
      complaints.add(key.path(), " = ", theirs.dump(), ", but the deck has ",
                     deck.cite(key.section, key.deck));
  }
  complaints.raise(text(file.path, " describes another model than the deck"),
                   "`trireme import` without a deck prints the [model] section for a file");
}

std::vector<std::string> differences(const ModelFile& file, const deck::Deck& deck) {
  std::vector<std::string> lines;
  for (const FreeValue& free : file.free) {
    if (free.deck.empty()) continue;
    const auto key = std::ranges::find(file.format->keys, free.name, &ConfigKey::path);
    if (free.value != key->write(deck.config.model))
      lines.push_back(text(file.path, " has ", free.name, " = ", free.value.dump(),
                           "; training uses ", deck.cite(key->section, free.deck)));
  }
  if (!file.unknown.empty())
    lines.push_back(text(file.path, " has members that neither Trireme nor transformers' ",
                         file.format->model_class(file.model),
                         " uses: ", shortened(join(file.unknown, ", "))));
  return lines;
}

std::string model_toml(const ModelFile& file) {
  std::string out = text("[model]\nfamily = \"", name_of(file.model.family), "\"");
  std::string experts, encoder, vision;
  std::set<std::pair<std::string, std::string>> done;
  for (const ConfigKey& key : file.format->keys) {
    if (key.deck.empty() || !done.insert({key.section, key.deck}).second) continue;
    const json value = key.write(file.model);
    const std::string said = key.in_deck ? key.in_deck(file.model) : value.dump();
    if (said.empty()) continue;
    std::string& section = key.section == "experts"   ? experts
                           : key.section == "encoder" ? encoder
                           : key.section == "vision"  ? vision
                                                      : out;
    section += text("\n", key.deck, " = ", said);
    for (const FreeValue& free : file.free)
      if (free.deck == key.deck && free.value != value)
        section += text("  # ", free.name, " = ", free.value.dump(), " has no key of its own");
  }
  if (!experts.empty()) out += "\n\n[experts]" + experts;
  if (!vision.empty())
    out += "\n\n[vision]" + vision + "\nimages = 1  # most images of a sample: your choice";
  if (encoder.empty()) return out;
  return text(out, "\nsequence = ", file.model.sequence, "\n\n[encoder]", encoder,
              "\n\n[data]\nstart_token = ", file.start_token, "\nend_token = ", file.end_token);
}

}  // namespace trireme::hugging_face
