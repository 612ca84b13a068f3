#include <trireme/hugging_face/format.hpp>

#include <trireme/base/check.hpp>

namespace trireme::hugging_face {

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

const Format& format_of(const json& model_type, const std::string& path) {
  std::string known;
  for (const auto name : names<Family>()) {
    const Format& format = format_of(parse<Family>(name).value());
    if (model_type == format.model_type) return format;
    known += text(known.empty() ? "" : ", ", '"', format.model_type, '"');
  }
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
