// Functions that create a ConfigKey for each kind of value in config.json, or modify a ConfigKey.
// Keys of config.json that belong to no single family, and names of members without effect.
#include <trireme/hugging_face/config_key.hpp>

#include <trireme/base/text.hpp>
#include <trireme/hugging_face/format.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <utility>

namespace trireme::hugging_face {

using deck::ModelConfig;

ConfigKey&& ConfigKey::without(json value) && {
  otherwise = [value = std::move(value)](const ModelConfig&) { return value; };
  return std::move(*this);
}

ConfigKey&& ConfigKey::without(std::function<json(const ModelConfig&)> value) && {
  otherwise = std::move(value);
  return std::move(*this);
}

ConfigKey&& ConfigKey::with_null(std::function<json(const ModelConfig&)> value) && {
  null = std::move(value);
  return std::move(*this);
}

ConfigKey&& ConfigKey::free() && {
  binding = false;
  return std::move(*this);
}

namespace {

/// `member`: reference to the member of a model.
template <class Member>
ConfigKey whole_number(std::string name, std::string deck, const Member& member,
                       std::int64_t largest) {
  ConfigKey key;
  key.name = std::move(name);
  key.deck = std::move(deck);
  key.write = [member](const ModelConfig& m) { return json(member(m)); };
  key.read = [member, largest](const json& value, ModelConfig& m) {
    if (!value.is_number_integer() || (value.is_number_unsigned() && value > largest)) return false;
    member(m) = value.get<std::int64_t>();
    return member(m) >= 1 && member(m) <= largest;
  };
  key.expected = text("a whole number from 1 to ", largest);
  return key;
}

}  // namespace

ConfigKey whole(std::string name, std::string deck, WholeMember member, std::int64_t largest) {
  const auto of = [member](auto& m) -> auto& {
    return m.*member;
  };
  return whole_number(std::move(name), std::move(deck), of, largest);
}

ConfigKey whole(std::string name, std::string deck, ExpertsWhole member, std::int64_t largest) {
  const auto of = [member](auto& m) -> auto& {
    return m.experts.*member;
  };
  ConfigKey key = whole_number(std::move(name), std::move(deck), of, largest);
  key.section = "experts";
  return key;
}

ConfigKey whole(std::string name, std::string deck, VisionWhole member, std::int64_t largest) {
  const auto of = [member](auto& m) -> auto& {
    return m.vision.*member;
  };
  ConfigKey key = whole_number(std::move(name), std::move(deck), of, largest);
  key.section = "vision";
  return key;
}

ConfigKey positive(std::string name, std::string deck, NumberMember member) {
  ConfigKey key;
  key.name = std::move(name);
  key.deck = std::move(deck);
  key.write = [member](const ModelConfig& m) { return json(m.*member); };
  key.read = [member](const json& value, ModelConfig& m) {
    if (!value.is_number()) return false;
    m.*member = value.get<double>();
    return m.*member > 0 && std::isfinite(m.*member);
  };
  key.expected = "a number above 0";
  return key;
}

ConfigKey flag(std::string name, std::string deck, FlagMember member) {
  ConfigKey key;
  key.name = std::move(name);
  key.deck = std::move(deck);
  key.write = [member](const ModelConfig& m) { return json(m.*member); };
  key.read = [member](const json& value, ModelConfig& m) {
    if (value.is_boolean()) m.*member = value.get<bool>();
    return value.is_boolean();
  };
  key.expected = "true or false";
  return key;
}

ConfigKey gelu(std::string name) {
  ConfigKey key;
  key.name = std::move(name);
  key.deck = "gelu";
  key.write = [](const ModelConfig& m) {
    return m.gelu == Gelu::exact ? "gelu" : m.gelu == Gelu::quick ? "quick_gelu" : "gelu_new";
  };
  key.read = [](const json& value, ModelConfig& m) {
    m.gelu = value == "gelu" ? Gelu::exact : value == "quick_gelu" ? Gelu::quick : Gelu::tanh;
    return value == "gelu" || value == "gelu_new" || value == "gelu_pytorch_tanh" ||
           value == "quick_gelu";
  };
  key.expected = R"("gelu_new", "gelu_pytorch_tanh", "gelu" or "quick_gelu")";
  key.in_deck = [](const ModelConfig& m) { return text('"', name_of(m.gelu), '"'); };
  return key;
}

ConfigKey dropout(std::string name, std::optional<NumberMember> member) {
  ConfigKey key;
  key.name = std::move(name);
  key.deck = "dropout";
  key.write = [](const ModelConfig& m) { return json(m.dropout); };
  key.read = [member](const json& value, ModelConfig& m) {
    if (!value.is_number() || !(value >= 0 && value < 1)) return false;
    if (member) m.*(*member) = value.get<double>();
    return true;
  };
  key.expected = "a number of at least 0 and below 1";
  return std::move(key).free();
}

ConfigKey fixed(std::string name, std::vector<json> values) {
  ConfigKey key;
  key.name = std::move(name);
  key.expected = values.front().dump();
  key.write = [first = values.front()](const ModelConfig&) { return first; };
  key.otherwise = key.write;
  key.read = [values = std::move(values)](const json& value, ModelConfig&) {
    return std::ranges::find(values, value) != values.end();
  };
  return key;
}

ConfigKey implied(std::string name, std::function<json(const ModelConfig&)> value) {
  ConfigKey key;
  key.name = std::move(name);
  key.write = value;
  key.otherwise = value;
  key.read = [value = std::move(value)](const json& given, ModelConfig& m) {
    return given == value(m);
  };
  return key;
}

ConfigKey written(std::string name, std::function<json(const ModelConfig&)> value) {
  ConfigKey key;
  key.name = std::move(name);
  key.write = std::move(value);
  key.otherwise = [](const ModelConfig&) { return json(); };
  key.read = [](const json&, ModelConfig&) { return true; };
  return key;
}

namespace {

/// A key that must have one of these values, which have no effect. The key is not written.
ConfigKey neutral(std::string name, std::vector<json> values) {
  ConfigKey key = fixed(std::move(name), std::move(values));
  key.write = {};
  return key;
}

/// Key for transformers' class of the model, with or without its head. Ignores case.
ConfigKey architectures() {
  ConfigKey key;
  key.name = "architectures";
  key.otherwise = [](const ModelConfig&) { return json(); };
  key.read = [](const json& value, ModelConfig& m) {
    const std::string whole = lower_case(format_of(m.family).model_class(m));
    std::string stem = whole;
    for (const char* head : {"lmheadmodel", "forcausallm", "forconditionalgeneration"})
      stem = stem.substr(0, stem.find(head));
    const auto same = [&](const json& name) {
      const std::string word = name.is_string() ? lower_case(name.get<std::string>()) : "";
      return word == whole || word == stem + "model" || word == stem + "textmodel" ||
             (m.family == Family::t5 && word == "t5withlmheadmodel");
    };
    return value.is_null() || (value.is_array() && std::ranges::all_of(value, same));
  };
  key.expected = "the class that transformers has for the model_type with a causal head";
  return key;
}

/// Key for the types of layers. All layers must have the type that the window implies.
ConfigKey layer_types() {
  ConfigKey key;
  key.name = "layer_types";
  key.otherwise = [](const ModelConfig&) { return json(); };
  key.read = [](const json& value, ModelConfig& m) {
    const char* type = m.window > 0 ? "sliding_attention" : "full_attention";
    return value.is_null() ||
           (value.is_array() &&
            std::ranges::all_of(value, [&](const json& layer) { return layer == type; }));
  };
  key.expected = "layers that are alike, as sliding_window says";
  return key;
}

/// Key for programs in the model's folder. No program may replace transformers' model.
ConfigKey programs() {
  ConfigKey key;
  key.name = "auto_map";
  key.otherwise = [](const ModelConfig&) { return json(); };
  key.read = [](const json& value, ModelConfig&) {
    if (!value.is_object()) return value.is_null();
    return std::ranges::none_of(value.items(), [](const auto& entry) {
      return entry.key().starts_with("AutoModel") && !says_nothing(entry.value());
    });
  };
  key.expected = "no program for the model, because only the program says what it computes";
  return key;
}

/// Names of members of transformers' configurations without effect on a model's results.
constexpr std::array without_effect{"architectures",
                                    "attn_implementation",
                                    "bad_words_ids",
                                    "begin_suppress_tokens",
                                    "cache_implementation",
                                    "chunk_size_feed_forward",
                                    "classifier_dropout",
                                    "cross_attention_hidden_size",
                                    "directionality",
                                    "diversity_penalty",
                                    "do_sample",
                                    "dtype",
                                    "early_stopping",
                                    "encoder_no_repeat_ngram_size",
                                    "exponential_decay_length_penalty",
                                    "finetuning_task",
                                    "gradient_checkpointing",
                                    "hidden_act",
                                    "id2label",
                                    "initializer_factor",
                                    "initializer_range",
                                    "is_decoder",
                                    "label2id",
                                    "length_penalty",
                                    "max_length",
                                    "min_length",
                                    "model_type",
                                    "n_special",
                                    "name_or_path",
                                    "no_repeat_ngram_size",
                                    "num_beam_groups",
                                    "num_beams",
                                    "num_labels",
                                    "num_return_sequences",
                                    "output_attentions",
                                    "output_hidden_states",
                                    "output_past",
                                    "output_router_logits",
                                    "output_scores",
                                    "predict_special_tokens",
                                    "prefix",
                                    "problem_type",
                                    "remove_invalid_values",
                                    "repetition_penalty",
                                    "return_dict",
                                    "return_dict_in_generate",
                                    "router_aux_loss_coef",
                                    "suppress_tokens",
                                    "task_specific_params",
                                    "temperature",
                                    "tf_legacy_loss",
                                    "tie_encoder_decoder",
                                    "tokenizer_class",
                                    "top_k",
                                    "top_p",
                                    "torch_dtype",
                                    "torchscript",
                                    "transformers_version",
                                    "typical_p",
                                    "use_bfloat16",
                                    "use_cache",
                                    "vocab_file"};

bool is_without_effect(const std::string& name) {
  constexpr std::array starts{"_", "pooler_", "summary_", "unsloth_"};
  return std::ranges::find(without_effect, name) != without_effect.end() ||
         name.ends_with("_token_id") ||
         std::ranges::any_of(starts, [&](const char* start) { return name.starts_with(start); });
}

}  // namespace

bool says_nothing(const json& value) {
  return value.is_null() || value == false || value == "" ||
         (value.is_structured() && value.empty());
}

std::string lower_case(std::string word) {
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word;
}

std::vector<ConfigKey> with_general_keys(std::vector<ConfigKey> keys) {
  const auto add = [&](ConfigKey key) {
    if (std::ranges::find(keys, key.name, &ConfigKey::name) == keys.end())
      keys.push_back(std::move(key));
  };
  add(architectures());
  add(programs());
  for (const char* name : {"add_cross_attention", "is_encoder_decoder", "rope_interleaved",
                           "use_bidirectional_attention"})
    add(neutral(name, {false}));
  for (const char* name : {"attn_logit_softcapping", "compression_config",
                           "final_logit_softcapping", "quantization_config"})
    add(neutral(name, {nullptr, json::object()}));
  for (const char* name : {"logit_scale", "partial_rotary_factor"}) add(neutral(name, {1}));
  ConfigKey causal = implied("is_causal", [](const ModelConfig& m) { return json(m.causal()); });
  causal.write = {};
  causal.expected = "true for a decoder, false for an encoder";
  add(std::move(causal));
  add(layer_types());
  return keys;
}

std::vector<std::string> unknown_members(const json& file, const std::vector<ConfigKey>& keys) {
  std::vector<std::string> names;
  const auto add = [&](const json& members, const std::string& object) {
    for (const auto& [name, value] : members.items()) {
      const bool known = std::ranges::any_of(keys, [&](const ConfigKey& key) {
        return (key.object == object && key.name == name) || (object.empty() && key.object == name);
      });
      if (!known && !is_without_effect(name) && !says_nothing(value))
        names.push_back(object.empty() ? name : object + "." + name);
    }
  };
  add(file, "");
  std::vector<std::string> done;
  for (const ConfigKey& key : keys) {
    if (key.object.empty() || std::ranges::find(done, key.object) != done.end()) continue;
    done.push_back(key.object);
    if (const json members = member_of(file, key.object.c_str()); members.is_object())
      add(members, key.object);
  }
  return names;
}

json object_of(const json& file, const ConfigKey& key) {
  return key.object.empty() ? file : member_of(file, key.object.c_str());
}

json member_of(const json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() ? *found : json();
}

bool is_positive(const json& value) {
  return value.is_number() && value.get<double>() > 0 && std::isfinite(value.get<double>());
}

}  // namespace trireme::hugging_face
