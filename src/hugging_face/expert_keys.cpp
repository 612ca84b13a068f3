// Keys of mixtures of experts, and of latent attention, in transformers' classes.
#include <trireme/hugging_face/expert_keys.hpp>

#include <trireme/base/text.hpp>
#include <trireme/hugging_face/llama_keys.hpp>

#include <algorithm>
#include <utility>

namespace trireme::hugging_face {
namespace {

using M = deck::ModelConfig;
using E = deck::ExpertsConfig;

constexpr const char* active_name = "num_experts_per_tok";
constexpr const char* number_names[] = {"num_local_experts", "num_experts"};
constexpr const char* routed_name = "n_routed_experts";
constexpr const char* width_name = "intermediate_size";

/// Adds the number of experts. Files have one of two names, of which transformers' class writes
/// `name`; the other is num_local_experts or, if this is `name`, num_experts. `number` and
/// `active`: defaults.
void add_numbers(std::vector<ConfigKey>& keys, std::string_view name, std::int64_t number,
                 std::int64_t active, bool write_both) {
  keys.push_back(whole(std::string(name), "number", &E::number, experts_limit).without(number));
  const bool first = name == number_names[0];
  ConfigKey other = whole(number_names[first ? 1 : 0], "", &E::number, experts_limit);
  if (!write_both) other.write = {};
  keys.push_back(std::move(other).without([](const M& m) { return json(m.experts.number); }));
  keys.push_back(whole(active_name, "active", &E::active, experts_limit).without(active));
}

/// intermediate_size is the inner width of an expert, and [model] feed_forward has no effect.
void widen_experts(std::vector<ConfigKey>& keys) {
  ConfigKey& width = *std::ranges::find(keys, width_name, &ConfigKey::name);
  width = whole(width_name, "feed_forward", &E::feed_forward, 4 * size_limit);
  width.read = [read = width.read](const json& value, M& m) {
    const bool valid = read(value, m);
    m.feed_forward = m.experts.feed_forward;
    return valid;
  };
  ConfigKey dense = written(text(width_name, ".dense"), [](const M&) { return json(); });
  dense.deck = "feed_forward";
  dense.in_deck = [](const M& m) { return text(m.feed_forward); };
  keys.push_back(std::move(dense));
}

void add_normalised(std::vector<ConfigKey>& keys) {
  ConfigKey key;
  key.name = "norm_topk_prob";
  key.deck = "normalised";
  key.section = "experts";
  key.write = [](const M& m) { return json(m.experts.normalised); };
  key.read = [](const json& value, M& m) {
    if (value.is_boolean()) m.experts.normalised = value.get<bool>();
    return value.is_boolean();
  };
  key.expected = "true or false";
  keys.push_back(std::move(key).without(false));
}

std::vector<std::int64_t> layers_with_experts(const M& m) {
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < m.layers; ++layer)
    if (m.experts.in_layer(layer)) layers.push_back(layer);
  return layers;
}

/// Sets first_layer and every so that exactly these layers have experts. False if this is not
/// possible.
bool set_layers(const std::vector<std::int64_t>& layers, M& m) {
  if (layers.empty()) return false;
  const std::int64_t first = layers.front();
  m.experts.first_layer = first;
  m.experts.every = layers.size() > 1 ? layers[1] - first : std::max(first + 1, m.layers - first);
  return layers_with_experts(m) == layers;
}

/// The experts of a model, with the same values for all models that have experts in the same
/// layers.
E same_layers(M m) {
  set_layers(layers_with_experts(m), m);
  return m.experts;
}

/// transformers' decoder_sparse_step: without mlp_only_layers, layer i has experts if i + 1 is
/// divisible by the step.
std::int64_t step_of(const M& m) {
  const E experts = same_layers(m);
  return (experts.first_layer + 1) % experts.every == 0 ? experts.every : 1;
}

void add_layers_with_experts(std::vector<ConfigKey>& keys) {
  ConfigKey step = whole("decoder_sparse_step", "every", &E::every, layers_limit);
  step.write = [](const M& m) { return json(step_of(m)); };
  step.read = [read = step.read](const json& value, M& m) {
    if (!read(value, m)) return false;
    m.experts.first_layer = m.experts.every - 1;
    return m.experts.every <= m.layers;
  };
  step.expected = "a whole number from 1 to num_hidden_layers";
  step.in_deck = [](const M& m) {
    return m.experts.every > 1 ? text(m.experts.every) : std::string();
  };
  keys.push_back(std::move(step).without(1));
  ConfigKey dense;
  dense.name = "mlp_only_layers";
  dense.deck = "first_layer";
  dense.section = "experts";
  dense.write = [](const M& m) {
    json list = json::array();
    for (std::int64_t layer = 0; layer < m.layers; ++layer)
      if ((layer + 1) % step_of(m) == 0 && !m.experts.in_layer(layer)) list.push_back(layer);
    return list;
  };
  dense.read = [](const json& value, M& m) {
    if (!value.is_array() || !std::ranges::all_of(value, &json::is_number_integer)) return false;
    std::vector<std::int64_t> layers = layers_with_experts(m);
    std::erase_if(layers, [&](std::int64_t layer) {
      return std::ranges::find(value, json(layer)) != value.end();
    });
    return set_layers(layers, m);
  };
  dense.expected = "a list without which every n-th layer from one layer on has experts";
  dense.in_deck = [](const M& m) {
    return m.experts.first_layer > 0 ? text(m.experts.first_layer) : std::string();
  };
  keys.push_back(std::move(dense).without(json::array()));
}

}  // namespace

