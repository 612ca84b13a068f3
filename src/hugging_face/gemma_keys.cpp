// Keys of Gemma's configurations: soft caps, the scale of attention, and layers with and without a
// window.
#include <trireme/hugging_face/gemma_keys.hpp>

#include <trireme/base/text.hpp>

#include <cmath>
#include <utility>

namespace trireme::hugging_face {
namespace {

using M = deck::ModelConfig;

/// A soft cap; null for none.
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

/// The type of each layer.
json types(const M& m) {
  json list = json::array();
  for (std::int64_t layer = 0; layer < m.layers; ++layer)
    list.push_back(m.window_of(layer) > 0 ? "sliding_attention" : "full_attention");
  return list;
}

/// The period of the layers without a window: that of the model so far if it gives the same types,
/// else the smallest one.
bool read_types(const json& value, M& m) {
  if (value == types(m)) return true;
  for (m.full_attention_every = 0; m.full_attention_every <= m.layers; ++m.full_attention_every)
    if (value == types(m)) return true;
  m.window = m.full_attention_every = 0;
  m.window_rope_theta = 0;
  return value == types(m);
}

/// Tokens that a token sees, including itself; layers with and without this limit.
void add_windows(std::vector<ConfigKey>& keys, std::int64_t every) {
  keys.push_back(whole("sliding_window", "window", &M::window, size_limit).without(4096));
  keys.back().in_deck = [](const M& m) { return text(m.window); };
  keys.back().write = [](const M& m) { return json(m.window > 0 ? m.window : 4096); };
  ConfigKey period =
      whole("sliding_window_pattern", "", &M::full_attention_every, layers_limit).without(every);
  period.write = {};
  keys.push_back(std::move(period));
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
    return json(m.gelu == Gelu::exact ? "gelu" : "gelu_pytorch_tanh");
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
  add_windows(keys, 2);
}

void add_gemma3_keys(std::vector<ConfigKey>& keys) {
  add_common(keys, "hidden_activation");
  add_scale(keys);
  // Gemma3Attention has this key but does not use it.
  keys.push_back(fixed("attn_logit_softcapping", {nullptr}));
  keys.push_back(cap("final_logit_softcapping", "logit_softcap", &M::logit_softcap, {}));
  add_windows(keys, 6);
}

}  // namespace trireme::hugging_face
