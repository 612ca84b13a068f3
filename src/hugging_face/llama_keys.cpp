// Keys of rotary positions, with transformers' types of scaling, keys of windows, and keys of
// Gemma.
#include <trireme/hugging_face/llama_keys.hpp>

#include <trireme/base/text.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <utility>

namespace trireme::hugging_face {
namespace {

using M = deck::ModelConfig;
using Kind = RotaryScalingKind;

/// A numeric member of rope_parameters, its deck key, and the kinds of scaling that use the member.
struct Member {
  const char* name;
  const char* deck;
  NumberMember number;
  std::vector<Kind> kinds;
  bool required;
};

const std::array<Member, 6>& members() {
  static const std::array<Member, 6> all{
      {{"factor",
        "rope_factor",
        &M::rope_factor,
        {Kind::linear, Kind::dynamic, Kind::yarn, Kind::llama3},
        true},
       {"low_freq_factor",
        "rope_low_frequency_factor",
        &M::rope_low_frequency_factor,
        {Kind::llama3},
        true},
       {"high_freq_factor",
        "rope_high_frequency_factor",
        &M::rope_high_frequency_factor,
        {Kind::llama3},
        true},
       {"beta_fast", "rope_beta_fast", &M::rope_beta_fast, {Kind::yarn}, false},
       {"beta_slow", "rope_beta_slow", &M::rope_beta_slow, {Kind::yarn}, false},
       {"attention_factor",
        "rope_attention_factor",
        &M::rope_attention_factor,
        {Kind::yarn},
        false}}};
  return all;
}

constexpr const char* original = "original_max_position_embeddings";
constexpr const char* truncate = "truncate";
constexpr const char* full = "full_attention";
constexpr const char* sliding = "sliding_attention";
constexpr const char* kinds_text = R"("default", "linear", "dynamic", "yarn" or "llama3")";

bool has(const Member& member, Kind kind) {
  return std::ranges::find(member.kinds, kind) != member.kinds.end();
}

bool has_original(Kind kind) {
  return kind == Kind::yarn || kind == Kind::llama3;
}

json type_of(const json& object) {
  const json type = member_of(object, "rope_type");
  return type.is_null() ? member_of(object, "type") : type;
}

std::optional<Kind> kind_of(const json& object) {
  const json type = type_of(object);
  if (type.is_null() || type == "default") return Kind::none;
  if (!type.is_string() || type == "none") return std::nullopt;
  return parse<Kind>(type.get<std::string>());
}

/// YaRN's attention factor from `mscale` and `mscale_all_dim`; 0 without these members.
double magnitude_of(const json& object, double factor) {
  const auto scale = [&](const json& m) {
    return factor <= 1 ? 1 : 0.1 * m.get<double>() * std::log(factor) + 1;
  };
  const json above = member_of(object, "mscale"), below = member_of(object, "mscale_all_dim");
  return is_positive(above) && is_positive(below) ? scale(above) / scale(below) : 0;
}

constexpr const char* mscale = "mscale";
constexpr const char* mscale_all = "mscale_all_dim";

/// `mscale` has no effect without `mscale_all_dim`.
void read_mscale(const json& object, M& m) {
  const json above = member_of(object, mscale), below = member_of(object, mscale_all);
  if (!is_positive(below)) return;
  m.rope_mscale_all = below.get<double>();
  if (is_positive(above)) m.rope_mscale = above.get<double>();
}

/// Stores the valid values of `value`; check_rotary reports the others. False for other types.
bool read_rotary(const json& value, M& m) {
  if (!value.is_object()) return false;
  if (const json theta = member_of(value, "rope_theta"); is_positive(theta))
    m.rope_theta = theta.get<double>();
  m.rope_scaling = kind_of(value).value_or(Kind::none);
  const M unscaled;
  for (const Member& member : members()) {
    const json number = member_of(value, member.name);
    const bool given = has(member, m.rope_scaling) && is_positive(number);
    m.*member.number = given ? number.get<double>() : unscaled.*member.number;
  }
  m.rope_truncate = m.rope_scaling != Kind::yarn || member_of(value, truncate) != false;
  m.rope_original_sequence = 0;
  m.rope_mscale = m.rope_mscale_all = 0;
  if (m.rope_scaling == Kind::yarn && m.family == Family::deepseek_v3)
    read_mscale(value, m);
  else if (m.rope_scaling == Kind::yarn && m.rope_attention_factor == 0)
    m.rope_attention_factor = magnitude_of(value, m.rope_factor);
  if (m.rope_scaling == Kind::dynamic) m.rope_original_sequence = m.sequence;
  if (has_original(m.rope_scaling)) {
    const json positions = member_of(value, original);
    m.rope_original_sequence =
        positions.is_number_integer() ? positions.get<std::int64_t>() : m.sequence;
  }
  return true;
}

json written_members(const M& m) {
  json out{{"rope_type", m.rope_scaling == Kind::none ? "default" : name_of(m.rope_scaling)}};
  for (const Member& member : members())
    if (has(member, m.rope_scaling) && m.*member.number > 0) out[member.name] = m.*member.number;
  if (has_original(m.rope_scaling)) out[original] = m.rope_original_sequence;
  if (m.rope_scaling == Kind::yarn && !m.rope_truncate) out[truncate] = false;
  if (m.rope_mscale > 0) out[mscale] = m.rope_mscale;
  if (m.rope_mscale_all > 0) out[mscale_all] = m.rope_mscale_all;
  return out;
}

ConfigKey object(std::string name) {
  ConfigKey key;
  key.name = std::move(name);
  key.expected = text(R"({"rope_type": )", kinds_text, ", and the type's members}");
  key.otherwise = [](const M&) { return json(json::value_t::discarded); };
  key.read = [](const json& value, M& m) { return value.is_discarded() || read_rotary(value, m); };
  return key;
}

/// A key for a member of rope_parameters, which is only compared with the deck's key `deck`.
ConfigKey part(const std::string& name, const char* deck, std::function<json(const M&)> write) {
  ConfigKey key;
  key.name = "rope_parameters." + name;
  key.deck = deck;
  key.write = std::move(write);
  key.otherwise = key.write;
  key.read = [](const json&, M&) { return true; };
  return key;
}

void check_member(const json& object, const std::string& name, const Member& member, Kind kind,
                  Complaints& complaints) {
  const json value = member_of(object, member.name);
  const bool factor = member.number == &M::rope_factor;
  const char* expected = factor ? "a number of at least 1" : "a number above 0";
  if (value.is_null()) {
    if (has(member, kind) && member.required)
      complaints.add(name, ".", member.name, " is missing, expected ", expected);
  } else if (!is_positive(value) || (factor && value < 1)) {
    complaints.add(name, ".", member.name, " = ", shortened(value.dump()), ", expected ", expected);
  }
}

void check_object(const json& object, const std::string& name, const M& m, Complaints& complaints) {
  const std::optional<Kind> kind = kind_of(object);
  if (!kind) {
    complaints.add(name, ".rope_type = ", shortened(type_of(object).dump()), ", expected ",
                   kinds_text);
    return;
  }
  for (const Member& member : members()) check_member(object, name, member, *kind, complaints);
  const auto expect = [&](const char* member, bool right, std::string_view expected) {
    const json value = member_of(object, member);
    if (!value.is_null() && !right)
      complaints.add(name, ".", member, " = ", shortened(value.dump()), ", expected ", expected);
  };
  const json positions = member_of(object, original), theta = member_of(object, "rope_theta");
  expect(original, positions.is_number_integer() && positions >= 1 && positions <= size_limit,
         text("a whole number from 1 to ", size_limit));
  expect("rope_theta", is_positive(theta), "a number above 0");
  if (is_positive(theta) && theta != m.rope_theta)
    complaints.add("rope_theta = ", m.rope_theta, ", but ", theta.dump(), " in ", name,
                   ", expected equal values");
  expect("partial_rotary_factor", member_of(object, "partial_rotary_factor") == 1, "1");
  for (const char* factor : {mscale, mscale_all}) {
    const json value = member_of(object, factor);
    expect(factor, value == 0 || is_positive(value), "a number of at least 0");
  }
  // DeepseekV3Attention multiplies scores by the square of its magnitude for all types.
  const bool squared =
      m.family == Family::deepseek_v3 && is_positive(member_of(object, mscale_all));
  if (squared && *kind != Kind::none && *kind != Kind::yarn)
    complaints.add(name, ".", mscale_all, " = ", member_of(object, mscale_all).dump(),
                   R"(, expected 0 unless rope_type is "yarn")");
  if (const auto value = object.find(truncate); value != object.end() && !value->is_boolean())
    complaints.add(name, ".", truncate, " = ", shortened(value->dump()),
                   ", expected true or false");
  const json type = member_of(object, "type");
  expect("type", type == type_of(object), "the value of rope_type");
  if (*kind == Kind::none) return;
  constexpr std::array known{"rope_type", "type",   "rope_theta",     original,
                             truncate,    "mscale", "mscale_all_dim", "partial_rotary_factor"};
  for (const auto& [key, value] : object.items())
    if (std::ranges::find(known, key) == known.end() &&
        std::ranges::find(members(), key, &Member::name) == members().end())
      complaints.add(name, ".", key, " = ", shortened(value.dump()),
                     ", which Trireme does not have");
}

}  // namespace

namespace {

json parameters_of(const M& m) {
  json out = written_members(m);
  out["rope_theta"] = m.rope_theta;
  return out;
}

/// Adds the keys rope_scaling and rope_theta, and a key for each member of rope_parameters.
/// `scaled`: whether a file without these keys has a scaling.
void add_members(std::vector<ConfigKey>& keys, bool scaled = false) {
  ConfigKey scaling = object("rope_scaling");  // for transformers before version 5
  scaling.write = [scaled](const M& m) {
    const bool silent = m.rope_scaling == Kind::none && !scaled;
    return silent ? json(json::value_t::discarded) : written_members(m);
  };
  keys.push_back(std::move(scaling));
  keys.push_back(positive("rope_theta", "rope_theta", &M::rope_theta).without([](const M& m) {
    return json(m.rope_theta);
  }));
  ConfigKey kind =
      part("rope_type", "rope_scaling", [](const M& m) { return json(name_of(m.rope_scaling)); });
  kind.in_deck = [](const M& m) {
    return m.rope_scaling == Kind::none ? "" : text('"', name_of(m.rope_scaling), '"');
  };
  keys.push_back(std::move(kind));
  for (const auto& [name, deck, member] :
       {std::tuple{mscale, "rope_mscale", &M::rope_mscale},
        std::tuple{mscale_all, "rope_mscale_all", &M::rope_mscale_all}}) {
    keys.push_back(part(name, deck, [member = member](const M& m) {
      return m.*member > 0 ? json(m.*member) : json();
    }));
    keys.back().in_deck = [member = member](const M& m) {
      return m.*member > 0 ? json(m.*member).dump() : std::string();
    };
  }
  for (const Member& member : members()) {
    ConfigKey number = part(member.name, member.deck, [&member](const M& m) {
      return has(member, m.rope_scaling) ? json(m.*member.number) : json();
    });
    number.in_deck = [&member](const M& m) {
      return has(member, m.rope_scaling) ? json(m.*member.number).dump() : std::string();
    };
    keys.push_back(std::move(number));
  }
  ConfigKey positions = part(original, "rope_original_sequence", [](const M& m) {
    const bool used = m.rope_scaling != Kind::none && m.rope_scaling != Kind::linear;
    return used ? json(m.rope_original_sequence) : json();
  });
  positions.in_deck = [write = positions.write](const M& m) {
    const json value = write(m);
    return value.is_null() ? std::string() : value.dump();
  };
  keys.push_back(std::move(positions));
  ConfigKey rounded = part(truncate, "rope_truncate", [](const M& m) {
    return m.rope_scaling == Kind::yarn ? json(m.rope_truncate) : json();
  });
  rounded.in_deck = [](const M& m) { return m.rope_truncate ? "" : "false"; };
  keys.push_back(std::move(rounded));
}

}  // namespace

void add_rotary_keys(std::vector<ConfigKey>& keys, double theta, const char* otherwise) {
  ConfigKey parameters = object("rope_parameters");
  if (otherwise != nullptr)
    parameters.otherwise = [value = json::parse(otherwise)](const M&) { return value; };
  parameters.write = parameters_of;
  parameters.read = [theta, read = parameters.read](const json& value, M& m) {
    m.rope_theta = theta;
    return read(value, m);
  };
  keys.push_back(std::move(parameters));
  add_members(keys, otherwise != nullptr);
}

void add_rotary_keys_of_two_kinds(std::vector<ConfigKey>& keys) {
  ConfigKey parameters = object("rope_parameters");
  parameters.write = [](const M& m) {
    const double local = m.window_rope_theta > 0 ? m.window_rope_theta : m.rope_theta;
    return json{{full, parameters_of(m)},
                {sliding, {{"rope_type", "default"}, {"rope_theta", local}}}};
  };
  parameters.read = [](const json& value, M& m) {
    m.rope_theta = 1e6;
    m.window_rope_theta = 1e4;
    if (value.is_discarded()) return true;
    if (!value.is_object()) return false;
    if (const json theta = member_of(member_of(value, sliding), "rope_theta"); is_positive(theta))
      m.window_rope_theta = theta.get<double>();
    const json global = member_of(value, full);
    return global.is_null() || read_rotary(global, m);
  };
  parameters.expected = text(R"({"full_attention": {"rope_type": )", kinds_text,
                             R"(, ...}, "sliding_attention": {"rope_type": "default", ...}})");
  keys.push_back(std::move(parameters));
  add_members(keys);
  ConfigKey local = positive("rope_local_base_freq", "window_rope_theta", &M::window_rope_theta);
  local.write = [](const M& m) {
    return json(m.window_rope_theta > 0 ? m.window_rope_theta : m.rope_theta);
  };
  keys.push_back(std::move(local).without([](const M& m) { return json(m.window_rope_theta); }));
}

void check_rotary(const json& file, const M& m, Complaints& complaints) {
  const json parameters = member_of(file, "rope_parameters");
  if (const json global = member_of(parameters, full), local = member_of(parameters, sliding);
      m.window_rope_theta > 0 && parameters.is_object()) {
    if (global.is_object()) check_object(global, text("rope_parameters.", full), m, complaints);
    if (local.is_object() && kind_of(local) != Kind::none)
      complaints.add("rope_parameters.", sliding, ".rope_type = ", shortened(type_of(local).dump()),
                     ", expected \"default\"");
    return;
  }
  for (const char* name : {"rope_parameters", "rope_scaling"})
    if (const json object = member_of(file, name); object.is_object())
      check_object(object, name, m, complaints);
}

namespace {

using M = deck::ModelConfig;

/// A key for a soft cap; null: no cap.
ConfigKey cap(const char* name, const char* deck, NumberMember member, json otherwise) {
  ConfigKey key = positive(name, deck, member);
  key.write = [member](const M& m) { return m.*member > 0 ? json(m.*member) : json(); };
  key.read = [member, read = key.read](const json& value, M& m) {
    m.*member = 0;
    return value.is_null() || read(value, m);
  };
  key.in_deck = [member](const M& m) { return json(m.*member).dump(); };
  key.expected += ", or null";
  return std::move(key).without(std::move(otherwise)).with_null([](const M&) { return json(); });
}

json types(const M& m) {
  json list = json::array();
  for (std::int64_t layer = 0; layer < m.layers; ++layer)
    list.push_back(m.window_of(m.first_decoder_layer() + layer) > 0 ? "sliding_attention"
                                                                    : "full_attention");
  return list;
}

/// Sets full_attention_every, or removes the window, so that the model's layers have the types in
/// `value`. Returns false if this is not possible.
bool read_types(const json& value, M& m) {
  if (value == types(m)) return true;
  for (m.full_attention_every = 0; m.full_attention_every <= m.layers; ++m.full_attention_every)
    if (value == types(m)) return true;
  m.window = m.full_attention_every = 0;
  m.window_rope_theta = 0;
  return value == types(m);
}

/// A key for the period of the layers without a window, instead of layer_types.
ConfigKey window_pattern(std::int64_t every) {
  ConfigKey period =
      whole("sliding_window_pattern", "", &M::full_attention_every, layers_limit).without(every);
  period.write = {};
  return period;
}

}  // namespace

void add_windows(std::vector<ConfigKey>& keys, std::int64_t otherwise) {
  keys.push_back(whole("sliding_window", "window", &M::window, size_limit).without(otherwise));
  keys.back().in_deck = [](const M& m) { return text(m.window); };
  keys.back().write = [otherwise](const M& m) { return json(m.window > 0 ? m.window : otherwise); };
  ConfigKey list;
  list.name = "layer_types";
  list.deck = "full_attention_every";
  list.write = types;
  list.read = read_types;
  list.expected = R"(one of "sliding_attention" and "full_attention" for each layer, with )"
                  R"("full_attention" in every n-th layer)";
  list.in_deck = [](const M& m) { return text(m.full_attention_every); };
  keys.push_back(std::move(list).without(types));
}

namespace {

void add_scale(std::vector<ConfigKey>& keys) {
  keys.push_back(whole("query_pre_attn_scalar", "query_pre_attention_scalar",
                       &M::query_pre_attention_scalar, size_limit)
                     .without(256));
  ConfigKey& key = keys.back();
  key.write = [](const M& m) {
    return json(m.query_pre_attention_scalar > 0 ? m.query_pre_attention_scalar : m.head_size());
  };
  key.read = [read = key.read](const json& value, M& m) {
    if (!read(value, m)) return false;
    if (m.query_pre_attention_scalar == m.head_size()) m.query_pre_attention_scalar = 0;
    return true;
  };
  key.in_deck = [](const M& m) {
    return m.query_pre_attention_scalar > 0 ? text(m.query_pre_attention_scalar) : std::string();
  };
}

void add_common(std::vector<ConfigKey>& keys, const char* activation) {
  ConfigKey gate = gelu(activation).without("gelu_pytorch_tanh");
  gate.write = [](const M& m) {
    return json(m.gelu == Gelu::exact   ? "gelu"
                : m.gelu == Gelu::quick ? "quick_gelu"
                                        : "gelu_pytorch_tanh");
  };
  keys.push_back(std::move(gate));
  keys.push_back(fixed("attention_bias", {false}));
  keys.push_back(fixed("use_bidirectional_attention", {false}));
}

}  // namespace

void add_gemma_keys(std::vector<ConfigKey>& keys) {
  add_common(keys, "hidden_act");
}

void add_gemma2_keys(std::vector<ConfigKey>& keys) {
  add_common(keys, "hidden_activation");
  add_scale(keys);
  keys.push_back(cap("attn_logit_softcapping", "attention_softcap", &M::attention_softcap, 50.0));
  keys.push_back(cap("final_logit_softcapping", "logit_softcap", &M::logit_softcap, 30.0));
  keys.push_back(window_pattern(2));
  add_windows(keys, 4096);
}

void add_gemma3_keys(std::vector<ConfigKey>& keys) {
  add_common(keys, "hidden_activation");
  add_scale(keys);
  // Gemma3Attention has this key but does not use it.
  keys.push_back(fixed("attn_logit_softcapping", {nullptr}));
  keys.push_back(cap("final_logit_softcapping", "logit_softcap", &M::logit_softcap, {}));
  keys.push_back(window_pattern(6));
  add_windows(keys, 4096);
}

}  // namespace trireme::hugging_face
