// Functions that create a ConfigKey for each kind of value in config.json, or modify a ConfigKey.
#include <trireme/hugging_face/config_key.hpp>

#include <trireme/base/text.hpp>

#include <algorithm>
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

ConfigKey whole(std::string name, std::string deck, WholeMember member, std::int64_t largest) {
  ConfigKey key;
  key.name = std::move(name);
  key.deck = std::move(deck);
  key.write = [member](const ModelConfig& m) { return json(m.*member); };
  key.read = [member, largest](const json& value, ModelConfig& m) {
    if (!value.is_number_integer() || (value.is_number_unsigned() && value > largest)) return false;
    m.*member = value.get<std::int64_t>();
    return m.*member >= 1 && m.*member <= largest;
  };
  key.expected = text("a whole number from 1 to ", largest);
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
  key.write = [](const ModelConfig& m) { return m.gelu == Gelu::exact ? "gelu" : "gelu_new"; };
  key.read = [](const json& value, ModelConfig& m) {
    m.gelu = value == "gelu" ? Gelu::exact : Gelu::tanh;
    return value == "gelu" || value == "gelu_new" || value == "gelu_pytorch_tanh";
  };
  key.expected = R"("gelu_new", "gelu_pytorch_tanh" or "gelu")";
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

}  // namespace trireme::hugging_face
