#include <trireme/base/text.hpp>
#include <trireme/hugging_face/llama.hpp>

#include <utility>

namespace trireme::hugging_face {
namespace {

using M = deck::ModelConfig;

constexpr std::string_view prefix = "model.";
constexpr const char* table = "model.embed_tokens.weight";
constexpr const char* head = "lm_head.weight";

/// {"rope_type": "default", "rope_theta": 10000.0}: all that is allowed in it. Files of before 2025
/// have rope_theta beside it, and call the type so or "type".
bool read_rotary(const json& value, M& m) {
  if (!value.is_object()) return false;
  for (const auto& [key, member] : value.items()) {
    if (member.is_null()) continue;
    if (key == "rope_theta") {
      if (!member.is_number() || !(member.get<double>() > 0)) return false;
      m.rope_theta = member.get<double>();
    } else if (key == "partial_rotary_factor") {
      if (member != 1) return false;
    } else if ((key != "rope_type" && key != "type") || member != "default") {
      return false;
    }
  }
  return true;
}

ConfigKey rotary(std::string name) {
  ConfigKey key;
  key.name = std::move(name);
  key.read = read_rotary;
  key.expected = R"({"rope_type": "default", "rope_theta": a number above 0})";
  key.otherwise = [](const M&) { return json::object(); };
  return key;
}

std::vector<ConfigKey> keys() {
  ConfigKey parameters = rotary("rope_parameters");
  parameters.write = [](const M& m) {
    return json{{"rope_theta", m.rope_theta}, {"rope_type", "default"}};
  };
  return {whole("num_hidden_layers", "layers", &M::layers, layers_limit),
          whole("hidden_size", "hidden", &M::hidden, size_limit),
          whole("num_attention_heads", "heads", &M::heads, size_limit),
          whole("num_key_value_heads", "key_value_heads", &M::key_value_heads, size_limit)
              .without([](const M& m) { return json(m.heads); }),
          implied("head_dim", [](const M& m) { return json(m.head_size()); }),
          whole("intermediate_size", "feed_forward", &M::feed_forward, 4 * size_limit),
          // Rotary positions need no table: the weights go with any sequence.
          whole("max_position_embeddings", "sequence", &M::sequence, size_limit).free(),
          whole("vocab_size", "vocabulary", &M::vocabulary, vocabulary_limit),
          fixed("hidden_act", {"silu", "swish"}),
          positive("rms_norm_eps", "norm_epsilon", &M::norm_epsilon).without(1e-6),
          std::move(parameters), rotary("rope_scaling"),
          positive("rope_theta", "rope_theta", &M::rope_theta).without([](const M& m) {
            return json(m.rope_theta);
          }),
          dropout("attention_dropout", &M::dropout).without(0.0),
          flag("tie_word_embeddings", "tied_embeddings", &M::tied_embeddings).without(false),
          fixed("attention_bias", {false}), fixed("mlp_bias", {false}),
          fixed("pretraining_tp", {1})};
}

void check_config(const json& file, const M& m, Complaints& complaints) {
  if (m.hidden % m.heads != 0)
    complaints.add("hidden_size = ", m.hidden,
                   ", expected a multiple of num_attention_heads = ", m.heads);
  else if (m.head_size() % 2 != 0)
    complaints.add("hidden_size = ", m.hidden, " over num_attention_heads = ", m.heads,
                   ", expected heads of an even size");
  if (m.heads % m.key_value_heads != 0)
    complaints.add("num_key_value_heads = ", m.key_value_heads,
                   ", expected a divisor of num_attention_heads = ", m.heads);
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const json inner = file.value(name, json());
    const json theta = inner.is_object() ? inner.value("rope_theta", json()) : json();
    if (!theta.is_null() && theta != m.rope_theta)
      complaints.add("rope_theta = ", m.rope_theta, ", and ", theta.dump(), " in ", name,
                     ", expected the same");
  }
}

void add_layer(std::vector<Tensor>& out, const M& m, std::int64_t layer) {
  const std::int64_t D = m.hidden;
  const std::int64_t F = m.feed_forward;
  const std::int64_t groups = m.key_value_heads * m.head_size();
  const std::string theirs = text(prefix, "layers.", layer, ".");
  const std::string ours = text("layers.", layer, ".");
  const auto add = [&](const char* name, Extents shape, const char* array,
                       std::int64_t place = Piece::whole_array) {
    out.push_back({theirs + name + ".weight", std::move(shape), {{ours + array, place}}});
  };
  add("input_layernorm", {D}, "attention_norm.gain");
  add("self_attn.q_proj", {D, D}, "attention.query");
  add("self_attn.k_proj", {groups, D}, "attention.key_value", 0);
  add("self_attn.v_proj", {groups, D}, "attention.key_value", 1);
  add("self_attn.o_proj", {D, D}, "attention.output");
  add("post_attention_layernorm", {D}, "feed_forward_norm.gain");
  add("mlp.gate_proj", {F, D}, "feed_forward.gate_up", 0);
  add("mlp.up_proj", {F, D}, "feed_forward.gate_up", 1);
  add("mlp.down_proj", {D, F}, "feed_forward.down");
}

std::vector<Tensor> tensors(const M& m) {
  std::vector<Tensor> out;
  out.push_back({table, {m.vocabulary, m.hidden}, {{"embedding.token"}}});
  for (std::int64_t layer = 0; layer < m.layers; ++layer) add_layer(out, m, layer);
  out.push_back({"model.norm.weight", {m.hidden}, {{"final_norm.gain"}}});
  if (!m.tied_embeddings) out.push_back({head, {m.vocabulary, m.hidden}, {{"output.weight"}}});
  return out;
}

std::string today(std::string_view name, const M&) {
  if (name.ends_with(".rotary_emb.inv_freq")) return {};
  return with_prefix(name, prefix, "lm_head.");
}

}  // namespace

const Format& llama_format() {
  static const Format format{
      .family = Family::llama,
      .model_type = "llama",
      .keys = keys(),
      .model_class = [](const M&) { return std::string("LlamaForCausalLM"); },
      .check = check_config,
      .tensors = tensors,
      .copies =
          [](const M& m) {
            return m.tied_embeddings ? std::vector<Copy>{{head, table}} : std::vector<Copy>{};
          },
      .today = today};
  return format;
}

}  // namespace trireme::hugging_face
