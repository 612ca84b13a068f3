// Keys and tensors of the family llama and its relatives, which differ by `Class`.
#include <trireme/hugging_face/format.hpp>

#include <trireme/architecture/operation.hpp>
#include <trireme/base/text.hpp>
#include <trireme/hugging_face/config_key.hpp>
#include <trireme/hugging_face/expert_keys.hpp>
#include <trireme/hugging_face/llama_keys.hpp>

#include <algorithm>
#include <utility>

namespace trireme::hugging_face {
namespace {

using M = deck::ModelConfig;

constexpr std::string_view prefix = "model.";
constexpr const char* table = "model.embed_tokens.weight";
constexpr const char* head = "lm_head.weight";

/// Number of key/value heads. `otherwise`: default of transformers' class; 0: the number of heads.
ConfigKey groups(std::int64_t otherwise) {
  const auto heads = [](const M& m) { return json(m.heads); };
  ConfigKey key = whole("num_key_value_heads", "key_value_heads", &M::key_value_heads, size_limit);
  if (otherwise == 0) return std::move(key).without(heads);
  return std::move(key).without(otherwise).with_null(heads);
}

/// Head size. `otherwise`: default of transformers' class; 0: ⌊hidden_size / num_attention_heads⌋.
ConfigKey head_size(std::int64_t otherwise) {
  ConfigKey key = whole("head_dim", "head_size", &M::explicit_head_size, size_limit);
  key.write = [](const M& m) { return json(m.head_size()); };
  key.read = [read = key.read](const json& value, M& m) {
    if (!read(value, m)) return false;
    if (m.explicit_head_size * m.heads == m.hidden) m.explicit_head_size = 0;
    return true;
  };
  key.in_deck = [](const M& m) {
    return m.explicit_head_size > 0 ? text(m.explicit_head_size) : std::string();
  };
  return std::move(key).without(
      [otherwise](const M& m) { return json(otherwise > 0 ? otherwise : m.hidden / m.heads); });
}

/// The window: number of tokens that a token sees, including itself; null: no limit.
ConfigKey window() {
  ConfigKey key = whole("sliding_window", "window", &M::window, size_limit);
  key.write = [](const M& m) { return m.window > 0 ? json(m.window) : json(); };
  key.read = [read = key.read](const json& value, M& m) {
    m.window = 0;
    return value.is_null() || read(value, m);
  };
  key.in_deck = [](const M& m) { return text(m.window); };
  key.expected += ", or null";
  return std::move(key).without(4096).with_null([](const M&) { return json(); });
}

ConfigKey silu() {
  return fixed("hidden_act", {"silu", "swish"});
}

/// Adds the window, and whether the model uses it.
void add_used_window(std::vector<ConfigKey>& keys) {
  keys.push_back(window());
  ConfigKey use;
  use.name = "use_sliding_window";
  use.write = [](const M& m) { return json(m.window > 0); };
  use.read = [](const json& value, M& m) {
    if (value == false) m.window = 0;
    return value.is_boolean();
  };
  use.expected = "true or false";
  keys.push_back(std::move(use).without(false));
}

/// In Qwen, layers before max_window_layers have no window. Trireme's Qwen models have a window in
/// all layers or in no layer.
void add_layers_with_window(std::vector<ConfigKey>& keys) {
  add_used_window(keys);
  ConfigKey first;
  first.name = "max_window_layers";
  first.write = [](const M& m) { return json(m.window > 0 ? 0 : m.layers); };
  first.read = [](const json& value, M& m) {
    if (!value.is_number_integer() || value < 0) return false;
    if (value >= m.layers) m.window = 0;
    return m.window == 0 || value == 0;
  };
  first.expected = "0 or num_hidden_layers, so that all layers are alike";
  keys.push_back(std::move(first).without(28));
  keys.push_back(implied("layer_types", [](const M& m) {
    const char* type = m.window > 0 ? "sliding_attention" : "full_attention";
    return json(std::vector<std::string>(static_cast<std::size_t>(m.layers), type));
  }));
}

/// All layers of transformers' Qwen3Moe have the window. In versions before 5, layers before
/// max_window_layers had none.
void add_window_of_all_layers(std::vector<ConfigKey>& keys) {
  add_used_window(keys);
  ConfigKey first;
  first.name = "max_window_layers";
  first.otherwise = [](const M&) { return json(); };
  first.read = [](const json& value, M& m) {
    return value.is_null() || value == 0 || m.window == 0;
  };
  first.expected = "0, so that all layers are alike";
  keys.push_back(std::move(first));
}

/// Differences between transformers' classes.
struct Class {
  Family family;
  const char* model_type;
  const char* name;
  std::int64_t key_value_heads;  ///< default of num_key_value_heads; 0: number of heads
  std::int64_t head_size;        ///< default of head_dim; 0: hidden / heads
  void (*add_keys)(std::vector<ConfigKey>&);
  bool tied = false;             ///< default of tie_word_embeddings
  double local_theta = 0;        ///< rotary base of layers with a window; 0: the same base
  bool divides = false;          ///< heads must divide hidden_size even with head_dim
  double epsilon = 1e-6;         ///< default of rms_norm_eps
  double theta = 1e4;            ///< default of rope_theta, unless local_theta is set
  bool narrow = false;           ///< head_dim must be hidden / heads
  const char* rotary = nullptr;  ///< default of rope_parameters; null: no scaling
};

constexpr Class classes[] = {
    {Family::llama, "llama", "LlamaForCausalLM", 0, 0,
     [](std::vector<ConfigKey>& keys) {
       for (const char* name : {"attention_bias", "mlp_bias"}) keys.push_back(fixed(name, {false}));
       keys.push_back(fixed("pretraining_tp", {1}));
       keys.push_back(silu());
     },
     false, 0, true},
    {Family::qwen2, "qwen2", "Qwen2ForCausalLM", 32, 0,
     [](std::vector<ConfigKey>& keys) {
       keys.push_back(silu());
       add_layers_with_window(keys);
     }},
    {Family::qwen3, "qwen3", "Qwen3ForCausalLM", 32, 128,
     [](std::vector<ConfigKey>& keys) {
       keys.push_back(silu());
       add_layers_with_window(keys);
       keys.push_back(fixed("attention_bias", {false}));
     }},
    {Family::mistral, "mistral", "MistralForCausalLM", 8, 0,
     [](std::vector<ConfigKey>& keys) {
       keys.push_back(silu());
       keys.push_back(window());
     }},
    {Family::gemma, "gemma", "GemmaForCausalLM", 16, 256, add_gemma_keys, true, 0, true},
    {Family::gemma2, "gemma2", "Gemma2ForCausalLM", 4, 256, add_gemma2_keys, true, 0, true},
    {Family::gemma3, "gemma3_text", "Gemma3ForCausalLM", 4, 256, add_gemma3_keys, true, 1e4, true},
    {Family::olmo2, "olmo2", "Olmo2ForCausalLM", 0, 0,
     [](std::vector<ConfigKey>& keys) {
       keys.push_back(silu());
       keys.push_back(fixed("attention_bias", {false}));
     },
     false, 0, true, 1e-5},
    {Family::mixtral, "mixtral", "MixtralForCausalLM", 8, 0,
     [](std::vector<ConfigKey>& keys) {
       keys.push_back(silu());
       keys.push_back(window().without(json()));
       add_mixtral_keys(keys);
     },
     false, 0, false, 1e-5, 1e6},
    {Family::qwen3_moe, "qwen3_moe", "Qwen3MoeForCausalLM", 4, 0,
     [](std::vector<ConfigKey>& keys) {
       keys.push_back(silu());
       add_window_of_all_layers(keys);
       keys.push_back(fixed("attention_bias", {false}));
       add_qwen3_moe_keys(keys);
     }},
    {Family::olmoe, "olmoe", "OlmoeForCausalLM", 0, 0,
     [](std::vector<ConfigKey>& keys) {
       keys.push_back(silu());
       keys.push_back(fixed("attention_bias", {false}));
       add_olmoe_keys(keys);
     },
     false, 0, true, 1e-5, 1e4, true},
    {Family::qwen2_moe, "qwen2_moe", "Qwen2MoeForCausalLM", 16, 0,
     [](std::vector<ConfigKey>& keys) {
       keys.push_back(silu());
       add_qwen2_moe_keys(keys);
     }},
    {Family::gpt_oss, "gpt_oss", "GptOssForCausalLM", 8, 64,
     [](std::vector<ConfigKey>& keys) {
       keys.push_back(silu());
       keys.push_back(fixed("attention_bias", {true}));
       add_gpt_oss_keys(keys);
     },
     false, 0, false, 1e-5, 150000, false,
     R"({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
         "truncate": false, "original_max_position_embeddings": 4096})"},
    {Family::deepseek_v3, "deepseek_v3", "DeepseekV3ForCausalLM", 128, 0,
     [](std::vector<ConfigKey>& keys) {
       keys.push_back(silu());
       add_deepseek_v3_keys(keys);
     }}};

const Class& class_of(Family family) {
  return *std::ranges::find(classes, family, &Class::family);
}

std::vector<ConfigKey> keys(const Class& c) {
  // Rotary positions have no table: weights fit any sequence length.
  ConfigKey positions =
      whole("max_position_embeddings", "sequence", &M::sequence, size_limit).free();
  positions.write = [](const M& m) {
    return m.rope_scaling == RotaryScalingKind::dynamic ? m.rope_original_sequence : m.sequence;
  };
  std::vector<ConfigKey> keys{
      whole("num_hidden_layers", "layers", &M::layers, layers_limit),
      whole("hidden_size", "hidden", &M::hidden, size_limit),
      whole("num_attention_heads", "heads", &M::heads, size_limit),
      groups(c.key_value_heads),
      head_size(c.head_size),
      whole("intermediate_size", "feed_forward", &M::feed_forward, 4 * size_limit),
      std::move(positions),
      whole("vocab_size", "vocabulary", &M::vocabulary, vocabulary_limit),
      positive("rms_norm_eps", "norm_epsilon", &M::norm_epsilon).without(c.epsilon)};
  if (c.local_theta > 0)
    add_rotary_keys_of_two_kinds(keys);
  else
    add_rotary_keys(keys, c.theta, c.rotary);
  keys.push_back(dropout("attention_dropout", &M::dropout).without(0.0));
  keys.push_back(
      flag("tie_word_embeddings", "tied_embeddings", &M::tied_embeddings).without(c.tied));
  c.add_keys(keys);
  return keys;
}

void check_config(const json& file, const M& m, Complaints& complaints) {
  const Class& c = class_of(m.family);
  if (c.divides && m.hidden % m.heads != 0)
    complaints.add("hidden_size = ", m.hidden,
                   ", expected a multiple of num_attention_heads = ", m.heads);
  else if (c.narrow && m.head_size() * m.heads != m.hidden)
    complaints.add("head_dim = ", m.head_size(),
                   ", expected hidden_size / num_attention_heads = ", m.hidden / m.heads);
  else if (m.has_latent_attention() && m.value_columns() > m.head_size())
    complaints.add("v_head_dim = ", m.value_columns(),
                   ", expected at most qk_nope_head_dim + qk_rope_head_dim = ", m.head_size());
  else if (m.has_latent_attention() && m.rotary_columns() >= m.head_size())
    complaints.add("qk_nope_head_dim = ", m.head_size() - m.rotary_columns(),
                   ", expected at least 1");
  else if (m.rotary_columns() % 2 != 0 && m.has_latent_attention())
    complaints.add("qk_rope_head_dim = ", m.rotary_columns(), ", expected an even number");
  else if (m.head_size() % 2 != 0 && !m.has_latent_attention())
    complaints.add("head_dim = ", m.head_size(), ", expected an even number");
  if (m.has_latent_attention() && m.key_value_heads != m.heads)
    complaints.add("num_key_value_heads = ", m.key_value_heads,
                   ", expected num_attention_heads = ", m.heads);
  else if (m.heads % m.key_value_heads != 0)
    complaints.add("num_key_value_heads = ", m.key_value_heads,
                   ", expected a divisor of num_attention_heads = ", m.heads);
  check_rotary(file, m, complaints);
  check_experts(file, m, complaints);
}

/// Adds the router and the matrices of the experts. Files have a tensor for each matrix of each
/// expert. The tensors of an array follow one another, so that an import completes it early.
void add_experts(std::vector<Tensor>& out, const M& m, const std::string& theirs,
                 const std::string& ours) {
  const std::int64_t D = m.hidden;
  const std::int64_t F = m.experts.feed_forward;
  const bool mixtral = m.family == Family::mixtral;
  const std::string block = theirs + (mixtral ? "block_sparse_moe." : "mlp.");
  const auto add = [&](std::int64_t expert, const char* name, Extents shape, const char* array,
                       Extents place) {
    out.push_back({text(block, "experts.", expert, ".", name, ".weight"),
                   std::move(shape),
                   {{ours + array, std::move(place)}}});
  };
  out.push_back({block + "gate.weight", {m.experts.number, D}, {{ours + "experts.router"}}});
  if (m.experts.choice_bias)
    out.push_back({.name = block + "gate.e_score_correction_bias",
                   .shape = {m.experts.number},
                   .pieces = {{ours + "experts.bias"}},
                   .wide = true});
  for (std::int64_t e = 0; e < m.experts.number; ++e) {
    add(e, mixtral ? "w1" : "gate_proj", {F, D}, "experts.gate_up", {e, 0});
    add(e, mixtral ? "w3" : "up_proj", {F, D}, "experts.gate_up", {e, 1});
  }
  for (std::int64_t e = 0; e < m.experts.number; ++e)
    add(e, mixtral ? "w2" : "down_proj", {D, F}, "experts.down", {e});
  if (!m.experts.shares()) return;
  const std::int64_t Fs = m.experts.shared_feed_forward;
  const auto shared = [&](const char* name, Extents shape, const char* array, Extents place = {}) {
    const char* several = m.family == Family::deepseek_v3 ? "s" : "";
    out.push_back({text(block, "shared_expert", several, name, ".weight"),
                   std::move(shape),
                   {{text(ours, "experts.shared_", array), std::move(place)}}});
  };
  shared(".gate_proj", {Fs, D}, "gate_up", {0});
  shared(".up_proj", {Fs, D}, "gate_up", {1});
  shared(".down_proj", {D, Fs}, "down");
  if (m.experts.shared_gate) shared("_gate", {1, D}, "gate");
}

/// Adds the router and the experts of GptOssForCausalLM. Files have one tensor for all experts, in
/// which rows of the gate and of the up projection alternate. Matrices of numbers are transposed;
/// matrices in MXFP4 are not.
void add_fused_experts(std::vector<Tensor>& out, const M& m, const std::string& theirs,
                       const std::string& ours) {
  const std::int64_t E = m.experts.number;
  const std::int64_t D = m.hidden;
  const std::int64_t F = m.experts.feed_forward;
  const auto add = [&](const char* name, Extents shape, const char* array, Extents extents = {},
                       Axes axes = {}, Axes packed_axes = {}) {
    out.push_back({text(theirs, "mlp.", name),
                   std::move(shape),
                   {{text(ours, "experts.", array)}},
                   std::move(extents),
                   std::move(axes),
                   std::move(packed_axes)});
  };
  add("router.weight", {E, D}, "router");
  add("router.bias", {E}, "router_bias");
  add("experts.gate_up_proj", {E, D, 2 * F}, "gate_up", {E, 2, F, D}, {0, 3, 2, 1}, {0, 2, 1, 3});
  add("experts.gate_up_proj_bias", {E, 2 * F}, "gate_up_bias", {E, 2, F}, {0, 2, 1});
  add("experts.down_proj", {E, F, D}, "down", {E, D, F}, {0, 2, 1}, {0, 1, 2});
  add("experts.down_proj_bias", {E, D}, "down_bias");
}

/// Adds the products and norms of attention.
void add_attention(std::vector<Tensor>& out, const M& m, const std::string& theirs,
                   const std::string& ours) {
  const std::int64_t D = m.hidden;
  const std::int64_t K = m.head_size();
  const std::int64_t queries = m.heads * K;
  const std::int64_t groups = m.key_value_heads * K;
  const auto add = [&](const char* name, Extents shape, const char* array, Extents place = {}) {
    out.push_back({theirs + name, std::move(shape), {{ours + array, std::move(place)}}});
  };
  add("self_attn.q_proj.weight", {queries, D}, "attention.query");
  add("self_attn.k_proj.weight", {groups, D}, "attention.key_value", {0});
  add("self_attn.v_proj.weight", {groups, D}, "attention.key_value", {1});
  if (m.biases != Biases::none) {
    add("self_attn.q_proj.bias", {queries}, "attention.query_bias");
    add("self_attn.k_proj.bias", {groups}, "attention.key_value_bias", {0});
    add("self_attn.v_proj.bias", {groups}, "attention.key_value_bias", {1});
  }
  if (m.query_key_norm != QueryKeyNorm::none) {
    const bool of_heads = m.query_key_norm == QueryKeyNorm::head;
    add("self_attn.q_norm.weight", {of_heads ? K : queries}, "attention.query_norm.gain");
    add("self_attn.k_norm.weight", {of_heads ? K : groups}, "attention.key_norm.gain");
  }
  if (m.attention_sinks) add("self_attn.sinks", {m.heads}, "attention.sinks");
  add("self_attn.o_proj.weight", {D, queries}, "attention.output");
  if (m.biases == Biases::all) add("self_attn.o_proj.bias", {D}, "attention.output_bias");
}

/// Adds the products and norms of latent attention up to its output.
void add_latent_attention(std::vector<Tensor>& out, const M& m, const std::string& theirs,
                          const std::string& ours) {
  const std::int64_t D = m.hidden, H = m.heads, K = m.head_size();
  const std::int64_t C = m.rotary_columns(), V = m.value_columns();
  const std::int64_t R = m.key_value_rank, Rq = m.query_rank;
  const auto add = [&](const char* name, Extents shape, std::vector<const char*> arrays) {
    out.push_back({text(theirs, "self_attn.", name, ".weight"), std::move(shape), {}});
    for (const char* array : arrays) out.back().pieces.push_back({text(ours, "attention.", array)});
  };
  if (Rq > 0) {
    add("q_a_proj", {Rq, D}, {"query_down"});
    add("q_a_layernorm", {Rq}, {"query_down_norm.gain"});
    add("q_b_proj", {H * K, Rq}, {"query_up"});
  } else {
    add("q_proj", {H * K, D}, {"query"});
  }
  add("kv_a_proj_with_mqa", {R + C, D}, {"key_value_down", "key_rotary"});
  add("kv_a_layernorm", {R}, {"key_value_norm.gain"});
  add("kv_b_proj", {H * (K - C + V), R}, {"key_value_up"});
  add("o_proj", {D, H * V}, {"output"});
}

/// Adds what a module that predicts a further token has besides a layer, with the names of
/// DeepSeek-V3's published files: eh_proj has the columns of the embeddings first.
void add_merge(std::vector<Tensor>& out, const M& m, const std::string& theirs,
               const std::string& ours) {
  const std::int64_t D = m.hidden;
  out.push_back({theirs + "enorm.weight", {D}, {{ours + "merge.embedding_norm.gain"}}});
  out.push_back({theirs + "hnorm.weight", {D}, {{ours + "merge.hidden_norm.gain"}}});
  out.push_back({theirs + "eh_proj.weight",
                 {D, 2 * D},
                 {{ours + "merge.embedding"}, {ours + "merge.hidden"}},
                 {2, D, D},
                 {1, 0, 2}});
  out.push_back({theirs + "shared_head.norm.weight", {D}, {{ours + "final_norm.gain"}}});
}

void add_layer(std::vector<Tensor>& out, const M& m, std::int64_t layer) {
  const std::int64_t D = m.hidden;
  const std::int64_t F = m.feed_forward;
  const std::string theirs = text(prefix, "layers.", layer, ".");
  const std::string ours =
      m.in_module(layer) ? architecture::prefix_of_layer(m, layer) : layer_prefix(m, layer);
  const auto add = [&](const char* name, Extents shape, const char* array, Extents place = {}) {
    out.push_back({theirs + name, std::move(shape), {{ours + array, std::move(place)}}});
  };
  if (m.in_module(layer)) add_merge(out, m, theirs, ours);
  const bool norms_inputs = m.norm_placement != NormPlacement::output;
  if (norms_inputs) add("input_layernorm.weight", {D}, "attention_norm.gain");
  if (m.has_latent_attention())
    add_latent_attention(out, m, theirs, ours);
  else
    add_attention(out, m, theirs, ours);
  if (m.norm_placement == NormPlacement::pre) {
    add("post_attention_layernorm.weight", {D}, "feed_forward_norm.gain");
  } else {
    add("post_attention_layernorm.weight", {D}, "attention_output_norm.gain");
    if (norms_inputs) add("pre_feedforward_layernorm.weight", {D}, "feed_forward_norm.gain");
    add("post_feedforward_layernorm.weight", {D}, "feed_forward_output_norm.gain");
  }
  if (m.family == Family::gpt_oss) return add_fused_experts(out, m, theirs, ours);
  if (m.has_experts(layer)) return add_experts(out, m, theirs, ours);
  add("mlp.gate_proj.weight", {F, D}, "feed_forward.gate_up", {0});
  add("mlp.up_proj.weight", {F, D}, "feed_forward.gate_up", {1});
  add("mlp.down_proj.weight", {D, F}, "feed_forward.down");
}

/// Whether files have the model's modules that predict further tokens.
bool has_modules(const M& m) {
  return m.family == Family::deepseek_v3 && m.modules() > 0;
}

std::vector<Copy> copies(const M& m) {
  std::vector<Copy> copies;
  if (m.tied_embeddings) copies.push_back({head, table});
  for (std::int64_t layer = m.layers; has_modules(m) && layer < m.all_layers(); ++layer) {
    copies.push_back({text(prefix, "layers.", layer, ".embed_tokens.weight"), table});
    copies.push_back({text(prefix, "layers.", layer, ".shared_head.head.weight"),
                      m.tied_embeddings ? table : head});
  }
  return copies;
}

std::vector<Tensor> tensors(const M& m) {
  std::vector<Tensor> out;
  out.push_back({table, {m.vocabulary, m.hidden}, {{"embedding.token"}}});
  const std::int64_t layers = has_modules(m) ? m.all_layers() : m.layers;
  for (std::int64_t layer = 0; layer < layers; ++layer) add_layer(out, m, layer);
  out.push_back({"model.norm.weight", {m.hidden}, {{"final_norm.gain"}}});
  if (!m.tied_embeddings) out.push_back({head, {m.vocabulary, m.hidden}, {{"output.weight"}}});
  return out;
}

std::string today(std::string_view name, const M&) {
  if (name.ends_with(".rotary_emb.inv_freq")) return {};
  return with_prefix(name, prefix, "lm_head.");
}

Format format(const Class& c) {
  return {.family = c.family,
          .model_type = c.model_type,
          .keys = with_general_keys(keys(c)),
          .model_class = [](const M& m) { return std::string(class_of(m.family).name); },
          .check = check_config,
          .tensors = tensors,
          .copies = copies,
          .today = today,
          .further_token = c.family == Family::deepseek_v3 ? "eh_proj.weight" : ""};
}

}  // namespace

const Format& llama_format(Family family) {
  static const std::vector<Format> formats = [] {
    std::vector<Format> all;
    for (const Class& c : classes) all.push_back(format(c));
    return all;
  }();
  return *std::ranges::find(formats, family, &Format::family);
}

}  // namespace trireme::hugging_face