void add_mixtral_keys(std::vector<ConfigKey>& keys) {
  add_numbers(keys, "num_local_experts", 8, 2, false);
  widen_experts(keys);
  keys.push_back(fixed("router_jitter_noise", {0.0}));
}

void add_olmoe_keys(std::vector<ConfigKey>& keys) {
  add_numbers(keys, "num_experts", 64, 8, false);
  widen_experts(keys);
  add_normalised(keys);
  keys.push_back(fixed("clip_qkv", {nullptr}));
}

void add_qwen3_moe_keys(std::vector<ConfigKey>& keys) {
  // transformers before version 5 reads only num_experts.
  add_numbers(keys, "num_local_experts", 128, 8, true);
  keys.push_back(whole("moe_intermediate_size", "feed_forward", &E::feed_forward, 4 * size_limit)
                     .without(768));
  add_normalised(keys);
  add_layers_with_experts(keys);
}

void add_qwen2_moe_keys(std::vector<ConfigKey>& keys) {
  add_numbers(keys, "num_experts", 60, 4, false);
  keys.push_back(whole("moe_intermediate_size", "feed_forward", &E::feed_forward, 4 * size_limit)
                     .without(1408));
  keys.push_back(whole("shared_expert_intermediate_size", "shared_feed_forward",
                       &E::shared_feed_forward, 4 * size_limit)
                     .without(5632));
  add_normalised(keys);
  add_layers_with_experts(keys);
  keys.push_back(fixed("qkv_bias", {true}));
  // Which layers have a window depends on the version of transformers.
  keys.push_back(fixed("use_sliding_window", {false}));
  for (const char* name : {"sliding_window", "max_window_layers"}) {
    ConfigKey unused;
    unused.name = name;
    unused.otherwise = [](const M&) { return json(); };
    unused.read = [](const json&, M&) { return true; };
    keys.push_back(std::move(unused));
  }
}

void add_gpt_oss_keys(std::vector<ConfigKey>& keys) {
  add_numbers(keys, "num_local_experts", 128, 4, false);
  ConfigKey active =
      implied("experts_per_token", [](const M& m) { return json(m.experts.active); });
  active.expected = text("the value of ", active_name);
  active.write = {};
  keys.push_back(std::move(active));
  widen_experts(keys);
  keys.push_back(positive("swiglu_limit", "activation_limit", &M::activation_limit).without(7.0));
  keys.push_back(fixed("swiglu_alpha", {1.702}));
  add_windows(keys, 128);
  ConfigKey packed = fixed("quantization_config", {nullptr, json::object()});
  packed.write = {};
  packed.read = [read = packed.read](const json& value, M& m) {
    return read(value, m) || member_of(value, "quant_method") == "mxfp4";
  };
  packed.expected = R"(null, or {"quant_method": "mxfp4", ...})";
  keys.push_back(std::move(packed));
}

