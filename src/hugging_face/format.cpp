#include <trireme/hugging_face/format.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>

namespace trireme::hugging_face {
namespace {

/// model_type of the language model in the config.json of a model that sees images.
json language_type(const json& file) {
  const json type = member_of(member_of(file, text_object), "model_type");
  if (!type.is_null()) return type;
  return member_of(file, "model_type") == gemma3_type ? json("gemma3_text") : json("llama");
}

}  // namespace

const Format& format_of(Family family) {
  switch (family) {
    case Family::gpt:
      return gpt2_format();
    case Family::bert:
      return bert_format();
    case Family::t5:
      return t5_format();
    case Family::llama:
    case Family::qwen2:
    case Family::qwen3:
    case Family::mistral:
    case Family::gemma:
    case Family::gemma2:
    case Family::gemma3:
    case Family::olmo2:
    case Family::mixtral:
    case Family::qwen3_moe:
    case Family::olmoe:
    case Family::qwen2_moe:
    case Family::gpt_oss:
    case Family::deepseek_v3:
      return llama_format(family);
  }
  throw Error("unknown family");
}

const Format& format_of(const deck::ModelConfig& model) {
  if (!model.vision.present()) return format_of(model.family);
  const std::string mistake = image_format_mistake(model);
  check_usage(mistake.empty(), "[model] family = \"", name_of(model.family),
              "\" with [vision] layers = ", model.vision.layers, " and family = \"",
              name_of(model.vision.family), "\": ", mistake);
  return *image_format(model.family);
}

std::string image_format_mistake(const deck::ModelConfig& m) {
  const bool gemma3 = m.vision.family == VisionFamily::gemma3;
  if (gemma3 == (m.family == Family::gemma3) && image_format(m.family) != nullptr) return "";
  return text(
      "transformers' LlavaForConditionalGeneration is read and written for the families ",
      llava_families,
      R"( with an encoder of family "clip" or "siglip", and Gemma3ForConditionalGeneration )"
      R"(for the family "gemma3" with an encoder of family "gemma3")");
}

const Format& format_of(const json& file, const std::string& path) {
  const json model_type = member_of(file, "model_type");
  std::string known;
  for (const auto name : names<Family>()) {
    const Format& format = format_of(parse<Family>(name).value());
    if (model_type == format.model_type) return format;
    if (const Format* const image = image_format(format.family);
        image != nullptr && model_type == image->model_type &&
        language_type(file) == format.model_type)
      return *image;
    known += text(known.empty() ? "" : ", ", '"', format.model_type, '"');
  }
  check_usage(model_type != gemma3_type, path, ": ", text_object,
              ".model_type = ", shortened(language_type(file).dump()),
              ", expected \"gemma3_text\"; Trireme imports no other model of this type");
  check_usage(model_type != llava_type, path, ": ", text_object,
              ".model_type = ", shortened(language_type(file).dump()), ", expected ",
              llava_families, "; Trireme imports no other language models that see images");
  known += text(", \"", llava_type, "\", \"", gemma3_type, '"');
  throw UsageError(text(path, ": model_type ",
                        model_type.is_null() ? "is missing" : "= " + shortened(model_type.dump()),
                        ", expected one of ", known, "; Trireme supports no other architecture"));
}

std::string layer_prefix(const deck::ModelConfig& m, std::int64_t layer) {
  return text("layers.", m.shared_layers > 0 ? layer % m.shared_layers : layer, ".");
}

std::string with_prefix(std::string_view name, std::string_view prefix, std::string_view head) {
  const bool complete = name.starts_with(prefix) || name.starts_with(head);
  return complete ? std::string(name) : text(prefix, name);
}

}  // namespace trireme::hugging_face