namespace {

/// A key with an integer that may be null, which stands for 0.
ConfigKey whole_or_null(std::string name, std::string deck, WholeMember member) {
  ConfigKey key = whole(std::move(name), std::move(deck), member, size_limit);
  key.write = [member](const M& m) { return m.*member > 0 ? json(m.*member) : json(); };
  key.read = [member, read = key.read](const json& value, M& m) {
    m.*member = 0;
    return value.is_null() || read(value, m);
  };
  key.in_deck = [member](const M& m) { return text(m.*member); };
  key.expected += ", or null";
  return std::move(key).with_null([](const M&) { return json(); });
}

/// A value of [experts] that is no whole number from 1 on.
template <class T>
ConfigKey of_experts(std::string name, std::string deck, T E::*member, std::string expected,
                     bool (*valid)(const json&)) {
  ConfigKey key;
  key.name = std::move(name);
  key.deck = std::move(deck);
  key.section = "experts";
  key.write = [member](const M& m) { return json(m.experts.*member); };
  key.read = [member, valid](const json& value, M& m) {
    if (!valid(value)) return false;
    m.experts.*member = value.get<T>();
    return true;
  };
  key.expected = std::move(expected);
  return key;
}

/// Key for programs in the model's folder. Published files name DeepSeek's own program, which
/// transformers' class replaces.
ConfigKey deepseek_programs() {
  const auto other = [](const auto& entry) {
    const json& value = entry.value();
    const std::string program = value.is_string() ? value.template get<std::string>() : "";
    return entry.key().starts_with("AutoModel") && !says_nothing(value) &&
           !program.ends_with("modeling_deepseek.DeepseekV3ForCausalLM") &&
           !program.ends_with("modeling_deepseek.DeepseekV3Model");
  };
  ConfigKey key = written("auto_map", {});
  key.read = [other](const json& value, M&) {
    return value.is_null() || (value.is_object() && std::ranges::none_of(value.items(), other));
  };
  key.expected = "no program for the model other than DeepSeek's modeling_deepseek";
  return key;
}

}  // namespace

void add_deepseek_v3_keys(std::vector<ConfigKey>& keys) {
  std::erase_if(keys, [](const ConfigKey& key) { return key.name == "head_dim"; });
  keys.push_back(
      whole("kv_lora_rank", "key_value_rank", &M::key_value_rank, size_limit).without(512));
  keys.push_back(whole_or_null("q_lora_rank", "query_rank", &M::query_rank).without(1536));
  keys.push_back(whole("qk_rope_head_dim", "rotary_size", &M::rotary_size, size_limit).without(64));
  keys.back().write = [](const M& m) { return json(m.rotary_columns()); };
  ConfigKey own = whole("qk_nope_head_dim", "head_size", &M::explicit_head_size, size_limit);
  own.write = [](const M& m) { return json(m.head_size() - m.rotary_columns()); };
  own.read = [read = own.read](const json& value, M& m) {
    if (!read(value, m)) return false;
    m.explicit_head_size += m.rotary_size;
    return true;
  };
  own.in_deck = [](const M& m) { return text(m.head_size()); };
  keys.push_back(std::move(own).without(128));
  keys.push_back(whole("v_head_dim", "value_size", &M::value_size, size_limit).without(128));
  keys.back().write = [](const M& m) { return json(m.value_columns()); };
  // transformers rotates by head_dim.
  keys.push_back(implied("head_dim", [](const M& m) { return json(m.rotary_columns()); }));
  keys.push_back(implied("qk_head_dim", [](const M& m) { return json(m.head_size()); }));
  keys.push_back(flag("rope_interleave", "rope_interleaved", &M::rope_interleaved).without(true));
  add_numbers(keys, routed_name, 256, 8, false);
  keys.push_back(whole("moe_intermediate_size", "feed_forward", &E::feed_forward, 4 * size_limit)
                     .without(2048));
  ConfigKey shared =
      whole("n_shared_experts", "shared_feed_forward", &E::shared_feed_forward, experts_limit);
  shared.write = [](const M& m) {
    return json(m.experts.shared_feed_forward / m.experts.feed_forward);
  };
  shared.read = [read = shared.read](const json& value, M& m) {
    if (!read(value, m)) return false;
    m.experts.shared_feed_forward *= m.experts.feed_forward;
    return true;
  };
  shared.in_deck = [](const M& m) { return text(m.experts.shared_feed_forward); };
  keys.push_back(std::move(shared).without(1));
  keys.push_back(whole("n_group", "groups", &E::groups, experts_limit).without(8));
  keys.push_back(whole("topk_group", "active_groups", &E::active_groups, experts_limit).without(4));
  keys.push_back(of_experts("routed_scaling_factor", "scale", &E::scale, "a number above 0",
                            [](const json& value) { return is_positive(value); })
                     .without(2.5));
  keys.push_back(of_experts("norm_topk_prob", "normalised", &E::normalised, "true or false",
                            [](const json& value) { return value.is_boolean(); })
                     .without(true));
  keys.push_back(of_experts("first_k_dense_replace", "first_layer", &E::first_layer,
                            "a whole number from 0 to num_hidden_layers - 1",
                            [](const json& value) {
                              return value.is_number_integer() && value >= 0 &&
                                     value <= layers_limit;
                            })
                     .without(3));
  keys.push_back(fixed("attention_bias", {false}));
  keys.push_back(fixed("pretraining_tp", {1}));
  // Members of the published files that transformers does not read.
  for (const auto& [name, value] : {std::pair<const char*, json>{"scoring_func", "sigmoid"},
                                    {"topk_method", "noaux_tc"},
                                    {"moe_layer_freq", 1}}) {
    keys.push_back(fixed(name, {value}));
    keys.back().write = {};
  }
  keys.push_back(deepseek_programs());
  keys.push_back(written("num_nextn_predict_layers", [](const M& m) { return json(m.modules()); }));
  for (const char* name : {"num_mtp_layers", "ep_size", "aux_loss_alpha", "seq_aux"})
    keys.push_back(written(name, {}));
}

void check_experts(const json& file, const M& m, Complaints& complaints) {
  const E& e = m.experts;
  if (!e.present()) return;
  const bool deepseek = m.family == Family::deepseek_v3;
  const char* const first = deepseek ? routed_name : number_names[0];
  const char* const second = number_names[deepseek ? 0 : 1];
  const json number = member_of(file, first), other = member_of(file, second);
  if (deepseek && e.feed_forward > 0 &&
      (!e.shares() || e.shared_feed_forward % e.feed_forward != 0))
    complaints.add("n_shared_experts = ", e.shared_feed_forward, " / ", e.feed_forward,
                   ", expected a whole number from 1");
  if (!number.is_null() && !other.is_null() && number != other)
    complaints.add(first, " = ", shortened(number.dump()), ", but ", second, " = ",
                   shortened(other.dump()), ", expected equal values");
  else if (e.number % e.groups != 0)
    complaints.add("n_group = ", e.groups, ", expected a divisor of n_routed_experts = ", e.number);
  else if (e.groups > 1 && e.groups == e.number)
    complaints.add("n_group = ", e.groups,
                   ", expected at most n_routed_experts / 2 = ", e.number / 2);
  else if (e.active_groups > e.groups)
    complaints.add("topk_group = ", e.active_groups, ", expected at most n_group = ", e.groups);
  else if (e.first_layer >= m.layers)
    complaints.add("first_k_dense_replace = ", e.first_layer,
                   ", expected less than num_hidden_layers = ", m.layers);
  else if (e.active > e.number)
    complaints.add(active_name, " = ", e.active, ", expected at most ",
                   number.is_null() && !other.is_null() ? second : first, " = ", e.number);
  else if (e.active > e.active_groups * (e.number / e.groups))
    complaints.add(active_name, " = ", e.active, ", expected at most the ",
                   e.active_groups * (e.number / e.groups),
                   " experts of topk_group = ", e.active_groups, " groups");
}

}  // namespace trireme::hugging_face
